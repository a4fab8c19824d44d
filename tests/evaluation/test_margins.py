"""Margins are signed, and histograms count every test image."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sincere.evaluation.margins import class_margins, histogram, margin


def test_signed_difference_of_medians() -> None:
    assert margin([0.9, 0.8, 0.1], [0.5, 0.2, 0.3]).margin == pytest.approx(0.5)
    assert margin([0.1, 0.2, 0.3], [0.9, 0.8, 0.7]).margin == pytest.approx(-0.6), "a negative margin stays negative"


def test_counts_sum_to_the_images() -> None:
    generator = np.random.default_rng(0)
    target, noise = np.linspace(-1, 1, 1000), np.full(1000, 1 + 1e-6)
    generator.shuffle(target)
    result = margin(target, noise)
    assert sum(result.target.counts) == sum(result.noise.counts) == result.n == 1000
    assert result.noise.counts[-1] == 1000, "rounding beyond 1 is in the last bin"
    assert len(result.target.counts) == 100


def test_values_are_counted_in_their_bin() -> None:
    found = histogram(np.array([-1.0, -0.985, 0.005, 0.99]), -1.0, 1.0, 100)
    assert [i for i, count in enumerate(found.counts) if count] == [0, 50, 99]
    assert found.counts[0] == 2


def test_similarities_in_a_narrow_range_have_narrow_bins() -> None:
    generator = np.random.default_rng(0)
    result = margin(generator.uniform(0.97, 1.0, 500), generator.uniform(0.955, 0.98, 500))
    for found in (result.target, result.noise):
        assert (found.low, found.high) == (result.target.low, result.target.high)
        assert 0.95 <= found.low <= 0.956
        assert found.high == 1
        assert 50 <= len(found.counts) <= 100
        assert sum(found.counts) == 500
    assert sum(count > 0 for count in result.target.counts) > 30


def test_classes_share_the_bins_of_all_images() -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(300) % 3
    target, noise = 0.9 + 0.03 * labels + 0.01 * generator.random(300), 0.9 + 0.01 * generator.random(300)
    whole, parts = margin(target, noise), class_margins(target, noise, labels, 3)
    assert {(part.target.low, part.target.high) for part in parts} == {(whole.target.low, whole.target.high)}
    assert tuple(np.sum([part.target.counts for part in parts], axis=0)) == whole.target.counts


def test_each_class_by_itself() -> None:
    target, noise, labels = [0.9, 0.5, 0.7], [0.1, 0.6, 0.3], [0, 2, 0]
    first, second, third = class_margins(target, noise, labels, 3)
    assert first.margin == pytest.approx(0.6)
    assert third.margin == pytest.approx(-0.1)
    assert math.isnan(second.margin)
    assert (first.n, second.n, third.n) == (2, 0, 1)
