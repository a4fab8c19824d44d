"""A data set of ready-made features, from arrays: checked, converted to float32, and split if there is no test part."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from sincere.data.dataset import Dataset, Samples, all_samples, check_dataset
from sincere.data.feature_storage import Features
from sincere.data.load_options import LoadOptions
from sincere.data.named_arrays import NamedArray, check_labels, decode, encode_labels, split_by_class
from sincere.data.pixel_storage import fits_in_memory
from sincere.errors import DataError

LARGEST = 1e30  # of a feature: dropout scales features up, in float32
CHUNK_VALUES = 1 << 20  # features that are converted at a time
LONGEST_TEXT = 200  # characters that are kept of a text, for the report
NOUN = "sample"
_TYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_ADD_TEST = "add test_features and test_labels"

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class FeaturePart:
    """The training or the test part, or both in one.

    Attributes:
        features: Features (n, d).
        labels: Class of each sample (n,), integers or strings; or label sets (n, L) of 0 and 1.
        texts: A text or path for each sample (n,), shown in the report; None without.
    """

    features: NamedArray
    labels: NamedArray
    texts: NamedArray | None = None


def features_dataset(
    name: str,
    train: FeaturePart,
    test: FeaturePart | None = None,
    *,
    class_names: NamedArray | None = None,
    rows: tuple[Rows, Rows] | None = None,
    notes: tuple[str, ...] = (),
    remedy: str = _ADD_TEST,
    options: LoadOptions,
) -> Dataset:
    """Return the data set of some features, after all checks.

    Features of any type are converted to float32; float32 arrays are not copied.

    Args:
        name: Name of the data set.
        train: Training part; without `test`, both parts.
        test: Test part.
        class_names: Names of the classes; without, they are the labels.
        rows: Positions of training and of test samples in `train`, if `test` is None; without either, `train` is split,
            stratified by class, and a note says so.
        notes: Notes for the user.
        remedy: How a test part could be given, for messages.
        options: `seed` of the split, and the device that holds the features if they fit into its memory.

    Raises:
        DataError: An array has a wrong type, shape or value; the message names it and the row.
    """
    parts = [train] if test is None else [train, test]
    for part in parts:
        _check_shape(part)
    widths = [part.features.values.shape[1] for part in parts]
    if len(set(widths)) > 1:
        arrays = " and ".join(part.features.name for part in parts)
        got = f"{widths[0]:,} and {widths[1]:,}"
        raise DataError(f"{train.features.path}: {arrays} must have the same number of features; got {got}")
    stored = [part.labels for part in parts]
    if rows is not None:  # a class may occur only in rows that are left out
        stored = [replace(train.labels, values=train.labels.values[chosen]) for chosen in rows]
    labels, names = encode_labels(train.labels.path, stored, class_names, noun=NOUN)
    if test is None and rows is None:  # before features are converted: a class may be too small
        rows, note = split_by_class(train.labels, labels[0], names, seed=options.seed, noun=NOUN, remedy=remedy)
        labels, notes = [labels[0][chosen] for chosen in rows], (*notes, note)
    items = [_placed(part.features, options) for part in parts]
    texts = [None if part.texts is None else _shortened(part.texts) for part in parts]
    if rows is None:
        samples = [
            replace(all_samples(values, encoded), texts=shown)
            for values, encoded, shown in zip(items, labels, texts, strict=True)
        ]
    else:
        samples = [
            Samples(items[0], encoded, chosen, chosen, texts=None if texts[0] is None else texts[0][chosen])
            for chosen, encoded in zip(rows, labels, strict=True)
        ]
    return check_dataset(
        Dataset(name, samples[0], samples[1], names, size=0, mean=(), std=(), augmentation="none", notes=notes)
    )


def _check_shape(part: FeaturePart) -> None:
    features, texts = part.features, part.texts
    shape, kind, name = features.values.shape, features.values.dtype.name, features.name
    if kind not in _TYPES:
        raise features.refuse("must be numbers", kind)
    if len(shape) != 2:
        remedy = f"Flatten the features of a sample with {name}.reshape(len({name}), -1)" if len(shape) > 2 else ""
        raise features.refuse("must have shape (n, d)", shape, remedy)
    if not features.values.size:
        raise features.refuse("must not be empty", f"shape {shape}")
    check_labels(part.labels, shape[0])
    if texts is not None and (texts.values.dtype.kind not in "US" or texts.values.shape != shape[:1]):
        got = f"{texts.values.dtype} of shape {texts.values.shape}"
        raise texts.refuse(f"must be strings of shape ({shape[0]},)", got)


def _placed(features: NamedArray, options: LoadOptions) -> Features:
    values = torch.from_numpy(finite_float32(features))
    if fits_in_memory(values.numel() * values.element_size(), options.device):
        values = values.to(options.device)
    return Features(values)


def finite_float32(array: NamedArray, *, first_row: int = 0) -> NDArray[np.float32]:
    """Return features as float32; float32 arrays that can be written to are returned as they are.

    Args:
        array: Features (n, d).
        first_row: Number of the first row, for messages.

    Raises:
        DataError: A value is not finite, or too large for computing in float32.
    """
    values = array.values
    as_is = values.dtype == np.float32 and values.flags.c_contiguous and values.flags.writeable  # what torch can share
    result = values.astype(np.float32, copy=False) if as_is else np.empty(values.shape, dtype=np.float32)
    step = max(1, CHUNK_VALUES // max(1, values.shape[1]))
    for start in range(0, len(values), step):
        block = result[start : start + step]
        if not as_is:
            with np.errstate(over="ignore"):  # refused below
                block[...] = values[start : start + step]
        right = np.abs(block) <= LARGEST
        if not right.all():
            row, column = np.argwhere(~right)[0]
            value = values[start + row, column]
            requirement = f"must be from {-LARGEST:g} to {LARGEST:g}" if np.isfinite(value) else "must be finite"
            raise array.refuse(requirement, f"{value} in row {first_row + start + row}, column {column}")
    return result


def _shortened(texts: NamedArray) -> NDArray[np.str_]:
    """Return texts of at most `LONGEST_TEXT` characters."""
    decoded = decode(texts, texts.values)
    return np.array([text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…" for text in decoded])
