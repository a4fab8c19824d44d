"""Counts of similarities in equal bins."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Histogram:
    """Counts in equal bins from `low` to `high`; what lies outside is counted in the first or the last."""

    low: float
    high: float
    counts: tuple[int, ...]
