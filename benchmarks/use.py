"""`python -m benchmarks.use --cifar10 FILE --out DIR`: classifiers, geometry, unknown classes. Writes results/use.json.

SINCERE and SupCon with three seeds: CIFAR-10 with a frozen encoder, whole and without ship and truck, and the digits
without 8 and 9. It resumes if it is interrupted; a few minutes on two CPU cores once the features are cached.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import sincere
from benchmarks.frozen import compact
from benchmarks.measure import write

LOSSES, SEEDS = ("sincere", "supcon"), (0, 1, 2)
FROZEN = {"freeze": True, "epochs": 10}
CASES: dict[str, dict[str, Any]] = {
    "cifar10": FROZEN,
    "cifar10-unknown": {**FROZEN, "unknown_classes": ("ship", "truck")},
    "digits-unknown": {"data": "digits", "epochs": 20, "unknown_classes": ("8", "9")},
}


def main() -> None:
    """Compare and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cifar10", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    for name, options in CASES.items():
        settings = {"data": arguments.cifar10, **options}
        results = sincere.compare(losses=LOSSES, seeds=SEEDS, out=arguments.out / name, **settings)
        found[name] = {
            **compact(results),
            "epochs": options["epochs"],
            "n_unknown": results.data.n_unknown,
            "unknown_classes": list(options.get("unknown_classes", ())),
            "metrics": {key: about.model_dump(mode="json") for key, about in results.metrics.items()},
        }
    print(write("use", found))


if __name__ == "__main__":
    main()
