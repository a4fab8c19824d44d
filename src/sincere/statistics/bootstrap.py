"""Bootstrap intervals over test items, by SciPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import bootstrap

from sincere.records.estimates import Estimate


def mean_interval(values: ArrayLike, *, n_resamples: int = 1000, seed: int = 0) -> Estimate:
    """Return the mean of `values` with its 95% percentile interval.

    The estimate is the mean itself, not the mean of the resamples.

    Example:
        >>> mean_interval([1.0, 1.0, 1.0])
        Estimate(estimate=1.0, low=1.0, high=1.0)
    """
    sample = np.asarray(values, dtype=np.float64)
    mean = float(sample.mean())
    if len(sample) < 2 or np.ptp(sample) == 0:
        return Estimate(mean, mean, mean)
    result = bootstrap(
        (sample,),
        np.mean,
        n_resamples=n_resamples,
        confidence_level=0.95,
        method="percentile",
        rng=np.random.default_rng(seed),
        batch=max(1, 4_000_000 // len(sample)),
    )
    return Estimate(mean, float(result.confidence_interval.low), float(result.confidence_interval.high))
