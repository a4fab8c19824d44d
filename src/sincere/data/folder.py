"""A folder of class folders: train/ with test/ or val/, or one tree that is split here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from sincere.data.dataset import Dataset
from sincere.data.files import LabelledFiles, files_dataset, labelled_files
from sincere.data.settings import LoadSettings
from sincere.data.splits import stratified_split
from sincere.errors import DataError

TEST_SHARE = 0.2
_NO_PICTURES = {"BUFR", "GRIB", "HDF5", "MPEG", "PDF"}  # Pillow knows these names but has no pixels for them


def load_folder(root: Path, settings: LoadSettings, *, name: str | None = None) -> Dataset:
    """Load class folders of images of any kind and size.

    Training images are kept at twice the input's size, so that crops have pixels to show; test images at its size.
    Decoded once, in parallel, into the cache; a changed file makes it anew. A set too large for the cache is decoded as
    it is read. Without a `name` the data set has the folder's.

    Raises:
        DataError: No or one class, an empty class folder, a bad image (unless skipped), in one line.
    """
    name = name or root.resolve().name
    parts = {part: root / part for part in ("train", "test", "val") if (root / part).is_dir()}
    if "train" not in parts:
        names, files = _listing(root)
        train, test = _split(files, root, names, settings.seed)
        return files_dataset(name, root, train, test, names, settings)
    if len(parts) == 1:
        raise DataError(f"{root}: has train/ but neither test/ nor val/; add one, or put the class folders at the top")
    names, train = _listing(parts["train"])
    held_out = "test" if "test" in parts else "val"
    _, test = _listing(parts[held_out], names)
    notes = [f"val/ is not used, because there is test/: {parts['val']}"] if len(parts) == 3 else []
    absent = sorted(set(range(len(names))) - set(test.labels.tolist()))
    if absent:
        which = ", ".join(names[label] for label in absent[:5]) + (", ..." if len(absent) > 5 else "")
        notes.append(f"{held_out}/ has no images of {len(absent)} of {len(names)} classes: {which}")
    return files_dataset(name, root, train, test, names, settings, notes=tuple(notes))


def _listing(root: Path, names: tuple[str, ...] | None = None) -> tuple[tuple[str, ...], LabelledFiles]:
    """Return class names and image files in a fixed order."""
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    names = names or tuple(folder.name for folder in folders)
    if len(names) < 2:
        raise DataError(f"{root}: at least two class folders are needed; got {len(names)}")
    known = {suffix for suffix, kind in Image.registered_extensions().items() if kind in Image.OPEN}
    known -= {suffix for suffix, kind in Image.registered_extensions().items() if kind in _NO_PICTURES}
    paths, labels = list[Path](), list[int]()
    for folder in folders:
        if folder.name not in names:
            raise DataError(f"{folder}: is a class that train/ does not have")
        images = sorted(path for path in folder.rglob("*") if _is_image(path, folder, known))
        if not images:
            raise DataError(f"{folder}: class folder without any image")
        paths += images
        labels += [names.index(folder.name)] * len(images)
    if not paths:
        raise DataError(f"{root}: has no class folders; it needs those of train/")
    return names, labelled_files(root.name, paths, labels)


def _is_image(path: Path, folder: Path, known: set[str]) -> bool:
    hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
    return not hidden and path.suffix.lower() in known and path.is_file()


def _split(files: LabelledFiles, root: Path, names: tuple[str, ...], seed: int) -> tuple[LabelledFiles, LabelledFiles]:
    sizes = np.bincount(files.labels)
    if sizes.min() < 2:
        remedy = "add more, or put them into train/ and test/"
        raise DataError(f"{root / names[sizes.argmin()]}: a single image cannot be split in two parts; {remedy}")
    train, test = (
        LabelledFiles(part, [files.paths[i] for i in chosen], files.labels[chosen], files.ids[chosen], seed)
        for part, chosen in zip(("train", "test"), stratified_split(files.labels, TEST_SHARE, seed=seed), strict=True)
    )
    return train, test
