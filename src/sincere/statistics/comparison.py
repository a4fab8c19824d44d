"""Comparison of losses from the values of every test image: differences are paired by image id and by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sincere.errors import DataError
from sincere.records.arrays import PerImage
from sincere.records.estimates import Estimate
from sincere.records.results import ABOUT_LOSSES, ABOUT_MODELS, Difference, LossSummary, MetricAbout, Scope
from sincere.statistics.bootstrap import ENOUGH_SEEDS, N_RESAMPLES, intervals, is_significant

FEW_IMAGES = 30  # number of test images below which intervals get a note
MANY_DIFFERENCES = 5  # number of differences from which on multiple testing gets a note

Runs = Mapping[tuple[str, int], PerImage]  # by loss and seed


def check_paired(runs: Runs) -> None:
    """Check that all losses have the same seeds, and all runs the same test images in the same order.

    Raises:
        DataError: They do not; the message names the two losses or runs that differ.
    """
    (first, reference), *others = runs.items()
    for name, other in others:
        same = len(reference.ids) == len(other.ids) and np.array_equal(reference.ids, other.ids)
        same = same and np.array_equal(reference.unknown_ids, other.unknown_ids)
        if not same or not np.array_equal(reference.labels, other.labels):
            kind = "labels" if same else "ids"
            described = " and ".join(f"{loss} (seed {seed})" for loss, seed in (first, name))
            problem = f"{described} were not measured on the same test images: their {kind} differ"
            raise DataError(f"compare: {problem}; evaluate both on the same data")
    (loss, seeds), *rest = _seeds_of(runs).items()
    for other_loss, other_seeds in rest:
        if seeds != other_seeds:
            described = f"{loss} with {_listed(seeds)} and {other_loss} with {_listed(other_seeds)}"
            raise DataError(f"compare: {described} were not trained with the same seeds; train both with the same")


def compare_losses(
    runs: Runs, metrics: Mapping[str, MetricAbout], *, n_resamples: int = N_RESAMPLES, seed: int = 0
) -> tuple[list[LossSummary], list[Difference]]:
    """Return a summary of each loss, in the order of `runs`, and the difference of every two losses.

    Estimates are means over seeds of the values of the runs; their confidence intervals are those of `intervals`.

    Raises:
        DataError: The runs were not measured on the same test images, or the losses do not have the same seeds.
    """
    check_paired(runs)
    seeds = _seeds_of(runs)
    losses = list(seeds)
    estimates: dict[str, dict[str, Estimate]] = {loss: {} for loss in losses}
    seed_std: dict[str, dict[str, float]] = {loss: {} for loss in losses}
    bold: dict[str, list[str]] = {loss: [] for loss in losses}
    differences = []
    for metric, about in metrics.items():
        samples = [[runs[loss, s].values[metric] for s in seeds[loss]] for loss in losses]
        estimated = intervals(samples, n_resamples=n_resamples, seed=seed, is_share=about.share)
        for loss, estimate, spread in zip(losses, estimated.estimates, estimated.seed_std, strict=True):
            estimates[loss][metric] = estimate
            if spread is not None:
                seed_std[loss][metric] = spread
        several = len(samples[0][0]) > 1  # the interval of a single image has no width, and no meaning
        paired = [_difference(metric, losses[i], losses[j], e, several) for (i, j), e in estimated.differences.items()]
        if about.better is not None:
            sign = 1 if about.better == "higher" else -1
            for loss in bold_losses({loss: sign * estimates[loss][metric].estimate for loss in losses}, paired):
                bold[loss].append(metric)
        differences += paired
    summaries = [
        LossSummary(loss=x, seeds=seeds[x], metrics=estimates[x], seed_std=seed_std[x], bold=tuple(bold[x]))
        for x in losses
    ]
    return summaries, differences


def scope_of(summaries: Sequence[LossSummary]) -> Scope:
    """Return the scope of the intervals: the losses with three seeds or more, else these trained models."""
    return ABOUT_LOSSES if min(len(summary.seeds) for summary in summaries) >= ENOUGH_SEEDS else ABOUT_MODELS


def bold_losses(estimates: Mapping[str, float], differences: Sequence[Difference]) -> list[str]:
    """Return the best loss and those not significantly worse, if some loss is significantly worse; else none.

    The best one has the largest estimate; for metrics of which less is better, give them with the other sign.

    Example:
        >>> d = Difference(metric="m", a="x", b="y", estimate=0.1, low=0.05, high=0.2, significant=True)
        >>> bold_losses({"x": 0.9, "y": 0.8}, [d])
        ['x']
    """
    best = max(estimates, key=lambda loss: estimates[loss])
    below = {
        loss
        for difference in differences
        if difference.significant
        for loss, other in ((difference.a, difference.b), (difference.b, difference.a))
        if other == best
    }
    return [loss for loss in estimates if loss not in below] if below else []


def few_note(n: int, what: str = "test images") -> str | None:
    """Return a note if there are too few test images, or samples, for reliable intervals.

    Example:
        >>> few_note(1, "images of unknown classes")
        'only 1 image of unknown classes: intervals that depend on so few cover the true value less often than 95%'
    """
    singular = what.replace("images", "image").replace("samples", "sample")
    counted = f"only {n} {singular if n == 1 else what}"
    note = f"{counted}: intervals that depend on so few cover the true value less often than 95%"
    return note if n < FEW_IMAGES else None


def few_seeds_note(command: str) -> str:
    """Return the note of a comparison with fewer than three seeds; `command` adds seeds."""
    return (
        "intervals and significance are about these trained models, not about the losses: they do not include the "
        "variation between seeds, so two seeds of one loss often differ significantly; three seeds compare the losses: "
        f"`{command}`"
    )


def chance_note(n: int) -> str | None:
    """Return a note if so many differences were tested that some may be significant by chance."""
    if n < MANY_DIFFERENCES:
        return None
    return (
        f"{n} differences were tested at the 95% level, without correction for multiple tests: about {0.05 * n:.1f} "
        "would be significant by chance if the losses did not differ"
    )


def _seeds_of(runs: Runs) -> dict[str, tuple[int, ...]]:
    """Return the seeds of each loss, ascending, so that their order does not matter."""
    losses = dict.fromkeys(loss for loss, _ in runs)
    return {loss: tuple(sorted(seed for name, seed in runs if name == loss)) for loss in losses}


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def _difference(metric: str, a: str, b: str, estimate: Estimate, several_images: bool) -> Difference:
    values = {"estimate": estimate.estimate, "low": estimate.low, "high": estimate.high}
    return Difference(metric=metric, a=a, b=b, **values, significant=several_images and is_significant(estimate))
