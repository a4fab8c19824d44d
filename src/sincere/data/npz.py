"""Loads a data set from an .npz: train_images (n, h, w, c), train_labels, test_images, test_labels, class_names."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sincere.data.dataset import Dataset, channel_statistics, check_dataset, image_set
from sincere.data.load_options import LoadOptions
from sincere.data.pixel_storage import place_images
from sincere.errors import DataError, first_line

Array = NDArray[np.generic]
_REQUIRED = ("train_images", "train_labels", "test_images", "test_labels")


def load_npz(path: Path, settings: LoadOptions) -> Dataset:
    """Load and check an .npz. `class_names` is optional. Pickled objects are refused, never executed.

    Raises:
        DataError: An array is missing or has a wrong type, shape or value.
    """
    arrays = _read(path)
    parts = {part: _check_part(path, part, arrays) for part in ("train", "test")}
    if parts["train"][0].shape[1:] != parts["test"][0].shape[1:]:
        shapes = " and ".join(str(images.shape[1:]) for images, _ in parts.values())
        raise DataError(f"{path}: train_images and test_images must be of one size; got {shapes}")
    names = _class_names(path, arrays.get("class_names"), [labels for _, labels in parts.values()])
    train, test = (image_set(place_images(images, settings.device), labels) for images, labels in parts.values())
    mean, std = channel_statistics(train)
    side, n_channels = parts["train"][0].shape[1], parts["train"][0].shape[3]
    augmentation = "paper" if n_channels == 3 else "light"
    return check_dataset(Dataset(path.stem, train, test, names, settings.size or side, mean, std, augmentation))


def _read(path: Path) -> dict[str, Array]:
    if not zipfile.is_zipfile(path):  # numpy would take it for a pickle
        raise DataError(f"{path}: is not a readable .npz (no zip archive)")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in (*_REQUIRED, "class_names") if name in file.files}
            contents = ", ".join(sorted(file.files)) or "none"
    except Exception as error:  # on damaged files zlib, zipfile and numpy's header parser raise almost anything
        if isinstance(error, ValueError) and "allow_pickle" in str(error):
            raise DataError(f"{path}: holds pickled objects, which are refused; save plain arrays") from error
        raise DataError(f"{path}: is not a readable .npz ({first_line(error)})") from error
    for name in _REQUIRED:
        if name not in arrays:
            raise DataError(f"{path}: array {name!r} is missing; it has {contents}")
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):  # numpy hands out other members as bytes
            raise DataError(f"{path}: {name!r} is not an array")
    return arrays


def _check_part(path: Path, part: str, arrays: dict[str, Array]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    images, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
    if images.dtype != np.uint8:
        raise DataError(f"{path}: {part}_images must be uint8; got {images.dtype}")
    if images.ndim != 4 or images.shape[3] not in (1, 3) or images.shape[1] != images.shape[2] or not images.size:
        requirement = "must have shape (n, h, w, c) with h = w and c = 1 or 3"
        raise DataError(f"{path}: {part}_images {requirement}; got {images.shape}")
    if not np.issubdtype(labels.dtype, np.integer) or labels.shape != images.shape[:1]:
        requirement = f"must be integers of shape ({len(images)},)"
        raise DataError(f"{path}: {part}_labels {requirement}; got {labels.dtype} of shape {labels.shape}")
    if int(labels.max()) > np.iinfo(np.int64).max:  # would turn negative
        raise DataError(f"{path}: {part}_labels must number the classes from 0; got {labels.max()}")
    return images.astype(np.uint8, copy=False), labels.astype(np.int64)


def _class_names(path: Path, given: Array | None, labels: list[NDArray[np.int64]]) -> tuple[str, ...]:
    """Return the class names in label order; the labels themselves if none are given."""
    highest = int(max(part.max() for part in labels))
    if given is None:
        if highest >= len(labels[0]):  # also keeps a stray label from allocating all memory
            requirement = "must number the classes from 0, each with a training image"
            raise DataError(f"{path}: labels {requirement}; got {highest} with {len(labels[0])} training images")
        return tuple(map(str, range(highest + 1)))
    if given.ndim != 1 or given.dtype.kind not in "US":
        got = f"{given.dtype} of shape {given.shape}"
        raise DataError(f"{path}: class_names must be strings of shape (classes,); got {got}")
    try:
        names = tuple(name.decode() if isinstance(name, bytes) else name for name in given.tolist())
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: class_names must be UTF-8; {first_line(error)}") from error
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise DataError(f"{path}: class_names must be different; got {duplicates[0]!r} more than once")
    if highest >= len(names):
        raise DataError(f"{path}: class_names must name every label; got {len(names)} names and label {highest}")
    return names
