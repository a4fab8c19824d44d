"""Objectives without training, whose best settings are known; and the processes that run them as workers.

`python -m tests.tuning.analytic ROLE STORAGE FOLDER LOG` runs a search, or helps with one, in a process of its own.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sincere
from sincere.records.search import SearchResults
from sincere.tuning import storage
from sincere.tuning.study import Report

BEST = {"temperature": 0.1, "learning_rate": 0.3}
GRID = ("temperature=0.02,0.05,0.1,0.2", "learning_rate=0.1,0.3,1.0")
N_EPOCHS = 8


def bowl(loss: str, settings: Mapping[str, Any], report: Report) -> float:
    """Return a value that is 0.95 at the best settings, and falls with the distance in the logarithm."""
    distance = sum(abs(math.log10(settings[name] / best)) for name, best in BEST.items() if name in settings)
    value = max(0.0, 0.95 - 0.3 * distance)
    for epoch in range(1, N_EPOCHS + 1):
        report(epoch, value * epoch / N_EPOCHS)
    return value


def run(out: Path, **settings: Any) -> SearchResults:
    """Search with this objective, unless another is given."""
    options: dict[str, Any] = {"objective": bowl, "losses": ["sincere"], "trials": 8, "quiet": True}
    found = sincere.search(**{**options, **settings}, out=out)
    assert found is not None
    return found


def main(role: str, address: str, folder: str, log: str) -> None:
    """Run trials that do not end before the file LOG.go is there; write a line when one starts and when it ends."""
    storage.HEARTBEAT_SECONDS, storage.GRACE_SECONDS = 1, 4

    def slow_bowl(loss: str, settings: Mapping[str, Any], report: Report) -> float:
        _append(log, f"start {os.getpid()} {dict(settings)}")
        while not Path(f"{log}.go").exists():
            time.sleep(0.02)
        value = bowl(loss, settings, report)
        _append(log, f"end {os.getpid()} {dict(settings)}")
        return value

    options: dict[str, Any] = {"storage": address, "study": "shared", "out": folder, "quiet": True}
    if role == "worker":
        sincere.search(objective=slow_bowl, worker=True, **options)
    else:
        sincere.search(objective=slow_bowl, losses=["sincere"], grid="space", space=GRID, **options)


def _append(path: str, line: str) -> None:
    with Path(path).open("a") as file:
        file.write(f"{line}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
