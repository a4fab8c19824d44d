"""A data set in one .npz: train_images (n, h, w, c) uint8, train_labels, test_images, test_labels, class_names."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sincere.data.dataset import Dataset, channel_statistics, check_dataset, image_set
from sincere.data.images import place_images
from sincere.data.settings import LoadSettings
from sincere.errors import DataError


def load_npz(path: Path, settings: LoadSettings) -> Dataset:
    """Load and check such a file. `class_names` is optional. Pickled objects are refused, never executed.

    Raises:
        DataError: What is missing or wrong, in one line.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except ValueError as error:
        if "pickle" in str(error).lower():
            raise DataError(f"{path}: holds pickled objects, which are refused; save plain arrays") from error
        raise DataError(f"{path}: is not a readable .npz ({error})") from error
    except (OSError, zipfile.BadZipFile, EOFError) as error:
        raise DataError(f"{path}: is not a readable .npz ({error})") from error
    for name in ("train_images", "train_labels", "test_images", "test_labels"):
        if name not in arrays:
            raise DataError(f"{path}: array {name!r} is missing; it has {', '.join(sorted(arrays)) or 'none'}")
    parts = {part: _check_part(path, part, arrays) for part in ("train", "test")}
    if parts["train"][0].shape[1:] != parts["test"][0].shape[1:]:
        shapes = " and ".join(str(images.shape[1:]) for images, _ in parts.values())
        raise DataError(f"{path}: train_images and test_images must be of one size; got {shapes}")
    n_classes = int(max(labels.max() for _, labels in parts.values())) + 1
    names = tuple(map(str, arrays.get("class_names", np.arange(n_classes)).tolist()))
    train, test = (image_set(place_images(images, settings.device), labels) for images, labels in parts.values())
    mean, std = channel_statistics(train)
    side, n_channels = parts["train"][0].shape[1], parts["train"][0].shape[3]
    augmentation = "paper" if n_channels == 3 else "light"
    return check_dataset(Dataset(path.stem, train, test, names, settings.size or side, mean, std, augmentation))


def _check_part(
    path: Path, part: str, arrays: dict[str, NDArray[np.generic]]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    images, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
    if images.dtype != np.uint8:
        raise DataError(f"{path}: {part}_images must be uint8; got {images.dtype}")
    if images.ndim != 4 or images.shape[3] not in (1, 3) or images.shape[1] != images.shape[2] or not images.size:
        requirement = "must have shape (n, h, w, c) with h = w and c = 1 or 3"
        raise DataError(f"{path}: {part}_images {requirement}; got {images.shape}")
    if not np.issubdtype(labels.dtype, np.integer) or labels.shape != images.shape[:1]:
        requirement = f"must be integers of shape ({len(images)},)"
        raise DataError(f"{path}: {part}_labels {requirement}; got {labels.dtype} of shape {labels.shape}")
    return images.astype(np.uint8, copy=False), labels.astype(np.int64)
