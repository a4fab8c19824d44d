"""Counts of similarities in equal bins, whose width suits their range."""

from __future__ import annotations

import math
from dataclasses import dataclass

WIDEST = 0.02  # bin
MOST_BINS = 100  # that a range is divided into: [-1, 1] into bins of 0.02
HALVINGS = 10  # of the widest bin, at most


@dataclass(frozen=True)
class Histogram:
    """Counts in equal bins from `low` to `high`; what lies outside is counted in the first or the last."""

    low: float
    high: float
    counts: tuple[int, ...]


def bin_width(low: float, high: float) -> float:
    """Return the width of the bins for a range of similarities: 0.02, halved as often as needed for 50 to 100 bins.

    Halving makes the bins of a wide range unions of those of a narrow one, so that histograms can be drawn on one axis.

    Example:
        >>> bin_width(-1.0, 1.0), bin_width(0.9, 1.0)
        (0.02, 0.00125)
    """
    width = WIDEST
    for _ in range(HALVINGS):
        if math.ceil((high - low) / (width / 2)) > MOST_BINS:
            break
        width /= 2
    return width


def bin_range(low: float, high: float) -> tuple[float, float, int]:
    """Return the ends of the bins that cover a range of similarities within [-1, 1], and the number of bins.

    Example:
        >>> bin_range(0.9012, 0.9999)
        (0.9, 1.0, 80)
    """
    low, high = max(low, -1.0), min(high, 1.0)
    width = bin_width(low, high)
    # A hundredth of a bin forgives rounding: 0.9 is 720 bins of 0.00125, not 719 and a part.
    first, last = math.floor(low / width + 0.01), math.ceil(high / width - 0.01)
    last = max(last, first + 1)
    if last * width > 1 + width / 2:  # all of it at the upper end
        first, last = first - 1, last - 1
    return round(first * width, 12), round(last * width, 12), last - first
