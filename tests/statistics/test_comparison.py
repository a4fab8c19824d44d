"""Losses are compared from per-image values: paired by image id and by seed; which losses are bold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from sincere.errors import DataError
from sincere.records.arrays import PerImage
from sincere.records.results import Better, Difference, MetricAbout
from sincere.statistics.bootstrap import intervals
from sincere.statistics.comparison import bold_losses, chance_note, compare_losses, few_seeds_note, scope_of

N = 400


def images(
    values: dict[str, NDArray[np.float64]],
    ids: NDArray[np.int64] | None = None,
    labels: NDArray[np.int64] | None = None,
) -> PerImage:
    n = len(next(iter(values.values())))
    found = np.arange(n) if ids is None else ids
    classes = np.zeros(n, dtype=np.int64) if labels is None else labels
    return PerImage(found, classes, classes, found, found, np.arange(0), values)


def about(name: str, *, better: Better | None = "higher") -> dict[str, MetricAbout]:
    return {name: MetricAbout(title=name, share=name == "knn1", better=better)}


def right(share: float, seed: int) -> NDArray[np.float64]:
    return (np.random.default_rng(seed).random(N) < share).astype(float)


def test_summaries_and_differences_are_the_intervals() -> None:
    one, other = [right(0.9, seed) for seed in (0, 1, 2)], [right(0.6, seed) for seed in (3, 4, 5)]
    runs = {("a", s): images({"knn1": x}) for s, x in enumerate(one)}
    runs |= {("b", s): images({"knn1": x}) for s, x in enumerate(other)}
    summaries, (difference,) = compare_losses(runs, about("knn1"))
    expected = intervals([one, other])
    assert [summary.metrics["knn1"] for summary in summaries] == expected.estimates
    assert difference.estimate == expected.differences[0, 1].estimate
    assert difference.significant
    assert summaries[0].seed_std["knn1"] == pytest.approx(np.std([x.mean() for x in one], ddof=1))
    assert summaries[0].seeds == (0, 1, 2)
    assert [summary.bold for summary in summaries] == [("knn1",), ()]
    assert scope_of(summaries) == "losses"
    backwards, (same,) = compare_losses(dict(reversed(runs.items())), about("knn1"))
    assert {x.loss: x for x in backwards} == {x.loss: x for x in summaries}
    assert (same.estimate, same.low, same.high) == (-difference.estimate, -difference.high, -difference.low)


def test_bold_is_the_better_direction_and_nothing_where_none_is_better() -> None:
    runs = {("a", 0): images({"m": right(0.9, 0)}), ("b", 0): images({"m": right(0.3, 1)})}
    for better, expected in (("higher", [("m",), ()]), ("lower", [(), ("m",)]), (None, [(), ()])):
        summaries, _ = compare_losses(runs, about("m", better=better))
        assert [summary.bold for summary in summaries] == expected


def test_intervals_of_shares_end_at_0_and_1_whatever_the_values_of_images() -> None:
    """Values of single images may be outside of [0, 1], as those of a balanced accuracy."""
    values = np.where(np.arange(N) < N - 4, 1.0, 0.0) * 1.2 - 0.2 * (np.arange(N) % 2)
    values += 0.995 - values.mean()
    summaries, _ = compare_losses({("a", 0): images({"knn1": values})}, about("knn1"))
    assert summaries[0].metrics["knn1"].high == 1.0
    summaries, _ = compare_losses({("a", 0): images({"m": values})}, about("m"))
    assert summaries[0].metrics["m"].high > 1.0


def test_other_unknown_images_are_refused() -> None:
    one, other = (replace(images({"knn1": right(0.5, 0)}), unknown_ids=np.arange(n)) for n in (3, 4))
    with pytest.raises(DataError, match="their ids differ"):
        compare_losses({("a", 0): one, ("b", 0): other}, about("knn1"))


def test_fewer_seeds_are_about_the_trained_models() -> None:
    summaries, differences = compare_losses({("a", 7): images({"knn1": right(0.5, 0)})}, about("knn1"))
    assert summaries[0].seed_std == {}
    assert differences == []
    assert scope_of(summaries) == "trained models"
    two, _ = compare_losses({("a", s): images({"knn1": right(0.5, s)}) for s in (0, 1)}, about("knn1"))
    assert two[0].seed_std.keys() == {"knn1"}
    assert scope_of(two) == "trained models"
    assert "about these trained models, not about the losses" in few_seeds_note("sincere compare --seeds 0 1 2")


def test_the_margin_of_several_seeds_is_the_mean_of_their_margins() -> None:
    generator = np.random.default_rng(0)
    pairs = [generator.random((N, 2)) for _ in range(2)]
    summaries, _ = compare_losses({("a", s): images({"margin": x}) for s, x in enumerate(pairs)}, about("margin"))
    expected = np.mean([np.median(x[:, 0]) - np.median(x[:, 1]) for x in pairs])
    assert summaries[0].metrics["margin"].estimate == pytest.approx(expected)


def test_other_seeds_are_refused() -> None:
    found = images({"knn1": right(0.5, 0)})
    runs = {("a", 0): found, ("a", 1): found, ("b", 0): found, ("b", 2): found}
    with pytest.raises(DataError, match=r"^compare: a with 0, 1 and b with 0, 2 were not trained with the same seeds"):
        compare_losses(runs, about("knn1"))


def test_other_images_or_another_order_are_refused() -> None:
    values = {"knn1": right(0.5, 0)}
    shuffled = np.random.default_rng(0).permutation(N)
    for ids in (shuffled, np.arange(N) + 1):
        with pytest.raises(DataError, match=r"compare: a \(seed 0\) and b \(seed 0\) .* their ids differ"):
            compare_losses({("a", 0): images(values), ("b", 0): images(values, ids=ids)}, about("knn1"))
    fewer = images({"knn1": values["knn1"][:-1]})
    with pytest.raises(DataError, match="their ids differ; evaluate both on the same data"):
        compare_losses({("a", 0): images(values), ("b", 0): fewer}, about("knn1"))
    with pytest.raises(DataError, match="their labels differ"):
        compare_losses({("a", 0): images(values), ("b", 0): images(values, labels=np.arange(N) % 2)}, about("knn1"))


def test_an_end_of_zero_is_not_significant_whatever_the_rounding() -> None:
    """Means of tenths over two seeds leave a residue of 1e-17 where the end of the interval is 0."""
    for seed in range(40):
        generator = np.random.default_rng(seed)
        one = generator.integers(0, 3, 60)
        other = np.where(generator.random(60) < 0.04, np.maximum(one - 1, 0), one)
        runs = {}
        for s in range(2):
            runs["a", s] = images({"m": 0.1 * (one > s)})
            runs["b", s] = images({"m": 0.1 * (other > s)})
        _, (found,) = compare_losses(runs, about("m"), n_resamples=200)
        exact = intervals([[one.astype(float)], [other.astype(float)]], n_resamples=200).differences[0, 1]
        assert found.significant == (exact.low > 0 or exact.high < 0)


def test_a_single_image_makes_nothing_significant() -> None:
    runs = {(loss, 0): images({"m": np.array([value])}) for loss, value in (("a", 1.0), ("b", 0.0))}
    _, (found,) = compare_losses(runs, about("m"))
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
    assert "about 0.6 would be significant by chance if the losses did not differ" in str(chance_note(12))
