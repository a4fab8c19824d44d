"""Bootstrap intervals over test images, by SciPy: 95%, percentile. The estimate is that of the sample itself.

All models are resampled together, so their differences are paired by test image and cost nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import bootstrap, t

from sincere import checks
from sincere.errors import InputValueError
from sincere.records.estimates import Estimate

N_RESAMPLES = 1000
LEVEL = 0.95
DIGITS = 12
AT_ONCE = 1_000_000  # numbers that are resampled together: bounds the memory, and stays in the cache

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Intervals:
    """What a bootstrap of several models found.

    Attributes:
        estimates: Of each model.
        differences: Of each pair (i, j) with i < j: model i minus model j, paired by test image.
    """

    estimates: list[Estimate]
    differences: dict[tuple[int, int], Estimate]


def intervals(samples: Sequence[ArrayLike], *, n_resamples: int = N_RESAMPLES, seed: int = 0) -> Intervals:
    """Return the figure of each model and all paired differences, with their intervals.

    Args:
        samples: For each model a value for each test image (n,), whose mean is the figure, such as 1 where it is right;
            or two (n, 2), the similarities to the nearest target and to the nearest noise, whose figure is the signed
            margin: the difference of their medians. The images are the same in the same order for every model.
        n_resamples: Of the test images.
        seed: Of the resamples.

    Raises:
        InputValueError: The samples differ in shape, are empty, or are not finite.
    """
    table = _table(samples)
    n_models = len(samples)
    columns = len(table) // n_models
    pairs = list(combinations(range(n_models), 2))
    first, second = ([pair[end] for pair in pairs] for end in (0, 1))

    def statistic(resampled: Values, axis: int) -> Values:
        if columns == 1:
            figures = resampled.mean(axis=axis)
        else:
            medians = _medians(resampled)
            figures = medians[0::2] - medians[1::2]
        return np.concatenate([figures, figures[first] - figures[second]])

    estimates = statistic(table, axis=-1)
    if table.shape[1] == 1:  # nothing to resample
        low = high = estimates
    else:
        found = bootstrap(
            (table,),
            statistic,
            vectorized=True,
            axis=-1,
            n_resamples=n_resamples,
            confidence_level=LEVEL,
            method="percentile",
            rng=np.random.default_rng(seed),
            batch=max(1, AT_ONCE // table.size),
        )
        low, high = found.confidence_interval
    # Sums of thirds and the like leave dust, and an end of 0 must be 0: it decides what is significant.
    results = [
        Estimate(*(round(float(end), DIGITS) + 0.0 for end in ends)) for ends in zip(estimates, low, high, strict=True)
    ]
    return Intervals(results[:n_models], dict(zip(pairs, results[n_models:], strict=True)))


def interval(values: ArrayLike, *, n_resamples: int = N_RESAMPLES, seed: int = 0) -> Estimate:
    """Return the figure of one model with its interval: see `intervals`.

    Example:
        >>> interval([1.0, 1.0, 1.0])
        Estimate(estimate=1.0, low=1.0, high=1.0)
    """
    return intervals([values], n_resamples=n_resamples, seed=seed).estimates[0]


def over_seeds(figures: ArrayLike) -> Estimate | None:
    """Return the mean of a figure over seeds with the t-interval of that mean; None for a single seed.

    It says what another seed might give on the same test images, where the bootstrap says what other images might give.

    Example:
        >>> found = over_seeds([0.8, 0.9, 1.0])
        >>> round(found.low, 3), round(found.high, 3)
        (0.652, 1.148)
    """
    values = np.asarray(figures, dtype=np.float64)
    if len(values) < 2:
        return None
    mean = float(values.mean())
    half = float(t.ppf((1 + LEVEL) / 2, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return Estimate(mean, mean - half, mean + half)


def is_significant(difference: Estimate) -> bool:
    """Tell whether the interval of a difference leaves 0."""
    return difference.low > 0 or difference.high < 0


def _medians(values: Values) -> Values:
    """Return medians along the last axis: numpy's, in a quarter of its time, because one place is selected, not two."""
    half = values.shape[-1] // 2
    ordered = np.partition(values, half, axis=-1)
    upper: Values = ordered[..., half]
    return upper if values.shape[-1] % 2 else (upper + ordered[..., :half].max(axis=-1)) / 2


def _table(samples: Sequence[ArrayLike]) -> Values:
    """Return the samples as rows (models x columns, images)."""
    arrays = [np.asarray(sample, dtype=np.float64) for sample in samples]
    shapes = {array.shape for array in arrays}
    if len(shapes) != 1 or arrays[0].ndim not in (1, 2) or not len(arrays[0]) or arrays[0].shape[1:] not in ((), (2,)):
        got = ", ".join(str(array.shape) for array in arrays) or "none"
        requirement = "samples must be of one shape, (n,) or (n, 2) with n > 0"
        raise InputValueError(checks.wording("bootstrap", requirement, got))
    table = np.concatenate([array.reshape(len(array), -1).T for array in arrays])
    if not np.isfinite(table).all():
        raise InputValueError(checks.wording("bootstrap", "samples must be finite", "NaN or inf"))
    return table
