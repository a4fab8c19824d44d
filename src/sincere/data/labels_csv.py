"""A folder of images with a labels.csv, where an image may have several labels. Does not import torch.

The first line of labels.csv is `file,labels` or `file,labels,split`, and there is one line for each image:

    file,labels,split
    beach/001.jpg,sea;sky,train
    002.jpg,dog,test
    003.jpg,,train

Labels are separated by ; or |. An image may have none. Without `split` the images are split here.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from sincere.checks import printable
from sincere.data.class_folders import LabelledFiles
from sincere.data.listing import file_list, files_below
from sincere.data.splits import TEST_SHARE, split_label_sets
from sincere.errors import DataError, first_line

LABELS_CSV = "labels.csv"
SEPARATORS = re.compile("[;|]")  # between the labels of an image
PARTS = ("train", "test")
MOST_NAMED = 3  # files in a note


@dataclass(frozen=True, eq=False)
class ListedFiles:
    """The images of a labels.csv.

    Attributes:
        train: Training images, with label sets (n, L).
        test: Test images.
        label_names: Names of the labels, sorted.
        notes: Notes for the user.
    """

    train: LabelledFiles
    test: LabelledFiles
    label_names: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Line:
    """A line of labels.csv: the labels of an image, and its part if there is a column for it."""

    labels: frozenset[str]
    part: str | None


def has_labels_csv(root: Path) -> bool:
    """Return whether the labels of a folder's images are in a labels.csv."""
    return (root / LABELS_CSV).is_file()


def listed_files(root: Path, *, seed: int) -> ListedFiles:
    """Return the images below a folder that its labels.csv lists, in order of their names; others get a note.

    Args:
        root: The folder.
        seed: Random seed of the train/test split, if labels.csv has none.

    Raises:
        DataError: labels.csv cannot be read, names a file that is not there or one twice, or a line is wrong.
    """
    path = root / LABELS_CSV
    found = {os.fsdecode(name): name for name in files_below(root)}
    lines = _read(path, found.keys())
    listed = [name for name in found if name in lines]
    label_names = sorted({label for line in lines.values() for label in line.labels})
    column = {label: i for i, label in enumerate(label_names)}
    labels = np.zeros((len(listed), len(label_names)), dtype=np.int64)
    for row, name in enumerate(listed):
        labels[row, [column[label] for label in lines[name].labels]] = 1
    files, ids = file_list(root, [found[name] for name in listed]), np.arange(len(listed), dtype=np.int64)
    notes = []
    if left_out := [name for name in found if name not in lines]:
        names = ", ".join(map(printable, left_out[:MOST_NAMED])) + (", ..." if len(left_out) > MOST_NAMED else "")
        notes.append(f"{path}: has no line for {len(left_out):,} of {len(found):,} images, which are left out: {names}")
    parts = [lines[name].part for name in listed]
    split: int | None = None
    if parts and parts[0] is None:
        rows, split = split_label_sets(labels, TEST_SHARE, seed=seed), seed
        counts = f"{len(rows[0]):,} images for training and {len(rows[1]):,} for testing"
        notes.append(f"{path}: has no column split; its images were split by rarest label into {counts} (seed {seed})")
    else:
        rows = np.flatnonzero([part == "train" for part in parts]), np.flatnonzero([part == "test" for part in parts])
    for part, chosen in zip(PARTS, rows, strict=True):
        if not len(chosen):
            raise DataError(f"{path}: the {part} part has no images")
    train, test = (
        LabelledFiles(part, files.subset(chosen), labels[chosen], ids[chosen], split)
        for part, chosen in zip(PARTS, rows, strict=True)
    )
    return ListedFiles(train, test, tuple(map(printable, label_names)), tuple(notes))


def _read(path: Path, known: Collection[str]) -> dict[str, _Line]:
    """Return the lines of labels.csv by file name, all of which must be known."""
    lines: dict[str, _Line] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            columns = [name.strip() for name in next(reader, [])]
            for name in ("file", "labels"):
                if columns.count(name) != 1:
                    got = printable(",".join(columns))
                    remedy = "Give it another name if the folders are the classes"
                    raise DataError(
                        f"{path}: the first line must be file,labels or file,labels,split; got {got}. {remedy}"
                    )
            for cells in reader:
                if not cells:  # an empty line
                    continue
                where = f"{path}: line {reader.line_num}"
                if len(cells) != len(columns):
                    requirement = f"must have {len(columns)} columns, with ; or | between labels"
                    raise DataError(f"{where} {requirement}; got {len(cells)}")
                row = dict(zip(columns, map(str.strip, cells), strict=True))
                name = str(PurePosixPath(row["file"]))
                if name not in known:
                    raise DataError(f"{where}: there is no image {printable(name)} below {path.parent}")
                if name in lines:
                    raise DataError(f"{where}: {printable(name)} has a line already; put all its labels in one line")
                part = row.get("split")
                if part is not None and part not in PARTS:
                    raise DataError(f"{where}: split must be train or test; got {printable(part) or 'nothing'}")
                labels = (label.strip() for label in SEPARATORS.split(row["labels"]))
                lines[name] = _Line(frozenset(filter(None, labels)), part)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read as CSV in UTF-8 ({first_line(error)})") from error
    return lines
