"""Small data sets in torchvision's own file formats."""

from __future__ import annotations

import hashlib
import itertools
import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat
from torchvision import datasets

CIFAR10_CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def make_cifar(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    names: list[str],
    key: str,
    *,
    n: int | None = None,
    n_files: int = 5,
) -> dict[str, np.ndarray]:
    """Write a small CIFAR in torchvision's format, and its checksums into torchvision's lists.

    Each of its files has `n` images, two of each class by default; there are up to `n_files` of training images.
    """
    n = 2 * len(names) if n is None else n
    tv = getattr(datasets, kind)
    generator = np.random.default_rng(0)
    folder = root / tv.base_folder
    folder.mkdir(parents=True)
    pixels: dict[str, np.ndarray] = {}

    def write(name: str, content: object) -> str:
        data = pickle.dumps(content)
        (folder / name).write_bytes(data)
        return hashlib.md5(data).hexdigest()

    for attribute in ("train_list", "test_list"):
        entries = []
        for name, _ in getattr(tv, attribute)[:n_files]:
            pixels[name] = generator.integers(0, 256, (n, 3072), dtype=np.uint8)
            labels = [i % len(names) for i in range(n)]
            entries.append([name, write(name, {"data": pixels[name], key: labels})])
        monkeypatch.setattr(tv, attribute, entries)
    meta = {**tv.meta, "md5": write(tv.meta["filename"], {tv.meta["key"]: names})}
    monkeypatch.setattr(tv, "meta", meta)
    return pixels


def make_fashion_mnist(root: Path) -> None:
    raw = root / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for part, n in (("train", 30), ("t10k", 20)):
        images = np.full((n, 28, 28), 7, dtype=np.uint8)
        (raw / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, n, 28, 28) + images.tobytes())
        labels = (np.arange(n) % 10).astype(np.uint8)
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, n) + labels.tobytes())


def picture(path: Path, shade: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (30 + shade % 7, 24), (shade, 10, 200)).save(path, quality=98)


def make_pets(root: Path) -> None:
    base = root / "oxford-iiit-pet"
    (base / "annotations").mkdir(parents=True)
    for split, numbers in (("trainval", (1, 2)), ("test", (3,))):
        lines = [f"{breed}_{i} {c + 1} 1 1" for c, breed in enumerate(("basset_hound", "Sphynx")) for i in numbers]
        (base / "annotations" / f"{split}.txt").write_text("\n".join(lines) + "\n")
        for line in lines:
            picture(base / "images" / f"{line.split()[0]}.jpg", 50)


def make_dtd(root: Path) -> None:
    base = root / "dtd" / "dtd"
    (base / "labels").mkdir(parents=True)
    for split, numbers in (("train", (1, 2)), ("val", (3,)), ("test", (4,))):
        names = [f"{c}/{c}_{i}.jpg" for c in ("banded", "woven") for i in numbers]
        (base / "labels" / f"{split}1.txt").write_text("\n".join(names) + "\n")
        for name in names:
            picture(base / "images" / name, 50)


def make_aircraft(root: Path) -> None:
    base = root / "fgvc-aircraft-2013b" / "data"
    base.mkdir(parents=True)
    (base / "variants.txt").write_text("A300\nBoeing 717\n")
    for split, numbers in (("trainval", (1, 2)), ("test", (3,))):
        lines = [f"{c}{i} {name}" for c, name in enumerate(("A300", "Boeing 717")) for i in numbers]
        (base / f"images_variant_{split}.txt").write_text("\n".join(lines) + "\n")
        for line in lines:
            picture(base / "images" / f"{line.split()[0]}.jpg", 50)


def make_food(root: Path) -> None:
    base = root / "food-101"
    (base / "meta").mkdir(parents=True)
    for split, numbers in (("train", (1, 2)), ("test", (3,))):
        names = {dish: [f"{dish}/{i}" for i in numbers] for dish in ("apple_pie", "waffles")}
        (base / "meta" / f"{split}.json").write_text(json.dumps(names))
        for name in itertools.chain(*names.values()):
            picture(base / "images" / f"{name}.jpg", 50)


def make_flowers(root: Path) -> None:
    base = root / "flowers-102"
    for i in range(1, 9):
        picture(base / "jpg" / f"image_{i:05d}.jpg", 50)
    savemat(base / "setid.mat", {"trnid": [1, 2, 3, 4], "valid": [5, 6], "tstid": [7, 8]})
    savemat(base / "imagelabels.mat", {"labels": [1, 2, 1, 2, 1, 2, 1, 2]})


def make_cars(root: Path) -> None:
    base = root / "stanford_cars"
    (base / "devkit").mkdir(parents=True)
    kind = [("fname", object), ("class", object)]
    for part, path in (
        ("train", base / "devkit" / "cars_train_annos.mat"),
        ("test", base / "cars_test_annos_withlabels.mat"),
    ):
        rows = [(f"{i}.jpg", i % 2 + 1) for i in range(4 if part == "train" else 2)]
        savemat(path, {"annotations": np.array(rows, dtype=kind)})
        for name, _ in rows:
            picture(base / f"cars_{part}" / name, 50)
    savemat(base / "devkit" / "cars_meta.mat", {"class_names": np.array(["AM General", "Acura"], dtype=object)})


MAKERS: dict[str, tuple[Callable[[Path], None], str]] = {
    "pets": (make_pets, "Basset Hound"),
    "dtd": (make_dtd, "banded"),
    "aircraft": (make_aircraft, "A300"),
    "food101": (make_food, "apple_pie"),
    "flowers102": (make_flowers, "pink primrose"),
    "cars": (make_cars, "AM General"),
}


def allow_made_flowers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torchvision read made Flowers-102, whose checksums and number of classes it would refuse."""
    monkeypatch.setattr(datasets.Flowers102, "_check_integrity", lambda self: True)
    monkeypatch.setattr(datasets.Flowers102, "classes", ["pink primrose", "orchid"])
