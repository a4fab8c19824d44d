"""Stratified splits keep every class on both sides, exactly and reproducibly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sincere.data.splits import stratified_split
from sincere.errors import InputValueError


@given(st.lists(st.integers(2, 40), min_size=1, max_size=12), st.floats(0.05, 0.95), st.integers(0, 3))
def test_properties(sizes: list[int], fraction: float, seed: int) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)) * 3, sizes))
    rest, held_out = stratified_split(labels, fraction, seed=seed)
    assert np.array_equal(np.sort(np.concatenate([rest, held_out])), np.arange(len(labels)))
    for label, size in zip(np.arange(len(sizes)) * 3, sizes, strict=True):
        count = int((labels[held_out] == label).sum())
        assert 1 <= count <= size - 1
        assert abs(count - fraction * size) < 1 or count in (1, size - 1)
    assert all(
        np.array_equal(a, b)
        for a, b in zip(stratified_split(labels, fraction, seed=seed), (rest, held_out), strict=True)
    )


def test_total_is_exact_where_classes_allow_it() -> None:
    labels = np.repeat(np.arange(10), 55)
    _, held_out = stratified_split(labels, 0.1)
    assert len(held_out) == 55
    assert set(np.bincount(labels[held_out])) == {5, 6}


def test_rounding_favours_no_class() -> None:
    """Over seeds, the extra images fall on all classes alike."""
    labels = np.repeat(np.arange(4), 5)
    extra = sum(np.bincount(labels[stratified_split(labels, 0.3, seed=seed)[1]]) - 1 for seed in range(400))
    assert extra.sum() == 800
    assert extra.min() > 150


def test_seeds_differ() -> None:
    labels = np.repeat(np.arange(3), 40)
    assert not np.array_equal(stratified_split(labels, 0.2, seed=0)[1], stratified_split(labels, 0.2, seed=1)[1])


@pytest.mark.parametrize(
    ("labels", "fraction", "message"),
    [
        ([0, 0, 1], 0.5, "stratified_split: every class must have at least 2 images to be split; got 1 of class 1"),
        ([0, 0], 1.0, "stratified_split: fraction must be below 1; got 1.0"),
        ([0, 0], 0.0, "stratified_split: fraction must be a finite number greater than 0; got 0.0"),
    ],
)
def test_bad_input(labels: list[int], fraction: float, message: str) -> None:
    with pytest.raises(InputValueError) as caught:
        stratified_split(labels, fraction)
    assert str(caught.value) == message
