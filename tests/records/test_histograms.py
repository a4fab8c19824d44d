"""Bins cover the range, and those of a wide range are unions of those of a narrow one."""

from __future__ import annotations

import pytest

from sincere.records.histograms import HALVINGS, MOST_BINS, WIDEST, bin_range, bin_width


@pytest.mark.parametrize(
    ("low", "high"), [(-1, 1), (0, 1), (0.9, 1), (0.9012, 0.9987), (0.99999, 1), (1, 1), (-1, -1), (0.3, 0.3), (-2, 2)]
)
def test_bins_cover_the_range(low: float, high: float) -> None:
    first, last, n = bin_range(low, high)
    assert -1 <= first <= max(low, -1)
    assert min(high, 1) <= last <= 1
    assert first < last
    assert 1 <= n <= MOST_BINS + 1
    assert (last - first) / n == pytest.approx(bin_width(max(low, -1), min(high, 1)))
    if high - low > 0.01:
        assert n >= MOST_BINS // 2


def test_widths_are_halves_of_one_another() -> None:
    widths = {bin_width(0.0, high) for high in (2.0, 1.0, 0.9, 0.5, 0.1, 0.03, 0.001, 0.0)}
    assert widths <= {WIDEST / 2**i for i in range(HALVINGS + 1)}
    assert len(widths) > 4
    assert bin_width(0.5, 0.5) == WIDEST / 2**HALVINGS
