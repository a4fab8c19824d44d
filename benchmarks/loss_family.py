"""`python -m benchmarks.loss_family CASE --data-dir DIR --out DIR`: all losses on the same data.

Cases: `digits` (three seeds, small network from scratch), `cifar10` and `cifar10-imbalance` (an adapter on frozen lite0
features, the second with long-tailed classes). Each is one `sincere compare`, with the defaults of the command but for
what CASES says: it resumes if it is interrupted. Writes the case into results/loss_family.json; nothing was tuned.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import sincere
from benchmarks.frozen import compact
from benchmarks.measure import RESULTS, machine
from sincere.loss_catalog import LOSSES

FROZEN = {"data": "cifar10", "encoder": "lite0", "freeze": True, "size": 96, "n_views": 2, "seeds": [0]}
CASES: dict[str, dict[str, Any]] = {
    "digits": {"data": "digits", "seeds": [0, 1, 2], "metrics": ["margin", "knn", "linear"]},
    "cifar10": {**FROZEN, "epochs": 5, "metrics": ["margin", "knn"]},
    "cifar10-imbalance": {**FROZEN, "imbalance": 100, "epochs": 10, "metrics": ["margin", "knn", "long-tail"]},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--data-dir", type=Path, help="folder of cifar10.npz")
    parser.add_argument("--out", type=Path, required=True, help="folder of the comparisons")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--losses", nargs="+", default=list(LOSSES), help="some first; the last call must have all")
    arguments = parser.parse_args()
    settings = CASES[arguments.case]
    where = {"data_dir": arguments.data_dir} if arguments.data_dir and settings["data"] != "digits" else {}
    results = sincere.compare(
        **settings, **where, losses=arguments.losses, threads=arguments.threads, out=arguments.out / arguments.case
    )
    path = RESULTS / "loss_family.json"
    stored = json.loads(path.read_text()) if path.exists() else {}
    stored[arguments.case] = {"machine": machine(), "settings": settings, **compact(results)}
    path.write_text(json.dumps(stored, indent=1) + "\n")
    print(path.name)


if __name__ == "__main__":
    main()
