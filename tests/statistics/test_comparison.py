"""Losses compared from per-image figures: seeds averaged, images paired by id, bold by the rule."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from sincere.errors import DataError
from sincere.records.arrays import PerImage
from sincere.records.results import Difference
from sincere.statistics.bootstrap import intervals, over_seeds
from sincere.statistics.comparison import bold_losses, chance_note, compare_losses

N = 400


def images(
    values: dict[str, NDArray[np.float64]],
    ids: NDArray[np.int64] | None = None,
    labels: NDArray[np.int64] | None = None,
) -> PerImage:
    n = len(next(iter(values.values())))
    found = np.arange(n) if ids is None else ids
    classes = np.zeros(n, dtype=np.int64) if labels is None else labels
    return PerImage(found, classes, classes, found, found, values)


def right(share: float, seed: int) -> NDArray[np.float64]:
    return (np.random.default_rng(seed).random(N) < share).astype(float)


def test_each_image_is_averaged_over_seeds_before_images_are_resampled() -> None:
    one, other = [right(0.9, seed) for seed in (0, 1, 2)], [right(0.6, seed) for seed in (3, 4, 5)]
    runs = {("a", s): images({"knn1": x}) for s, x in enumerate(one)}
    runs |= {("b", s): images({"knn1": x}) for s, x in enumerate(other)}
    summaries, (difference,) = compare_losses(runs, ["knn1"])
    expected = intervals([np.mean(one, axis=0), np.mean(other, axis=0)])
    assert [summary.metrics["knn1"] for summary in summaries] == expected.estimates
    assert difference.estimate == expected.differences[0, 1].estimate
    assert difference.significant
    assert summaries[0].over_seeds["knn1"] == over_seeds([x.mean() for x in one])
    assert summaries[0].seeds == (0, 1, 2)
    assert [summary.bold for summary in summaries] == [("knn1",), ()]


def test_a_single_seed_has_no_interval_over_seeds() -> None:
    summaries, differences = compare_losses({("a", 7): images({"knn1": right(0.5, 0)})}, ["knn1"])
    assert summaries[0].over_seeds == {}
    assert differences == []


def test_margins_over_seeds_average_the_similarities() -> None:
    generator = np.random.default_rng(0)
    pairs = [generator.random((N, 2)) for _ in range(2)]
    summaries, _ = compare_losses({("a", s): images({"margin": x}) for s, x in enumerate(pairs)}, ["margin"])
    mean = np.mean(pairs, axis=0)
    expected = np.median(mean[:, 0]) - np.median(mean[:, 1])
    assert summaries[0].metrics["margin"].estimate == pytest.approx(expected)


def test_other_images_or_another_order_are_refused() -> None:
    values = {"knn1": right(0.5, 0)}
    shuffled = np.random.default_rng(0).permutation(N)
    for ids in (shuffled, np.arange(N) + 1):
        with pytest.raises(DataError, match=r"compare: a \(seed 0\) and b \(seed 1\) .* their ids differ"):
            compare_losses({("a", 0): images(values), ("b", 1): images(values, ids=ids)}, ["knn1"])
    fewer = images({"knn1": values["knn1"][:-1]})
    with pytest.raises(DataError, match="their ids differ; evaluate both on the same data"):
        compare_losses({("a", 0): images(values), ("b", 1): fewer}, ["knn1"])
    with pytest.raises(DataError, match="their labels differ"):
        compare_losses({("a", 0): images(values), ("b", 1): images(values, labels=np.arange(N) % 2)}, ["knn1"])


def test_an_end_of_zero_is_not_significant_whatever_the_rounding() -> None:
    """Averages over three seeds are thirds; their sums leave 1e-16 where the end of the interval is 0."""
    for seed in range(40):
        generator = np.random.default_rng(seed)
        one = generator.integers(0, 4, 60)
        other = np.where(generator.random(60) < 0.04, np.maximum(one - 1, 0), one)
        runs = {}
        for s in range(3):
            runs["a", s] = images({"m": (one > s).astype(float)})
            runs["b", s] = images({"m": (other > s).astype(float)})
        _, (found,) = compare_losses(runs, ["m"], n_resamples=200)
        exact = intervals([one.astype(float), other.astype(float)], n_resamples=200).differences[0, 1]
        assert found.significant == (exact.low > 0 or exact.high < 0)


def test_a_single_image_makes_nothing_significant() -> None:
    runs = {(loss, 0): images({"m": np.array([value])}) for loss, value in (("a", 1.0), ("b", 0.0))}
    _, (found,) = compare_losses(runs, ["m"])
    assert found.estimate == 1.0
    assert not found.significant


def difference(a: str, b: str, *, significant: bool) -> Difference:
    return Difference(metric="m", a=a, b=b, estimate=0, low=0, high=0, significant=significant)


def test_bold_is_the_best_and_those_not_significantly_below_it_if_some_loss_is() -> None:
    estimates = {"x": 0.7, "y": 0.9, "z": 0.89}
    pairs = [("x", "y"), ("x", "z"), ("y", "z")]
    assert bold_losses(estimates, [difference(a, b, significant=False) for a, b in pairs]) == []
    only_x = [difference(a, b, significant="x" in (a, b)) for a, b in pairs]
    assert bold_losses(estimates, only_x) == ["y", "z"]
    assert bold_losses(estimates, [difference(a, b, significant=True) for a, b in pairs]) == ["y"]
    beside_the_best = [difference(a, b, significant=(a, b) == ("x", "z")) for a, b in pairs]
    assert bold_losses(estimates, beside_the_best) == []  # x is not significantly below y, the best


def test_many_comparisons_get_a_note() -> None:
    assert chance_note(4) is None
    assert "12 differences were tested" in str(chance_note(12))
    assert "about 0.6 would be called significant" in str(chance_note(12))
