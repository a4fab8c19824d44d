"""A folder of class folders: train/ with test/ or val/, or one tree that is split here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from sincere.data.dataset import Dataset
from sincere.data.files import LabelledFiles, files_dataset
from sincere.data.settings import LoadSettings
from sincere.data.splits import stratified_split
from sincere.errors import DataError

TEST_SHARE = 0.2


def load_folder(root: Path, settings: LoadSettings) -> Dataset:
    """Load class folders of images of any kind and size.

    Training images are kept at twice the input's size, so that crops have pixels to show; test images at its size.
    Decoded once, in parallel, into the cache; a changed file makes it anew. A set too large for the cache is decoded as
    it is read.

    Raises:
        DataError: No or one class, an empty class folder, a bad image (unless skipped), in one line.
    """
    parts = {part: root / part for part in ("train", "test", "val") if (root / part).is_dir()}
    if "train" in parts and len(parts) == 1:
        raise DataError(f"{root}: has train/ but neither test/ nor val/; add one, or put the class folders at the top")
    if "train" in parts:
        names, train = _listing(parts["train"])
        _, test = _listing(parts.get("test", parts.get("val", root)), names)
    else:
        names, files = _listing(root)
        train, test = (
            LabelledFiles([files.paths[i] for i in chosen], files.labels[chosen])
            for chosen in stratified_split(files.labels, TEST_SHARE, seed=settings.seed)
        )
    return files_dataset(root.resolve().name, root, train, test, names, settings)


def _listing(root: Path, names: tuple[str, ...] | None = None) -> tuple[tuple[str, ...], LabelledFiles]:
    """Return class names and image files in a fixed order."""
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    names = names or tuple(folder.name for folder in folders)
    if len(names) < 2:
        raise DataError(f"{root}: at least two class folders are needed; got {len(names)}")
    known = set(Image.registered_extensions())
    paths, labels = list[Path](), list[int]()
    for folder in folders:
        if folder.name not in names:
            raise DataError(f"{folder}: is a class that train/ does not have")
        images = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix.lower() in known)
        if not images:
            raise DataError(f"{folder}: class folder without any image")
        paths += images
        labels += [names.index(folder.name)] * len(images)
    return names, LabelledFiles(paths, np.asarray(labels, dtype=np.int64))
