"""Compare losses from the values of every test image: differences paired by image id and by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sincere.errors import DataError
from sincere.records.arrays import PerImage
from sincere.records.estimates import Estimate
from sincere.records.results import ABOUT_LOSSES, ABOUT_MODELS, Difference, LossSummary, Scope
from sincere.statistics.bootstrap import ENOUGH_SEEDS, N_RESAMPLES, intervals, is_significant

FEW = 30  # test images below which intervals get a note
MANY = 5  # differences from which on chance gets a note

Runs = Mapping[tuple[str, int], PerImage]  # by loss and seed


def check_paired(runs: Runs) -> None:
    """Raise unless all losses have the same seeds, and all runs the same test images in the same order.

    Raises:
        DataError: With the two losses or runs that differ, and how.
    """
    (first, reference), *others = runs.items()
    for name, other in others:
        same = len(reference.ids) == len(other.ids) and np.array_equal(reference.ids, other.ids)
        if not same or not np.array_equal(reference.labels, other.labels):
            kind = "labels" if same else "ids"
            described = " and ".join(f"{loss} (seed {seed})" for loss, seed in (first, name))
            wrong = f"{described} were not measured on the same test images: their {kind} differ"
            raise DataError(f"compare: {wrong}; evaluate both on the same data")
    (loss, seeds), *rest = _seeds(runs).items()
    for other_loss, other_seeds in rest:
        if seeds != other_seeds:
            described = f"{loss} with {_listed(seeds)} and {other_loss} with {_listed(other_seeds)}"
            raise DataError(f"compare: {described} were not trained with the same seeds; train both with the same")


def compare_losses(
    runs: Runs, metrics: Sequence[str], *, n_resamples: int = N_RESAMPLES, seed: int = 0
) -> tuple[list[LossSummary], list[Difference]]:
    """Return a summary for each loss and the differences between every two, loss by loss in the order of `runs`.

    Estimates are means over seeds of each run's own value; `intervals` says how their intervals are made.

    Raises:
        DataError: The runs were not measured on the same test images, or the losses do not have the same seeds.
    """
    check_paired(runs)
    seeds = _seeds(runs)
    losses = list(seeds)
    estimates: dict[str, dict[str, Estimate]] = {loss: {} for loss in losses}
    seed_std: dict[str, dict[str, float]] = {loss: {} for loss in losses}
    bold: dict[str, list[str]] = {loss: [] for loss in losses}
    differences = []
    for metric in metrics:
        samples = [[runs[loss, s].values[metric] for s in seeds[loss]] for loss in losses]
        found = intervals(samples, n_resamples=n_resamples, seed=seed)
        for loss, estimate, spread in zip(losses, found.estimates, found.seed_std, strict=True):
            estimates[loss][metric] = estimate
            if spread is not None:
                seed_std[loss][metric] = spread
        enough = len(samples[0][0]) > 1  # a single image has an interval without width, which says nothing
        of_metric = [_difference(metric, losses[i], losses[j], e, enough) for (i, j), e in found.differences.items()]
        for loss in bold_losses({loss: estimates[loss][metric].estimate for loss in losses}, of_metric):
            bold[loss].append(metric)
        differences += of_metric
    summaries = [
        LossSummary(loss=x, seeds=seeds[x], metrics=estimates[x], seed_std=seed_std[x], bold=tuple(bold[x]))
        for x in losses
    ]
    return summaries, differences


def scope_of(summaries: Sequence[LossSummary]) -> Scope:
    """Return what the intervals are about: the losses with three seeds or more, else these trained models."""
    return ABOUT_LOSSES if min(len(summary.seeds) for summary in summaries) >= ENOUGH_SEEDS else ABOUT_MODELS


def bold_losses(estimates: Mapping[str, float], differences: Sequence[Difference]) -> list[str]:
    """Return the best loss and those not significantly below it, if some loss is significantly below; else none.

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


def few_note(n: int) -> str | None:
    """Return a note where there are too few test images for intervals to be trusted."""
    return f"{n} test images are few: their intervals are too narrow more often than they say" if n < FEW else None


def few_seeds_note(command: str) -> str:
    """Return a note for a comparison with fewer than three seeds; `command` adds seeds."""
    return (
        "intervals and significance are about these trained models, not about the losses: they leave out the variation "
        "between seeds, and another seed of the same loss is often called different; three seeds compare the losses: "
        f"`{command}`"
    )


def chance_note(n: int) -> str | None:
    """Return a note where so many differences between losses were tested that some may be significant by chance."""
    if n < MANY:
        return None
    return (
        f"{n} differences were tested at 95% each, without correction: about {0.05 * n:.1f} would be called "
        "significant by chance if the losses did not differ"
    )


def _seeds(runs: Runs) -> dict[str, tuple[int, ...]]:
    """Return the seeds of each loss, ascending: their order must not matter."""
    losses = dict.fromkeys(loss for loss, _ in runs)
    return {loss: tuple(sorted(seed for name, seed in runs if name == loss)) for loss in losses}


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def _difference(metric: str, a: str, b: str, found: Estimate, enough: bool) -> Difference:
    ends = {"estimate": found.estimate, "low": found.low, "high": found.high}
    return Difference(metric=metric, a=a, b=b, **ends, significant=enough and is_significant(found))
