"""Arrays of an .npz that someone else has made: which there are, and their content. Nothing is unpickled."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.lib.npyio import NpzFile

from sincere.data.named_arrays import NamedArray
from sincere.errors import DataError, first_line

IMAGES, FEATURES = "images", "features"
_TEXTS = ("labels", "names", "texts")  # ends of the names of arrays that may be strings


class Members(Protocol):
    """Arrays by name: an open .npz, or arrays that a caller has in hand."""

    @property
    def files(self) -> list[str]:
        """Names of the arrays."""
        ...

    def __getitem__(self, name: str, /) -> Any:
        """Return an array."""
        ...


@contextmanager
def open_npz(path: Path) -> Iterator[NpzFile]:
    """Open an .npz.

    Raises:
        DataError: It is none, or is damaged.
    """
    if not zipfile.is_zipfile(path):  # numpy would take it for a pickle
        remedy = "" if path.suffix.lower() == ".npz" else "; data are a folder of class folders, an .npz or a .parquet"
        raise DataError(f"{path}: is not a readable .npz (no zip archive){remedy}")
    try:
        file = np.load(path, allow_pickle=False)
    except Exception as error:  # on damaged files zlib, zipfile and numpy's header parser raise almost anything
        raise _unreadable(path, error) from error
    if not isinstance(file, NpzFile):  # an .npy with an archive behind it
        raise DataError(f"{path}: is not a readable .npz (one array, no archive of arrays)")
    with file:
        yield file


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(f"{path}: is not a readable .npz ({first_line(error)})")


def kind_of_samples(path: Path, members: list[str]) -> str:
    """Return whether an .npz with these arrays holds `IMAGES` or `FEATURES`.

    Raises:
        DataError: It holds both, or neither.
    """
    found = {kind: [name for name in members if name in _names(kind)] for kind in (IMAGES, FEATURES)}
    if found[IMAGES] and found[FEATURES]:
        both = f"has both images and features ({found[IMAGES][0]} and {found[FEATURES][0]})"
        raise DataError(f"{path}: {both}; keep one, because a model takes either")
    if not found[IMAGES] and not found[FEATURES]:
        wanted = "must have train_images or train_features, with train_labels"
        raise DataError(f"{path}: {wanted}; it has {', '.join(sorted(members)) or 'none'}")
    return FEATURES if found[FEATURES] else IMAGES


def _names(kind: str) -> tuple[str, ...]:
    return f"train_{kind}", f"test_{kind}", f"val_{kind}", kind


def part_prefixes(path: Path, members: list[str], kind: str) -> tuple[list[str], tuple[str, ...]]:
    """Return what the names of the arrays of each part begin with, and notes for the user.

    There are train and test, train and val, or a single part to be split.

    Raises:
        DataError: An array is missing, or it is not clear what texts belong to.
    """
    present, notes = set(members), tuple[str, ...]()
    train, test, val, single = ({f"{prefix}{kind}", f"{prefix}labels"} for prefix in ("train_", "test_", "val_", ""))
    if present & test:
        prefixes = ["train_", "test_"]
        if present & val:
            notes = (f"{path}: the arrays of the validation part are left out, because there is a test part",)
    elif present & val:
        prefixes = ["train_", "val_"]
    elif present & train and present & single:
        both = f"has train_{kind} or train_labels beside {kind} or labels, and no test part"
        raise DataError(f"{path}: {both}; keep one pair, or name the other test_{kind} and test_labels")
    else:
        prefixes = ["" if present & single else "train_"]
    for name in (f"{prefix}{end}" for prefix in prefixes for end in (kind, "labels")):
        if name not in present:
            raise DataError(f"{path}: array {name!r} is missing; it has {', '.join(sorted(present)) or 'none'}")
    if "texts" in present and "" not in prefixes:
        parts = " and ".join(f"{prefix}texts" for prefix in prefixes)
        raise DataError(f"{path}: array 'texts' must be split like the features, into {parts}")
    return prefixes, notes


def read_member(path: Path, file: Members, name: str) -> NamedArray:
    """Read an array.

    Raises:
        DataError: It is damaged, or holds Python objects.
    """
    try:
        values = file[name]
    except Exception as error:
        if isinstance(error, ValueError) and "allow_pickle" in str(error):
            requirement = "must be a plain array; got pickled objects, which are never loaded"
            remedy = f"Save {name}.astype(str)" if name.endswith(_TEXTS) else "Save numbers"
            raise DataError(f"{path}: {name} {requirement}. {remedy}") from error
        raise _unreadable(path, error) from error
    if not isinstance(values, np.ndarray):  # numpy hands out other members as bytes
        raise DataError(f"{path}: {name!r} is not an array")
    return NamedArray(path, name, values)


def read_optional(path: Path, file: Members, name: str) -> NamedArray | None:
    """Read an array if there is one; see `read_member`."""
    return read_member(path, file, name) if name in file.files else None
