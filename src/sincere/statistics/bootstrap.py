"""Bootstrap intervals over test items, by SciPy: 95%, percentile. The estimate is that of the sample itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import bootstrap

from sincere import checks
from sincere.errors import InputValueError
from sincere.records.estimates import Estimate

N_RESAMPLES = 1000
AT_ONCE = 4_000_000  # numbers of a sample that are resampled together: bounds the memory

Values = NDArray[np.float64]


def mean_interval(values: ArrayLike, *, n_resamples: int = N_RESAMPLES, seed: int = 0) -> Estimate:
    """Return the mean of `values` with its interval. For a paired difference, hand in the differences.

    Example:
        >>> mean_interval([1.0, 1.0, 1.0])
        Estimate(estimate=1.0, low=1.0, high=1.0)
    """
    return _interval([values], np.mean, n_resamples=n_resamples, seed=seed)


def margin_interval(target: ArrayLike, noise: ArrayLike, *, n_resamples: int = N_RESAMPLES, seed: int = 0) -> Estimate:
    """Return the signed margin median(target) - median(noise) with its interval; images are resampled with both.

    Args:
        target: Similarity of each test image to its nearest image of the same class.
        noise: To its nearest image of another class.
        n_resamples: Of the test images.
        seed: Of the resamples.
    """
    return _interval([target, noise], _margin, n_resamples=n_resamples, seed=seed)


def margin_difference_interval(
    one: tuple[ArrayLike, ArrayLike],
    other: tuple[ArrayLike, ArrayLike],
    *,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Return by how much the margin of one model exceeds that of another, paired by test image.

    Args:
        one: Target and noise similarities, as `margin_interval` takes them.
        other: Those of the other model, of the same test images in the same order.
        n_resamples: Of the test images.
        seed: Of the resamples.
    """

    def difference(target: Values, noise: Values, other_target: Values, other_noise: Values, axis: int) -> Values:
        result: Values = _margin(target, noise, axis) - _margin(other_target, other_noise, axis)
        return result

    return _interval([*one, *other], difference, n_resamples=n_resamples, seed=seed)


def is_significant(difference: Estimate) -> bool:
    """Tell whether the interval of a difference leaves 0."""
    return difference.low > 0 or difference.high < 0


def _margin(target: Values, noise: Values, axis: int) -> Values:
    margin: Values = np.median(target, axis=axis) - np.median(noise, axis=axis)
    return margin


def _interval(samples: Sequence[ArrayLike], statistic: Callable[..., Any], *, n_resamples: int, seed: int) -> Estimate:
    arrays = [np.asarray(sample, dtype=np.float64) for sample in samples]
    lengths = {array.shape for array in arrays}
    if len(lengths) != 1 or arrays[0].ndim != 1 or not len(arrays[0]):
        got = ", ".join(str(array.shape) for array in arrays)
        raise InputValueError(checks.wording("bootstrap", "samples must be of one shape (n,) with n > 0", got))
    if not all(np.isfinite(array).all() for array in arrays):
        raise InputValueError(checks.wording("bootstrap", "samples must be finite", "NaN or inf"))
    estimate = float(statistic(*arrays, axis=-1))
    if all(np.ptp(array) == 0 for array in arrays):
        return Estimate(estimate, estimate, estimate)
    result = bootstrap(
        arrays,
        statistic,
        paired=True,
        vectorized=True,
        n_resamples=n_resamples,
        confidence_level=0.95,
        method="percentile",
        rng=np.random.default_rng(seed),
        batch=max(1, AT_ONCE // len(arrays[0])),
    )
    return Estimate(estimate, float(result.confidence_interval.low), float(result.confidence_interval.high))
