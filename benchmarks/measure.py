"""Timing on a shared machine: all cases take turns, and ratios are computed within each round."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import torch

RESULTS = Path(__file__).parent / "results"


def time_in_turns(
    cases: Mapping[str, Callable[[], object]], *, seconds: float, warm_up: int = 2, least: int = 5
) -> dict[str, list[float]]:
    """Return milliseconds per case and round; every round runs each case once, for at least `seconds` in total."""
    for _ in range(warm_up):
        for case in cases.values():
            case()
    times_ms: dict[str, list[float]] = {name: [] for name in cases}
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline or len(next(iter(times_ms.values()))) < least:
        for name, case in cases.items():
            start = time.perf_counter()
            case()
            times_ms[name].append((time.perf_counter() - start) * 1e3)
    return times_ms


def summary(times_ms: list[float]) -> dict[str, float | int]:
    """Return the median and the quartiles."""
    low, median, high = statistics.quantiles(times_ms, n=4)
    return {"median_ms": median, "low_ms": low, "high_ms": high, "rounds": len(times_ms)}


def ratio(times_ms: list[float], other_ms: list[float]) -> float:
    """Return the median over rounds of other / this: how many times faster this is."""
    return statistics.median(other / this for this, other in zip(times_ms, other_ms, strict=True))


def machine() -> dict[str, Any]:
    """Return what the measurements depend on: CPU, threads, memory, versions; no host names, no paths."""
    info = Path("/proc/cpuinfo")
    models = (
        [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.exists()
        else []
    )
    packages = ("torch", "torchvision", "kornia", "pytorch-metric-learning", "faiss-cpu")
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "python": platform.python_version(),
        "system": sys.platform,
        "versions": {name: importlib.metadata.version(name) for name in packages},
        "date": datetime.now(UTC).date().isoformat(),
    }


def write(name: str, results: dict[str, Any]) -> Path:
    """Write results/<name>.json: the measurements and the machine."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), **results}, indent=1) + "\n")
    return path
