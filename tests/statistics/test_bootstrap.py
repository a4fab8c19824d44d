"""Intervals cover the truth as often as they say, are paired, and are reproducible."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from sincere.errors import InputValueError
from sincere.records.estimates import Estimate
from sincere.statistics.bootstrap import interval, intervals, is_significant, over_seeds


def covers(interval: Estimate, truth: float) -> bool:
    return interval.low <= truth <= interval.high


def test_coverage_of_an_accuracy() -> None:
    generator = np.random.default_rng(0)
    draws = [generator.random(400) < 0.8 for _ in range(500)]
    covered = np.mean([covers(interval(draw, seed=i, n_resamples=400), 0.8) for i, draw in enumerate(draws)])
    assert 0.92 <= covered <= 0.98


def test_coverage_of_a_margin() -> None:
    generator = np.random.default_rng(1)
    covered = []
    for i in range(500):
        difficulty = generator.normal(size=200)
        target, noise = 0.8 + 0.1 * difficulty, 0.3 - 0.2 * difficulty + 0.1 * generator.normal(size=200)
        covered.append(covers(interval(np.stack([target, noise], axis=1), seed=i, n_resamples=300), 0.5))
    assert 0.92 <= np.mean(covered) <= 0.98


def test_coverage_of_a_paired_difference_of_margins() -> None:
    generator = np.random.default_rng(2)
    covered = []
    for i in range(500):
        shared = generator.normal(size=150)
        one = np.stack([0.9 + 0.1 * shared, 0.2 + 0.1 * generator.normal(size=150)], axis=1)
        other = np.stack([0.7 + 0.1 * shared, 0.2 + 0.1 * generator.normal(size=150)], axis=1)
        covered.append(covers(intervals([one, other], seed=i, n_resamples=300).differences[0, 1], 0.2))
    assert 0.92 <= np.mean(covered) <= 0.98


def width(found: Estimate) -> float:
    return found.high - found.low


def test_paired_is_narrower_than_unpaired_on_correlated_predictions() -> None:
    """Unpaired: the two intervals are independent, so their half-widths add in squares."""
    generator = np.random.default_rng(0)
    hard = generator.random(2000)
    one, other = (hard < 0.90).astype(float), (hard < 0.88).astype(float)
    found = intervals([one, other])
    unpaired = np.hypot(*(width(estimate) for estimate in found.estimates))
    assert width(found.differences[0, 1]) < 0.7 * unpaired
    assert is_significant(found.differences[0, 1])
    similarity = generator.normal(size=2000)
    models = [np.stack([level + similarity, 0.1 * generator.normal(size=2000)], axis=1) for level in (0.5, 0.45)]
    margins = intervals(models)
    assert width(margins.differences[0, 1]) < 0.5 * np.hypot(*(width(estimate) for estimate in margins.estimates))


@pytest.mark.parametrize("n", [1, 2, 7, 200, 201])
def test_medians_are_numpys(n: int) -> None:
    values = np.random.default_rng(n).random((n, 2))
    assert interval(values).estimate == pytest.approx(np.median(values[:, 0]) - np.median(values[:, 1]), abs=1e-12)


def test_all_differences_of_several_models() -> None:
    levels = [0.2, 0.5, 0.9]
    samples = [np.random.default_rng(i).random(500) < level for i, level in enumerate(levels)]
    found = intervals(samples)
    assert list(found.differences) == [(0, 1), (0, 2), (1, 2)]
    for (i, j), difference in found.differences.items():
        assert difference.estimate == pytest.approx(found.estimates[i].estimate - found.estimates[j].estimate)
        assert difference == intervals([samples[i], samples[j]]).differences[0, 1]  # others do not matter


def test_over_seeds_is_the_t_interval() -> None:
    values = [0.90, 0.92, 0.97, 0.91]
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert over_seeds(values) == Estimate(pytest.approx(np.mean(values)), pytest.approx(low), pytest.approx(high))
    assert over_seeds([0.9]) is None


def test_a_negative_margin_is_negative() -> None:
    found = interval(np.stack([[0.1, 0.2, 0.3], [0.7, 0.8, 0.9]], axis=1))
    assert found.estimate == pytest.approx(-0.6)
    assert found.high < 0


def test_estimate_is_the_statistic_itself() -> None:
    values = [1.0, 2.0, 6.0]
    found = interval(values)
    assert found.estimate == pytest.approx(3.0)
    assert 1.0 <= found.low < 3.0 < found.high <= 6.0
    assert interval(values) == found
    spread = list(range(50))
    assert interval(spread, seed=1) != interval(spread, seed=2)


@pytest.mark.parametrize("values", [[2.5], [2.5, 2.5, 2.5]])
def test_no_spread(values: list[float]) -> None:
    found = interval(values)
    assert found.estimate == found.low == found.high == 2.5


def test_significance() -> None:
    assert is_significant(Estimate(0.2, 0.1, 0.3))
    assert is_significant(Estimate(-0.2, -0.3, -0.1))
    assert not is_significant(Estimate(0.2, -0.1, 0.3))


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([[1.0, 2.0], [1.0]], r"bootstrap: samples must be of one shape, \(n,\) or .* got \(2,\), \(1,\)"),
        ([[]], "samples must be of one shape"),
        ([], "samples must be of one shape"),
        ([[[1.0, 2.0, 3.0]]], "samples must be of one shape"),
        ([[1.0, np.nan], [1.0, 2.0]], "bootstrap: samples must be finite; got NaN or inf"),
    ],
)
def test_bad_input(samples: list[list[float]], message: str) -> None:
    with pytest.raises(InputValueError, match=message):
        intervals(samples)
