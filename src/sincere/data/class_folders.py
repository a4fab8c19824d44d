"""Class folders of images: their files and the label of each file. Does not import torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sincere.checks import printable
from sincere.data.listing import FileList, file_list, files_below, join_lists
from sincere.errors import DataError

UNLABELLED = "unlabelled"  # name of the folder of training images whose class is not known


@dataclass(frozen=True, eq=False)
class LabelledFiles:
    """Image files in a fixed order.

    Attributes:
        part: Part of the data set: train, test or val.
        files: Paths of the files.
        labels: Class of each file (n,), -1 where it is not known; or label sets (n, L).
        ids: Id of each image: its position in the source.
        split: Random seed of the train/test split; None if the source has separate parts.
    """

    part: str
    files: FileList
    labels: NDArray[np.int64]
    ids: NDArray[np.int64]
    split: int | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, part: str, chosen: NDArray[np.int64], *, split: int) -> LabelledFiles:
        """Return some of the files as a separate part."""
        return LabelledFiles(part, self.files.subset(chosen), self.labels[chosen], self.ids[chosen], split)


def labelled_files(part: str, files: FileList, labels: Sequence[int] | NDArray[np.int64]) -> LabelledFiles:
    """Return a part with all images of its source; ids are counted from 0."""
    return LabelledFiles(part, files, np.asarray(labels, dtype=np.int64), np.arange(len(files), dtype=np.int64))


def folder_files(root: Path) -> FileList:
    """Return all files that `load_folder` loads.

    Raises:
        DataError: As `load_folder`.
    """
    first, *others = folder_parts(root)
    names, files = class_files(root, first)
    train = with_unlabelled(root, first, files).files
    return join_lists([train, *(class_files(root, part, names)[1].files for part in others)])


def with_unlabelled(root: Path, part: str, train: LabelledFiles, *, first_id: int | None = None) -> LabelledFiles:
    """Return the training files followed by those of `unlabelled/`, if there is one beside the class folders.

    Args:
        root: The data set.
        part: Part that has the class folders of training images; "" where these are at the top.
        train: Its labelled files.
        first_id: Id of the first file without a label; by default, that after the labelled ones.

    Raises:
        DataError: There is such a folder without images, or in a wrong place.
    """
    folder = root / part / UNLABELLED
    if part and (root / UNLABELLED).is_dir():
        raise DataError(f"{root / UNLABELLED}: belongs beside the class folders of training images; move it to {part}/")
    if not folder.is_dir():
        return train
    paths = files_below(root, os.path.join(part, UNLABELLED))
    if not paths:
        raise DataError(f"{folder}: folder without any image; add some, or remove it")
    start = len(train) if first_id is None else first_id
    return LabelledFiles(
        train.part,
        join_lists([train.files, file_list(root, paths)]),
        np.concatenate([train.labels, np.full(len(paths), -1)]),
        np.concatenate([train.ids, np.arange(start, start + len(paths))]),
        train.split,
    )


def folder_parts(root: Path) -> tuple[str, ...]:
    """Return the names of the parts, or one empty name where the class folders are at the top."""
    if not (root / "train").is_dir():
        return ("",)
    held_out = next((part for part in ("test", "val") if (root / part).is_dir()), None)
    if held_out is None:
        raise DataError(f"{root}: has train/ but neither test/ nor val/; add one, or put the class folders at the top")
    return ("train", held_out)


def class_files(root: Path, part: str, names: tuple[str, ...] | None = None) -> tuple[tuple[str, ...], LabelledFiles]:
    """Return class names and image files of a part, in a fixed order."""
    top = root / part
    try:
        folders = sorted(path for path in top.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError as error:
        raise DataError(f"{top}: cannot be read ({error.strerror})") from error
    if names is None:  # those of the training part
        folders = [folder for folder in folders if folder.name != UNLABELLED]
    elif (top / UNLABELLED) in folders:
        raise DataError(f"{top / UNLABELLED}: unlabelled images take part in training only; move it to train/")
    folder_names = [printable(folder.name) for folder in folders]
    if names is None:
        names = tuple(folder_names)
        if len(set(names)) < len(names):
            raise DataError(f"{top}: two class folders have the same name: {_first_duplicate(folder_names)}")
    if len(names) < 2:
        remedy = ""
        if not names and files_below(root, part):
            remedy = (
                "; its images lie directly in it: sort them into one folder for each class, or give the folder above"
            )
        raise DataError(f"{top}: at least two class folders are needed; got {len(names)}{remedy}")
    label_of = {name: label for label, name in enumerate(names)}
    paths, labels = list[bytes](), list[int]()
    for folder, name in zip(folders, folder_names, strict=True):
        if name not in label_of:
            raise DataError(f"{folder}: is a class that train/ does not have")
        if folder.is_symlink() and root.resolve().is_relative_to(folder.resolve()):
            raise DataError(f"{folder}: is a link to a folder that contains the data set itself; remove it")
        images = files_below(root, os.path.join(part, folder.name))
        if not images:
            raise DataError(f"{folder}: class folder without any image")
        paths += images
        labels += [label_of[name]] * len(images)
    if not paths:
        raise DataError(f"{top}: has no class folders; it needs those of train/")
    return names, labelled_files(top.name, file_list(root, paths), labels)


def _first_duplicate(names: list[str]) -> str:
    return next(name for name in names if names.count(name) > 1)


def has_class_folders(folder: Path) -> bool:
    """Return whether a folder has at least two folders in it, as a labelled data set has."""
    return sum(path.is_dir() and not path.name.startswith(".") for path in folder.iterdir()) >= 2
