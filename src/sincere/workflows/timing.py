"""Timing on a shared machine: all cases take turns, and ratios are computed within each round."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch


def time_in_turns(
    cases: Mapping[str, Callable[[], object]],
    *,
    seconds: float,
    warm_up: int = 2,
    least: int = 5,
    device: torch.device | None = None,
) -> dict[str, list[float]]:
    """Return milliseconds per case and round; every round runs each case once, for at least `seconds` in total.

    Args:
        cases: What to time.
        seconds: Shortest time of all rounds together.
        warm_up: Rounds before that.
        least: Smallest number of rounds.
        device: Where the cases compute; an accelerator's queue of work is waited for after each.
    """
    for _ in range(warm_up):
        for case in cases.values():
            case()
    times_ms: dict[str, list[float]] = {name: [] for name in cases}
    wait(device)
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline or len(next(iter(times_ms.values()))) < least:
        for name, case in cases.items():
            start = time.perf_counter()
            case()
            wait(device)
            times_ms[name].append((time.perf_counter() - start) * 1e3)
    return times_ms


def wait(device: torch.device | None) -> None:
    """Wait until a device has done its work."""
    if device is not None and device.type == "cuda":
        torch.cuda.synchronize(device)


def summary(times_ms: list[float]) -> dict[str, Any]:
    """Return the median and the quartiles."""
    low, median, high = statistics.quantiles(times_ms, n=4)
    return {"median_ms": median, "low_ms": low, "high_ms": high, "rounds": len(times_ms)}


def ratio(times_ms: list[float], other_ms: list[float]) -> float:
    """Return the median over rounds of other / this: how many times faster this is."""
    return statistics.median(other / this for this, other in zip(times_ms, other_ms, strict=True))
