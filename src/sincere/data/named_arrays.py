"""Arrays with the names that messages give them, and labels in the forms that people have: integers or strings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from sincere import checks
from sincere.data.splits import TEST_SHARE, stratified_split
from sincere.errors import DataError, first_line

Array = NDArray[np.generic]
LONGEST_LABEL = 255  # characters: what the name of a class folder can have


@dataclass(frozen=True, eq=False)
class NamedArray:
    """An array of a file, or one that was given in Python.

    Attributes:
        path: Path of the file; what stands for it in messages, if there is none.
        name: Name of the array.
        values: The array.
    """

    path: Path
    name: str
    values: Array

    def refuse(self, requirement: str, got: object, remedy: str = "") -> DataError:
        """Return the error that says what the array must be."""
        return DataError(checks.wording(str(self.path), f"{self.name} {requirement}", got, remedy))


def check_labels(labels: NamedArray, n_samples: int) -> None:
    """Check that labels are integers or short strings, one for each sample.

    Raises:
        DataError: They are not.
    """
    values = labels.values
    kind = values.dtype.kind
    if kind not in "iuUS" or values.shape != (n_samples,):
        whole = kind == "f" and bool(np.isfinite(values).all()) and bool((values == np.rint(values)).all())
        remedy = f"Convert them with {labels.name}.astype(int)" if whole else ""
        if kind == "O":
            remedy = f"Convert them with {labels.name}.astype(str)"
        elif values.shape == (n_samples, 1):
            remedy = f"Flatten them with {labels.name}.ravel()"
        elif values.ndim == 2 and len(values) == n_samples:
            remedy = f"If each row is one-hot, convert them with {labels.name}.argmax(axis=1)"
        got = f"{values.dtype} of shape {values.shape}"
        raise labels.refuse(f"must be integers or strings of shape ({n_samples},)", got, remedy)
    if kind in "iu":
        if int(values.max()) > np.iinfo(np.int64).max:  # would turn negative
            raise labels.refuse("must number the classes from 0", values.max())
        return
    lengths = np.char.str_len(cast("NDArray[np.str_]", values))
    if lengths.max() > LONGEST_LABEL:
        raise labels.refuse(f"must have at most {LONGEST_LABEL} characters each", f"one of {lengths.max():,}")
    if lengths.min() == 0:
        raise labels.refuse("must not be empty strings", f"one at position {lengths.argmin()}")


def encode_labels(
    path: Path, parts: Sequence[NamedArray], class_names: NamedArray | None, *, noun: str = "image"
) -> tuple[list[NDArray[np.int64]], tuple[str, ...]]:
    """Return the labels of each part as indices into the class names, and these names.

    Integers are the indices. The classes of strings are `class_names`, or else the strings of all parts, sorted. `noun`
    is what messages call a sample.

    Raises:
        DataError: A label has no name, or the names are wrong.
    """
    given = None if class_names is None else _class_names(class_names)
    are_strings = [part.values.dtype.kind in "US" for part in parts]
    if any(are_strings) != all(are_strings):
        names = " and ".join(part.name for part in parts)
        types = " and ".join(str(part.values.dtype) for part in parts)
        raise DataError(f"{path}: {names} must both be integers or both be strings; got {types}")
    if not any(are_strings):
        labels = [part.values.astype(np.int64) for part in parts]
        return labels, _names_of_integers(path, labels, given, noun)
    found = [np.unique(part.values, return_inverse=True) for part in parts]
    texts = [decode(part, unique) for part, (unique, _) in zip(parts, found, strict=True)]
    present = sorted({text for part_texts in texts for text in part_texts})
    index = {name: label for label, name in enumerate(present if given is None else given)}
    for text in present:
        if text not in index:
            raise DataError(f"{path}: class_names must name every label; got none for {text!r}")
    encoded = [
        np.array([index[text] for text in part_texts], dtype=np.int64)[inverse]
        for part_texts, (_, inverse) in zip(texts, found, strict=True)
    ]
    return encoded, tuple(index)


def _names_of_integers(
    path: Path, labels: list[NDArray[np.int64]], given: tuple[str, ...] | None, noun: str
) -> tuple[str, ...]:
    """Return the class names in label order; the labels themselves if none are given."""
    highest = int(max(part.max() for part in labels))
    if given is None:
        if highest >= len(labels[0]):  # also keeps a stray label from allocating all memory
            requirement = f"must number the classes from 0, each with a training {noun}"
            raise DataError(f"{path}: labels {requirement}; got {highest} with {len(labels[0])} training {noun}s")
        return tuple(map(str, range(highest + 1)))
    if highest >= len(given):
        raise DataError(f"{path}: class_names must name every label; got {len(given)} names and label {highest}")
    return given


def _class_names(array: NamedArray) -> tuple[str, ...]:
    values = array.values
    if values.ndim != 1 or values.dtype.kind not in "US":
        raise array.refuse("must be strings of shape (classes,)", f"{values.dtype} of shape {values.shape}")
    names = decode(array, values)
    duplicates = sorted(name for name, count in Counter(names).items() if count > 1)
    if duplicates:
        raise array.refuse("must be different", f"{duplicates[0]!r} more than once")
    return names


def decode(array: NamedArray, values: Array) -> tuple[str, ...]:
    """Return strings of an array as text; bytes are UTF-8.

    Raises:
        DataError: They are not.
    """
    try:
        return tuple(text.decode() if isinstance(text, bytes) else text for text in values.tolist())
    except UnicodeDecodeError as error:
        raise DataError(f"{array.path}: {array.name} must be UTF-8; {first_line(error)}") from error


def split_by_class(
    labels: NamedArray,
    encoded: NDArray[np.int64],
    class_names: tuple[str, ...],
    *,
    seed: int,
    noun: str = "image",
    remedy: str,
) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64]], str]:
    """Return the positions of training and test samples of data without a test part, and a note for the user.

    Args:
        labels: Labels as they are stored.
        encoded: Labels as indices into the class names.
        class_names: Names of the classes.
        seed: Random seed of the split.
        noun: What messages call a sample.
        remedy: How a test part could be given.

    Raises:
        DataError: A class has a single sample, or a label is negative.
    """
    path = labels.path
    if encoded.min() < 0:
        raise labels.refuse("must number the classes from 0", encoded.min())
    classes, sizes = np.unique(encoded, return_counts=True)
    if sizes.min() < 2:
        single = f"class {class_names[classes[sizes.argmin()]]!r} has a single {noun}"
        raise DataError(f"{path}: {single}, which cannot be split in two parts; add more, or {remedy}")
    rest, held_out = stratified_split(encoded, TEST_SHARE, seed=seed)
    counts = f"{len(rest):,} {noun}s for training and {len(held_out):,} for testing"
    return (rest, held_out), f"{path}: has no test part; it was split by class into {counts} (seed {seed})"
