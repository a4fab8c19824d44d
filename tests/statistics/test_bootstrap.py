"""The interval of a mean covers it as often as it says, and is reproducible."""

from __future__ import annotations

import numpy as np
import pytest

from sincere.statistics.bootstrap import mean_interval


def test_coverage() -> None:
    generator = np.random.default_rng(0)
    intervals = [mean_interval(generator.exponential(size=100), seed=i) for i in range(300)]
    covered = np.mean([low_high.low <= 1.0 <= low_high.high for low_high in intervals])
    assert 0.90 <= covered <= 0.98


def test_estimate_is_the_mean_itself() -> None:
    values = [1.0, 2.0, 6.0]
    interval = mean_interval(values)
    assert interval.estimate == pytest.approx(3.0)
    assert 1.0 <= interval.low < 3.0 < interval.high <= 6.0
    assert mean_interval(values) == interval
    spread = list(range(50))
    assert mean_interval(spread, seed=1) != mean_interval(spread, seed=2)


@pytest.mark.parametrize("values", [[2.5], [2.5, 2.5, 2.5]])
def test_no_spread(values: list[float]) -> None:
    interval = mean_interval(values)
    assert interval.estimate == interval.low == interval.high == 2.5
