"""Confidence intervals have their nominal coverage, are paired, and are reproducible."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from benchmarks.significance import coverage
from sincere.errors import InputValueError
from sincere.records.estimates import Estimate
from sincere.statistics.bootstrap import half_width, interval, intervals, is_significant

Values = NDArray[np.float64]


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
        covered.append(covers(intervals([[one], [other]], seed=i, n_resamples=300).differences[0, 1], 0.2))
    assert 0.92 <= np.mean(covered) <= 0.98


def width(found: Estimate) -> float:
    return found.high - found.low


def test_paired_is_narrower_than_unpaired_on_correlated_predictions() -> None:
    """Unpaired: the two intervals are independent, so their half-widths add in squares."""
    generator = np.random.default_rng(0)
    hard = generator.random(2000)
    one, other = (hard < 0.90).astype(float), (hard < 0.88).astype(float)
    found = intervals([[one], [other]])
    unpaired = np.hypot(*(width(estimate) for estimate in found.estimates))
    assert width(found.differences[0, 1]) < 0.7 * unpaired
    assert is_significant(found.differences[0, 1])
    similarity = generator.normal(size=2000)
    models = [np.stack([level + similarity, 0.1 * generator.normal(size=2000)], axis=1) for level in (0.5, 0.45)]
    margins = intervals([[model] for model in models])
    assert width(margins.differences[0, 1]) < 0.5 * np.hypot(*(width(estimate) for estimate in margins.estimates))


@pytest.mark.parametrize("n", [1, 2, 7, 200, 201])
def test_medians_are_numpys(n: int) -> None:
    values = np.random.default_rng(n).random((n, 2))
    assert interval(values).estimate == pytest.approx(np.median(values[:, 0]) - np.median(values[:, 1]), abs=1e-12)


def test_all_differences_of_several_models() -> None:
    levels = [0.2, 0.5, 0.9]
    samples = [np.random.default_rng(i).random(500) < level for i, level in enumerate(levels)]
    found = intervals([[sample] for sample in samples])
    assert list(found.differences) == [(0, 1), (0, 2), (1, 2)]
    for (i, j), difference in found.differences.items():
        assert difference.estimate == pytest.approx(found.estimates[i].estimate - found.estimates[j].estimate)
        assert difference == intervals([[samples[i]], [samples[j]]]).differences[0, 1]  # others do not matter


def test_a_margin_over_seeds_is_the_mean_of_the_margins() -> None:
    """Similarities vary over images with the seed; every seed has a margin 0.4 above that of the other loss."""
    level = np.array([0.1, 0.5, 0.9])
    high = [np.stack([np.roll(level, s) + 0.4, np.full(3, 0.2)], axis=1) for s in range(3)]
    low = [np.stack([level, np.full(3, 0.2)], axis=1) for _ in range(3)]
    found = intervals([high, low])
    assert found.differences[0, 1].estimate == pytest.approx(0.4)
    assert [x.estimate for x in found.estimates] == pytest.approx([0.7, 0.3])
    assert found.seed_std == pytest.approx([0, 0], abs=1e-12)


def runs_of(generator: np.random.Generator, n_seeds: int, n: int, stds: tuple[float, float]) -> list[Values]:
    """Return values of images under seeds, with mean 0: image effects, seed effects and a small interaction."""
    image, seed = stds[0] * generator.normal(size=n), stds[1] * generator.normal(size=n_seeds)
    return [image + one + 0.1 * generator.normal(size=n) for one in seed]


@pytest.mark.parametrize("n_seeds", [3, 5, 10])
@pytest.mark.parametrize("stds", [(1.0, 0.02), (1.0, 0.3), (0.5, 0.2)])
def test_coverage_over_images_and_seeds(n_seeds: int, stds: tuple[float, float]) -> None:
    generator = np.random.default_rng(n_seeds)
    covered = []
    for i in range(600):
        one = runs_of(generator, n_seeds, 80, stds)
        covered.append(covers(intervals([one], seed=i, n_resamples=100).estimates[0], 0.0))
    assert 0.92 <= np.mean(covered) <= 0.98


@pytest.mark.parametrize("n_seeds", [3, 4, 10])
@pytest.mark.parametrize("stds", [(1.0, 0.0), (0.0, 0.3), (1.0, 0.1), (2.0, 0.3)])
def test_coverage_over_a_grid(n_seeds: int, stds: tuple[float, float]) -> None:
    assert 0.92 <= coverage(*stds, 0.0, n_seeds, repetitions=4000) <= 0.98


def test_images_alone_would_not_cover_the_seeds() -> None:
    """With fewer than three seeds, intervals do not include the variation between seeds."""
    generator = np.random.default_rng(0)
    covered = [covers(intervals([runs_of(generator, 2, 80, (0.5, 0.3))]).estimates[0], 0.0) for _ in range(200)]
    assert np.mean(covered) < 0.6


def test_the_interval_is_the_formula() -> None:
    generator = np.random.default_rng(0)
    one, other = (runs_of(generator, 4, 300, (1.0, 0.1)) for _ in range(2))
    found = intervals([one, other], n_resamples=20_000).differences[0, 1]
    differences = np.array(one) - np.array(other)
    a, b = differences.mean(axis=0).var() / 300, differences.mean(axis=1).var(ddof=1) / 4
    nu = (a + b) ** 2 / (a**2 / 299 + b**2 / 3)
    half = stats.t.ppf(0.975, nu) * np.sqrt(a + b)
    assert found.estimate == pytest.approx(differences.mean())
    assert found.high - found.estimate == pytest.approx(half, rel=0.02)
    assert found.estimate - found.low == pytest.approx(half, rel=0.02)


def test_without_variation_over_images_it_is_the_t_interval_over_seeds() -> None:
    values = [0.90, 0.92, 0.97, 0.91]
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    found = intervals([[np.full(50, value) for value in values]])
    assert found.estimates[0] == Estimate(*(pytest.approx(x) for x in (np.mean(values), low, high)))
    assert found.seed_std == [pytest.approx(np.std(values, ddof=1))]
    assert half_width(np.array(0.0), np.array(0.0), n_images=5, n_seeds=3) == 0
    assert half_width(np.array(1e-200), np.array(1e-200), n_images=5, n_seeds=3) > 0


def test_differences_are_paired_by_seed() -> None:
    """A seed that is good for both losses does not hide that one is better."""
    generator = np.random.default_rng(0)
    shift, noise = [0.1, 0.5, 0.3], generator.normal(size=(2, 3, 100))
    one = [x + 0.05 + 0.01 * noise[0, s] for s, x in enumerate(shift)]
    other = [x + 0.01 * noise[1, s] for s, x in enumerate(shift)]
    assert is_significant(intervals([one, other]).differences[0, 1])
    assert not is_significant(intervals([one, other[::-1]]).differences[0, 1])


def test_the_order_of_seeds_changes_nothing() -> None:
    generator = np.random.default_rng(0)
    for shape in ((2, 5, 60), (2, 5, 60, 2)):
        samples = generator.random(shape)
        found, other = intervals(list(samples)), intervals(list(samples[:, [3, 0, 4, 1, 2]]))
        for one, again in zip(found.estimates, other.estimates, strict=True):
            assert (one.estimate, one.low, one.high) == pytest.approx((again.estimate, again.low, again.high))
        one, again = found.differences[0, 1], other.differences[0, 1]
        assert (one.estimate, one.low, one.high) == pytest.approx((again.estimate, again.low, again.high))


def test_proportions_stay_within_their_range() -> None:
    best = [np.ones(20), np.ones(20), (np.arange(20) > 5).astype(float)]
    worst = [1 - values for values in best]
    found = intervals([best, worst])
    assert found.estimates[0].high == 1.0
    assert found.estimates[1].low == 0.0
    assert found.differences[0, 1].high == 1.0
    assert intervals([worst, best]).differences[0, 1].low == -1.0
    margins = intervals([[np.stack([values, 0 * values], axis=1) for values in best]])
    assert margins.estimates[0].high >= 1.0  # no proportion


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
        ([[[1.0, 2.0]], [[1.0]]], r"intervals: samples must be of one shape, \(n,\) or .* got \(2,\), \(1,\)"),
        ([[[]]], "samples must be of one shape"),
        ([[[[1.0, 2.0, 3.0]]]], "samples must be of one shape"),
        ([[[1.0]], [[1.0], [2.0]]], "intervals: losses must have the same number of seeds; got 1, 2"),
        ([[]], "losses must have the same number of seeds; got 0"),
        ([], "losses must have the same number of seeds; got none"),
        ([[[1.0, np.nan]], [[1.0, 2.0]]], "intervals: samples must be finite; got NaN or inf"),
    ],
)
def test_bad_input(samples: list[list[list[float]]], message: str) -> None:
    with pytest.raises(InputValueError, match=message):
        intervals(samples)
