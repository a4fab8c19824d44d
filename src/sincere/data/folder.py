"""Loads a folder of class folders, with train/ and test/ or val/ or split here; or a folder with a labels.csv."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sincere.checks import printable
from sincere.data.class_folders import LabelledFiles, class_files, folder_parts, with_unlabelled
from sincere.data.dataset import Dataset
from sincere.data.image_files import files_dataset
from sincere.data.labels_csv import has_labels_csv, listed_files
from sincere.data.load_options import LoadOptions
from sincere.data.splits import TEST_SHARE, stratified_split
from sincere.errors import DataError


def load_folder(root: Path, options: LoadOptions, *, name: str | None = None) -> Dataset:
    """Load class folders of images of any format and size, or images whose labels are in a labels.csv.

    A folder `unlabelled` beside the class folders of training images has images that take part in training only.

    Images are decoded once, in parallel, into the cache, and again when a file changes. A data set that is too large
    for the cache is decoded on every access. The default `name` is that of the folder.

    Raises:
        DataError: There are fewer than two classes, a class folder is empty, labels.csv is wrong, or an image is bad
            and not skipped.
    """
    name = name or printable(root.resolve().name)
    if has_labels_csv(root):
        listed = listed_files(root, seed=options.seed)
        return files_dataset(name, listed.train, listed.test, listed.label_names, options, notes=listed.notes)
    parts = folder_parts(root)
    if len(parts) == 1:
        names, files = class_files(root, "")
        train, test = _split(files, root, names, options.seed)
        train = with_unlabelled(root, "", train, first_id=len(files))
        return files_dataset(name, train, test, names, options)
    _, held_out = parts
    names, train = class_files(root, "train")
    _, test = class_files(root, held_out, names)
    train = with_unlabelled(root, "train", train)
    both = held_out == "test" and (root / "val").is_dir()
    notes = [f"val/ is not used, because there is a test/: {root / 'val'}"] if both else []
    absent = sorted(set(range(len(names))) - set(np.unique(test.labels).tolist()))
    if absent:
        which = ", ".join(names[label] for label in absent[:5]) + (", ..." if len(absent) > 5 else "")
        notes.append(f"{held_out}/ has no images of {len(absent)} of {len(names)} classes: {which}")
    return files_dataset(name, train, test, names, options, notes=tuple(notes))


def _split(files: LabelledFiles, root: Path, names: tuple[str, ...], seed: int) -> tuple[LabelledFiles, LabelledFiles]:
    sizes = np.bincount(files.labels)
    if sizes.min() < 2:
        remedy = "add more, or put them into train/ and test/"
        raise DataError(f"{root / names[sizes.argmin()]}: a single image cannot be split in two parts; {remedy}")
    chosen = stratified_split(files.labels, TEST_SHARE, seed=seed)
    train, test = (files.subset(part, rows, split=seed) for part, rows in zip(("train", "test"), chosen, strict=True))
    return train, test
