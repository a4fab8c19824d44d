"""Loads a data set from an .npz of images and labels, with a train and a test part or without, and class names."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from sincere.data.dataset import Dataset, ImageSet, channel_statistics, check_dataset, image_set
from sincere.data.load_options import LoadOptions
from sincere.data.npz_arrays import NamedArray, channels_last, check_labels, encode_labels, square_pixels
from sincere.data.pixel_storage import Pixels, place_images
from sincere.data.splits import TEST_SHARE, stratified_split
from sincere.errors import DataError, first_line

_TRAIN, _TEST, _SINGLE = ("train_images", "train_labels"), ("test_images", "test_labels"), ("images", "labels")


def load_npz(path: Path, settings: LoadOptions) -> Dataset:
    """Load and check an .npz. `class_names` is optional. Pickled objects are refused, never executed.

    Images are uint8, other integers from 0 to 255, or floats from 0 to 1, (n, h, w, c) or (n, c, h, w); of images that
    are not square, the centre square is kept, as for image files. Labels are integers or strings. A file without test
    arrays is split as a folder is.

    Raises:
        DataError: An array is missing or has a wrong type, shape or value.
    """
    with _open(path) as file:
        arrays = _part_arrays(path, file.files)
        given = _read(path, file, "class_names") if "class_names" in file.files else None
        parts = [_read_part(path, file, images, labels) for images, labels in arrays]
    shapes = [shape for _, shape, _ in parts]
    if len(set(shapes)) > 1:
        raise DataError(f"{path}: train_images and test_images must be of one size; got {shapes[0]} and {shapes[1]}")
    labels, names = encode_labels(path, [part_labels for _, _, part_labels in parts], given)
    height, width, n_channels = shapes[0]
    side, notes = min(height, width), list[str]()
    if height != width:
        kept = f"the centre {side} x {side} px are kept, as for image files"
        notes.append(f"{path}: images are {height} x {width} px (height x width); {kept}")
    if len(parts) == 1:  # split before the pixels are copied: a class may be too small
        rows = _split(path, labels[0], names, arrays[0][1], settings.seed)
        counts = f"{len(rows[0]):,} images for training and {len(rows[1]):,} for testing"
        notes.append(f"{path}: has no test part; it was split by class into {counts} (seed {settings.seed})")
        whole = _placed(parts[0][0], labels[0], settings)
        train, test = whole.subset(rows[0]), whole.subset(rows[1])
    else:
        train, test = (_placed(part[0], part_labels, settings) for part, part_labels in zip(parts, labels, strict=True))
    mean, std = channel_statistics(train)
    augmentation = "paper" if n_channels == 3 else "light"
    size = settings.size or side
    return check_dataset(Dataset(path.stem, train, test, names, size, mean, std, augmentation, notes=tuple(notes)))


@contextmanager
def _open(path: Path) -> Iterator[NpzFile]:
    if not zipfile.is_zipfile(path):  # numpy would take it for a pickle
        raise DataError(f"{path}: is not a readable .npz (no zip archive)")
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


def _part_arrays(path: Path, members: list[str]) -> list[tuple[str, str]]:
    """Return the names of images and labels of each part: train and test, or a single one that is to be split."""
    present = set(members)
    if present & {*_TEST}:
        parts = [_TRAIN, _TEST]
    elif present & {*_TRAIN} and present & {*_SINGLE}:
        both = "has train_images or train_labels beside images or labels, and no test part"
        raise DataError(f"{path}: {both}; keep one pair, or name the other test_images and test_labels")
    else:
        parts = [_SINGLE if present & {*_SINGLE} else _TRAIN]
    for name in (name for part in parts for name in part):
        if name not in present:
            raise DataError(f"{path}: array {name!r} is missing; it has {', '.join(sorted(present)) or 'none'}")
    return parts


def _read(path: Path, file: NpzFile, name: str) -> NamedArray:
    try:
        values = file[name]
    except Exception as error:
        if isinstance(error, ValueError) and "allow_pickle" in str(error):
            requirement = "must be a plain array; got pickled objects, which are never loaded"
            remedy = f"Save {name}.astype(str)" if name.endswith(("labels", "names")) else "Save numbers"
            raise DataError(f"{path}: {name} {requirement}. {remedy}") from error
        raise _unreadable(path, error) from error
    if not isinstance(values, np.ndarray):  # numpy hands out other members as bytes
        raise DataError(f"{path}: {name!r} is not an array")
    return NamedArray(path, name, values)


def _read_part(
    path: Path, file: NpzFile, images_name: str, labels_name: str
) -> tuple[Pixels, tuple[int, ...], NamedArray]:
    """Return pixels, the shape (h, w, c) of an image in the file, and labels; images as stored are freed on return."""
    labels = _read(path, file, labels_name)  # first, because a wrong one is noticed sooner
    images = channels_last(_read(path, file, images_name))
    check_labels(labels, len(images.values))
    return square_pixels(images), images.values.shape[1:], labels


def _split(
    path: Path, labels: NDArray[np.int64], class_names: tuple[str, ...], labels_name: str, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions of training and test images."""
    if labels.min() < 0:
        raise DataError(f"{path}: {labels_name} must number the classes from 0; got {labels.min()}")
    classes, sizes = np.unique(labels, return_counts=True)
    if sizes.min() < 2:
        name = class_names[classes[sizes.argmin()]]
        remedy = "add more, or add test_images and test_labels"
        raise DataError(f"{path}: class {name!r} has a single image, which cannot be split in two parts; {remedy}")
    return stratified_split(labels, TEST_SHARE, seed=seed)


def _placed(pixels: Pixels, labels: NDArray[np.int64], settings: LoadOptions) -> ImageSet:
    return image_set(place_images(pixels, settings.device), labels)
