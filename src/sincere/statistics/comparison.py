"""Compare losses from the figures of every test image: several seeds averaged, differences paired by image id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sincere.errors import DataError
from sincere.records.arrays import PerImage
from sincere.records.estimates import Estimate
from sincere.records.results import Difference, LossSummary
from sincere.statistics.bootstrap import N_RESAMPLES, interval, intervals, is_significant, over_seeds

FEW = 30  # test images below which intervals are worth a note
MANY = 5  # differences from which on chance is worth a note

Runs = Mapping[tuple[str, int], PerImage]  # by loss and seed


def check_same_images(runs: Runs) -> None:
    """Raise unless all runs were measured on the same test images, in the same order.

    Raises:
        DataError: With the two runs that differ, and how.
    """
    (first, reference), *others = runs.items()
    for name, other in others:
        same = len(reference.ids) == len(other.ids) and np.array_equal(reference.ids, other.ids)
        if not same or not np.array_equal(reference.labels, other.labels):
            kind = "labels" if same else "ids"
            described = " and ".join(f"{loss} (seed {seed})" for loss, seed in (first, name))
            wrong = f"{described} were not measured on the same test images: their {kind} differ"
            raise DataError(f"compare: {wrong}; evaluate both on the same data")


def compare_losses(
    runs: Runs, metrics: Sequence[str], *, n_resamples: int = N_RESAMPLES, seed: int = 0
) -> tuple[list[LossSummary], list[Difference]]:
    """Return a summary for each loss and the differences between every two, loss by loss in the order of `runs`.

    Each image is averaged over the seeds of a loss, then images are resampled; all losses with the same images.

    Raises:
        DataError: The runs were not measured on the same test images.
    """
    check_same_images(runs)
    losses = list(dict.fromkeys(loss for loss, _ in runs))
    seeds = {loss: tuple(s for name, s in runs if name == loss) for loss in losses}
    figures: dict[str, dict[str, Estimate]] = {loss: {} for loss in losses}
    beside: dict[str, dict[str, Estimate]] = {loss: {} for loss in losses}
    bold: dict[str, list[str]] = {loss: [] for loss in losses}
    differences = []
    for metric in metrics:
        values = {loss: [runs[loss, s].values[metric] for s in seeds[loss]] for loss in losses}
        averaged = [np.mean(values[loss], axis=0) for loss in losses]
        found = intervals(averaged, n_resamples=n_resamples, seed=seed)
        for loss, estimate in zip(losses, found.estimates, strict=True):
            figures[loss][metric] = estimate
            if (spread := over_seeds([figure(x) for x in values[loss]])) is not None:
                beside[loss][metric] = spread
        enough = len(averaged[0]) > 1  # a single image has an interval without width, which says nothing
        mine = [_difference(metric, losses[i], losses[j], e, enough) for (i, j), e in found.differences.items()]
        for loss in bold_losses({loss: figures[loss][metric].estimate for loss in losses}, mine):
            bold[loss].append(metric)
        differences += mine
    summaries = [
        LossSummary(loss=x, seeds=seeds[x], metrics=figures[x], over_seeds=beside[x], bold=tuple(bold[x]))
        for x in losses
    ]
    return summaries, differences


def figure(values: NDArray[np.float64]) -> float:
    """Return the figure that per-image values stand for: their mean, or the difference of their medians."""
    return float(values.mean() if values.ndim == 1 else np.median(values[:, 0]) - np.median(values[:, 1]))


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


def chance_note(n: int) -> str | None:
    """Return a note where so many differences were tested that chance alone may make some significant."""
    if n < MANY:
        return None
    return (
        f"{n} differences were tested at 95% each, without correction: about {0.05 * n:.1f} would be called "
        "significant by chance if nothing differed"
    )


def _difference(metric: str, a: str, b: str, found: Estimate, enough: bool) -> Difference:
    ends = {"estimate": found.estimate, "low": found.low, "high": found.high}
    return Difference(metric=metric, a=a, b=b, **ends, significant=enough and is_significant(found))


def row_intervals(per_image: PerImage, *, n_resamples: int = N_RESAMPLES, seed: int = 0) -> dict[str, Estimate]:
    """Return each metric of one run with its interval."""
    return {name: interval(values, n_resamples=n_resamples, seed=seed) for name, values in per_image.values.items()}
