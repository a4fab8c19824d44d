"""Estimates with their uncertainty."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """An estimate with its 95% confidence interval, from `low` to `high`."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class MonteCarlo:
    """A mean of independent draws and its standard error, 0 where the value is exact."""

    estimate: float
    standard_error: float
