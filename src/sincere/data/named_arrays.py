"""Arrays with the names that messages give them, and labels in the forms that people have: integers, strings, sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from sincere import checks
from sincere.data.splits import TEST_SHARE, split_label_sets, stratified_split
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
    """Check that labels are integers or short strings, one for each sample, or label sets (n, L) of 0 and 1.

    Raises:
        DataError: They are not.
    """
    values = labels.values
    kind = values.dtype.kind
    if _are_label_sets(labels) and len(values) == n_samples:
        right = (values == 0) | (values == 1)
        if not right.all():
            requirement = f"of shape {values.shape} must be 0 or 1, whether a sample has each label"
            raise labels.refuse(requirement, values[~right][0], f"One label per sample has shape ({n_samples},)")
        return
    if kind not in "iuUS" or values.shape != (n_samples,):
        whole = kind == "f" and bool(np.isfinite(values).all()) and bool((values == np.rint(values)).all())
        remedy = f"Convert them with {labels.name}.astype(int)" if whole else ""
        if kind == "O":
            remedy = f"Convert them with {labels.name}.astype(str)"
        elif values.shape == (n_samples, 1):
            remedy = f"Flatten them with {labels.name}.ravel()"
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


def _are_label_sets(labels: NamedArray) -> bool:
    """Return whether an array of labels has a row of numbers for each sample, one for each label."""
    return labels.values.ndim == 2 and labels.values.shape[1] > 1 and labels.values.dtype.kind in "biuf"


def encode_labels(
    path: Path, parts: Sequence[NamedArray], class_names: NamedArray | None, *, noun: str = "image"
) -> tuple[list[NDArray[np.int64]], tuple[str, ...]]:
    """Return the labels of each part as indices into the class names, and these names.

    Integers are the indices. The classes of strings are `class_names`, or else the strings of all parts, sorted. Label
    sets (n, L) stay as they are. `noun` is what messages call a sample.

    Raises:
        DataError: A label has no name, or the names are wrong.
    """
    given = None if class_names is None else _class_names(class_names)
    if any(map(_are_label_sets, parts)):
        return _label_sets(path, parts, given)
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


def without_unused(parts: Sequence[NamedArray], class_names: NamedArray) -> tuple[list[NamedArray], NamedArray]:
    """Return integer labels (n,) and class names without the names that no label has; -1 stays "no label".

    Labels without a name leave everything as it is, for `encode_labels` to refuse.
    """
    labels = [part.values.astype(np.int64) for part in parts]
    used = np.unique(np.concatenate(labels))
    used = used[used >= 0]
    if len(used) and used[-1] >= len(class_names.values):
        return list(parts), class_names
    numbers = [np.where(values < 0, values, np.searchsorted(used, values)) for values in labels]
    kept = [replace(part, values=values) for part, values in zip(parts, numbers, strict=True)]
    return kept, replace(class_names, values=class_names.values[used])


def _label_sets(
    path: Path, parts: Sequence[NamedArray], given: tuple[str, ...] | None
) -> tuple[list[NDArray[np.int64]], tuple[str, ...]]:
    """Return label sets of each part, and the names of the labels; their numbers if none are given."""
    shapes = [part.values.shape for part in parts]
    if len({shape[1:] for shape in shapes}) > 1:
        names, got = (" and ".join(map(str, of)) for of in ((part.name for part in parts), shapes))
        raise DataError(f"{path}: {names} must have the same number of labels; got shapes {got}")
    n_labels = shapes[0][1]
    if given is not None and len(given) != n_labels:
        raise DataError(f"{path}: class_names must name the {n_labels} labels; got {len(given)} names")
    return [part.values.astype(np.int64) for part in parts], given or tuple(map(str, range(n_labels)))


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
        DataError: A class has a single sample, no two label sets can be split, or a label is negative.
    """
    path = labels.path
    if encoded.ndim == 2:
        rest, held_out = split_label_sets(encoded, TEST_SHARE, seed=seed)
        if not len(held_out):
            raise DataError(f"{path}: no label has two {noun}s to be split in two parts; add more, or {remedy}")
        return (rest, held_out), _split_note(path, "rarest label", rest, held_out, noun, seed)
    if encoded.min() < -1 or encoded.max() < 0:
        raise labels.refuse("must number the classes from 0, or be -1 for no label", encoded.min())
    labelled = np.flatnonzero(encoded >= 0)
    classes, sizes = np.unique(encoded[labelled], return_counts=True)
    if sizes.min() < 2:
        single = f"class {class_names[classes[sizes.argmin()]]!r} has a single {noun}"
        raise DataError(f"{path}: {single}, which cannot be split in two parts; add more, or {remedy}")
    held_out = labelled[stratified_split(encoded[labelled], TEST_SHARE, seed=seed)[1]]
    rest = np.setdiff1d(np.arange(len(encoded)), held_out)  # with all that have no label
    return (rest, held_out), _split_note(path, "class", rest, held_out, noun, seed)


def _split_note(path: Path, by: str, rest: NDArray[np.int64], held_out: NDArray[np.int64], noun: str, seed: int) -> str:
    counts = f"{len(rest):,} {noun}s for training and {len(held_out):,} for testing"
    return f"{path}: has no test part; it was split by {by} into {counts} (seed {seed})"
