"""Intervals cover the truth as often as they say, are paired, and are reproducible."""

from __future__ import annotations

import numpy as np
import pytest

from sincere.errors import InputValueError
from sincere.records.estimates import Estimate
from sincere.statistics.bootstrap import is_significant, margin_difference_interval, margin_interval, mean_interval


def covers(interval: Estimate, truth: float) -> bool:
    return interval.low <= truth <= interval.high


def test_coverage_of_an_accuracy() -> None:
    generator = np.random.default_rng(0)
    draws = [generator.random(400) < 0.8 for _ in range(500)]
    covered = np.mean([covers(mean_interval(draw, seed=i, n_resamples=400), 0.8) for i, draw in enumerate(draws)])
    assert 0.92 <= covered <= 0.98


def test_coverage_of_a_margin() -> None:
    generator = np.random.default_rng(1)
    covered = []
    for i in range(500):
        difficulty = generator.normal(size=200)
        target, noise = 0.8 + 0.1 * difficulty, 0.3 - 0.2 * difficulty + 0.1 * generator.normal(size=200)
        covered.append(covers(margin_interval(target, noise, seed=i, n_resamples=300), 0.5))
    assert 0.92 <= np.mean(covered) <= 0.98


def test_coverage_of_a_paired_difference_of_margins() -> None:
    generator = np.random.default_rng(2)
    covered = []
    for i in range(500):
        shared = generator.normal(size=150)
        one = (0.9 + 0.1 * shared, 0.2 + 0.1 * generator.normal(size=150))
        other = (0.7 + 0.1 * shared, 0.2 + 0.1 * generator.normal(size=150))
        covered.append(covers(margin_difference_interval(one, other, seed=i, n_resamples=300), 0.2))
    assert 0.92 <= np.mean(covered) <= 0.98


def test_paired_is_narrower_on_correlated_predictions() -> None:
    generator = np.random.default_rng(0)
    hard = generator.random(2000)
    one, other = (hard < 0.90).astype(float), (hard < 0.88).astype(float)
    paired, alone = mean_interval(one - other), mean_interval(one)
    assert paired.high - paired.low < 0.7 * (alone.high - alone.low)
    assert is_significant(paired)
    similarity = generator.normal(size=2000)
    models = [(level + similarity, 0.1 * generator.normal(size=2000)) for level in (0.5, 0.45)]
    difference = margin_difference_interval(*models)
    single = margin_interval(*models[0])
    assert difference.high - difference.low < 0.5 * (single.high - single.low)


def test_a_negative_margin_is_negative() -> None:
    interval = margin_interval([0.1, 0.2, 0.3], [0.7, 0.8, 0.9])
    assert interval.estimate == pytest.approx(-0.6)
    assert interval.high < 0


def test_estimate_is_the_statistic_itself() -> None:
    values = [1.0, 2.0, 6.0]
    interval = mean_interval(values)
    assert interval.estimate == pytest.approx(3.0)
    assert 1.0 <= interval.low < 3.0 < interval.high <= 6.0
    assert mean_interval(values) == interval
    spread = list(range(50))
    assert mean_interval(spread, seed=1) != mean_interval(spread, seed=2)


@pytest.mark.parametrize("values", [[2.5], [2.5, 2.5, 2.5]])
def test_no_spread(values: list[float]) -> None:
    interval = mean_interval(values)
    assert interval.estimate == interval.low == interval.high == 2.5


def test_significance() -> None:
    assert is_significant(Estimate(0.2, 0.1, 0.3))
    assert is_significant(Estimate(-0.2, -0.3, -0.1))
    assert not is_significant(Estimate(0.2, -0.1, 0.3))


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (([1.0, 2.0], [1.0]), r"bootstrap: samples must be of one shape \(n,\) with n > 0; got \(2,\), \(1,\)"),
        (([], []), "samples must be of one shape"),
        (([1.0, np.nan], [1.0, 2.0]), "bootstrap: samples must be finite; got NaN or inf"),
    ],
)
def test_bad_input(samples: tuple[list[float], list[float]], message: str) -> None:
    with pytest.raises(InputValueError, match=message):
        margin_interval(*samples)
