"""`python -m benchmarks.frozen --cifar10 FILE --out DIR`: losses on frozen lite0 features. Writes results/frozen.json.

CIFAR-10: `sincere compare --data cifar10.npz --freeze --seeds 0 1 2 3 4`. Photos: five folders of 5 classes with 300
CIFAR-10 images each, saved as PNG and JPEG files of sizes that vary, each with the default settings of `sincere compare
--data photos/` and an empty cache. CIFAR-10 takes over an hour; it resumes if it is interrupted, and is not repeated.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import sincere
from benchmarks.measure import write
from benchmarks.photo_folders import empty_cache, enlarged_images
from sincere.records.results import Results

N_FOLDERS = 5  # of photos, with different images


def compact(results: Results) -> dict[str, Any]:
    """Return the table and the differences of a comparison."""
    return {
        "seeds": list(results.summaries[0].seeds),
        "n_train": results.data.n_train,
        "n_test": results.data.n_test,
        "summaries": [summary.model_dump(mode="json") for summary in results.summaries],
        "differences": [difference.model_dump(mode="json") for difference in results.differences],
        "training_seconds": {row.loss: row.seconds for row in results.rows if row.seed == 0},
    }


def photo_comparison(cifar10: Path, out: Path, number: int) -> dict[str, Any]:
    """Return the comparison on one of the folders of photos, and how long it took, features included."""
    folder, comparison = out / f"photos-{number}", out / f"photos-{number}-comparison"
    if not folder.exists():
        enlarged_images(cifar10, folder, number)
    with empty_cache():
        start = time.perf_counter()
        results = sincere.compare(data=folder, out=comparison, overwrite=True)
        return {**compact(results), "seconds": time.perf_counter() - start}


def main() -> None:
    """Compare and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cifar10", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    photos = [photo_comparison(arguments.cifar10, arguments.out, number) for number in range(N_FOLDERS)]
    comparison = arguments.out / "cifar10-comparison"
    cifar10 = sincere.compare(data=arguments.cifar10, freeze=True, seeds=[0, 1, 2, 3, 4], out=comparison)
    results = {"photos": photos, "cifar10": compact(cifar10)}
    print(write("frozen", results))


if __name__ == "__main__":
    main()
