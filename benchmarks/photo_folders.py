"""Folders of photos for the benchmarks, made from CIFAR-10 because that is at hand: see the paragraph of each function.

No data set of large photos can be downloaded on the machines on which this is developed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

N_CLASSES = 5  # of a folder of enlarged images
PER_CLASS = 300
MOSAIC = 7  # images on each side of a mosaic


def enlarged_images(cifar10: Path, folder: Path, number: int) -> None:
    """Write class folders of enlarged images, half of them PNG and half JPEG, none square, of 48 to 341 px.

    Args:
        cifar10: The .npz of CIFAR-10.
        folder: Folder to make.
        number: Which images: folder 0 has the first 300 training images of each class, folder 1 the next 300, ...
    """
    with np.load(cifar10) as file:
        images, labels, names = (file[name] for name in ("train_images", "train_labels", "class_names"))
    generator = np.random.default_rng(number)
    for label in range(N_CLASSES):
        (folder / str(names[label])).mkdir(parents=True)
        chosen = np.flatnonzero(labels == label)[PER_CLASS * number : PER_CLASS * (number + 1)]
        for i, position in enumerate(chosen):
            width = int(generator.integers(64, 257))
            height = int(width * generator.uniform(0.75, 1.33))
            photo = Image.fromarray(images[position]).resize((width, height), Image.Resampling.BICUBIC)
            photo.save(folder / str(names[label]) / f"{i:03d}.{'png' if i % 2 else 'jpg'}", quality=90)


def mosaics(cifar10: Path, folder: Path, *, n_images: int) -> None:
    """Write class folders of JPEGs of 180 to 220 px, cut from mosaics of CIFAR-10 images of a class.

    They have as much detail as photos of that size: enlarged images would be smoother, and faster to decode.
    """
    with np.load(cifar10) as file:
        images, labels, names = (file[name] for name in ("train_images", "train_labels", "class_names"))
    generator = np.random.default_rng(0)
    for label, name in enumerate(names):
        (folder / str(name)).mkdir(parents=True)
        of_class = np.flatnonzero(labels == label)
        for i in range(n_images // len(names)):
            tiles = images[generator.choice(of_class, (MOSAIC, MOSAIC))]  # (rows, columns, 32, 32, 3)
            pixels = tiles.transpose(0, 2, 1, 3, 4).reshape(32 * MOSAIC, 32 * MOSAIC, 3)
            height, width = generator.integers(180, 221, 2)
            Image.fromarray(pixels[:height, :width]).save(folder / str(name) / f"{i:04d}.jpg", quality=90)


@contextmanager
def empty_cache() -> Iterator[Path]:
    """Let the package begin with an empty cache, which is removed afterwards."""
    before = os.environ.get("SINCERE_HOME")
    with tempfile.TemporaryDirectory() as home:
        os.environ["SINCERE_HOME"] = home
        try:
            yield Path(home)
        finally:
            if before is None:
                del os.environ["SINCERE_HOME"]
            else:
                os.environ["SINCERE_HOME"] = before
