"""`python -m benchmarks.losses`: time and memory of one loss step, compared with other implementations in one run.

Writes results/losses.json; `python -m benchmarks.tables` turns it into docs/reference/benchmarks.md.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import psutil

from benchmarks.cases import LOSS_CASES
from benchmarks.measure import write
from benchmarks.memory import peak_extra_bytes
from sincere.workflows.loss_cases import buffers, make_batch
from sincere.workflows.timing import ratio, summary, time_in_turns

SIZES = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
D, N_CLASSES = 128, 100
OURS = ["tiled", "supcon-tiled"]
QUICK = [*OURS, "three-gemms", "tiled-value-only"]
SLOW = [name for name in LOSS_CASES if name not in QUICK]
# Matrices of n x n floats that a case holds at its peak, measured at n = 8,192; cases that will not fit are left out.
MATRICES = {"dense": 8, "supcon-dense": 6, "pytorch-metric-learning": 12, "three-gemms": 2}


def fits(name: str, n: int) -> bool:
    """Return whether the matrices of a case fit into three quarters of the available memory."""
    available: int = psutil.virtual_memory().available
    return MATRICES.get(name, 0) * n * n * 4 < 0.75 * available


def measure(n: int, seconds: float) -> dict[str, Any]:
    """Measure every case that fits at batch size n: the fast ones with many repetitions, the slow ones with fewer."""
    batch = make_batch(n, D, N_CLASSES)
    slow = [name for name in SLOW if fits(name, n)]
    times_ms: dict[str, list[float]] = {}
    faster: dict[str, dict[str, float]] = {name: {} for name in OURS}
    for names in (QUICK, [*OURS, *slow]):
        cases = {name: partial(LOSS_CASES[name], batch) for name in names}
        least = 20 if n <= 4096 else 7 if names is QUICK else 3
        rounds = time_in_turns(cases, seconds=seconds, warm_up=1 if n > 4096 else 5, least=least)
        times_ms = {**rounds, **times_ms}
        for ours in OURS:
            faster[ours].update({name: ratio(rounds[ours], t) for name, t in rounds.items() if name not in OURS})
    buffers.cache_clear()
    memory = {name: peak_extra_bytes(n, kernel=name, d=D, n_classes=N_CLASSES) for name in times_ms} if n >= 512 else {}
    return {
        "n": n,
        "cases": {name: {**summary(t), "peak_extra_bytes": memory.get(name)} for name, t in times_ms.items()},
        "left_out": sorted(set(SLOW) - set(slow)),
        "times_faster": faster,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="batch sizes n")
    parser.add_argument("--seconds", type=float, default=20.0, help="minimum time for each group of cases of a size")
    options = parser.parse_args()
    sizes = []
    for n in options.sizes:
        sizes.append(measure(n, options.seconds))
        faster = {name: round(x, 2) for name, x in sizes[-1]["times_faster"]["tiled"].items()}
        print(f"n = {n}: {sizes[-1]['cases']['tiled']['median_ms']:.2f} ms; times faster than {faster}", flush=True)
    path = write("losses", {"d": D, "n_classes": N_CLASSES, "sizes": sizes})
    print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
