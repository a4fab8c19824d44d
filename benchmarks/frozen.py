"""`python -m benchmarks.frozen --cifar10 FILE --out DIR`: losses on frozen lite0 features. Writes results/frozen.json.

CIFAR-10: `sincere compare --data cifar10.npz --freeze --seeds 0 1 2 3 4 --epochs 10`. Photos: 5 classes of 300 CIFAR-10
images, saved as PNG and JPEG files of sizes that vary, with the default settings of `sincere compare --data photos/`.
Both resume if they are interrupted, and are not repeated if they are done.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import sincere
from benchmarks.measure import write
from sincere.records.results import Results

N_PHOTOS, N_CLASSES = 300, 5


def make_photos(cifar10: Path, folder: Path) -> None:
    """Write class folders of enlarged images, half of them PNG and half JPEG, none square, of 48 to 341 px."""
    with np.load(cifar10) as file:
        images, labels, names = (file[name] for name in ("train_images", "train_labels", "class_names"))
    generator = np.random.default_rng(0)
    for label in range(N_CLASSES):
        (folder / str(names[label])).mkdir(parents=True)
        for number, position in enumerate(np.flatnonzero(labels == label)[:N_PHOTOS]):
            width = int(generator.integers(64, 257))
            height = int(width * generator.uniform(0.75, 1.33))
            photo = Image.fromarray(images[position]).resize((width, height), Image.Resampling.BICUBIC)
            photo.save(folder / str(names[label]) / f"{number:03d}.{'png' if number % 2 else 'jpg'}", quality=90)


def compact(results: Results, seconds: float) -> dict[str, Any]:
    """Return the table and the differences of a comparison."""
    return {
        "seeds": list(results.summaries[0].seeds),
        "n_train": results.data.n_train,
        "n_test": results.data.n_test,
        "summaries": [summary.model_dump(mode="json") for summary in results.summaries],
        "differences": [difference.model_dump(mode="json") for difference in results.differences],
        "training_seconds": {row.loss: row.seconds for row in results.rows if row.seed == 0},
        "seconds": seconds,
    }


def timed(**settings: Any) -> dict[str, Any]:
    """Return the table of a comparison, and how long this call took."""
    start = time.perf_counter()
    results = sincere.compare(**settings)
    return compact(results, time.perf_counter() - start)


def main() -> None:
    """Compare and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cifar10", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    photos = arguments.out / "photos"
    if not photos.exists():
        make_photos(arguments.cifar10, photos)
    results = {
        "photos": timed(data=photos, out=arguments.out / "photos-comparison"),
        "cifar10": timed(
            data=arguments.cifar10,
            freeze=True,
            seeds=[0, 1, 2, 3, 4],
            epochs=10,
            out=arguments.out / "cifar10-comparison",
        ),
    }
    print(write("frozen", results))


if __name__ == "__main__":
    main()
