"""Loads a data set from an .npz of images or features, with labels, class names, and a test part or without."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sincere.data.dataset import Dataset, Samples, all_samples, channel_statistics, check_dataset
from sincere.data.feature_arrays import FeaturePart, features_dataset
from sincere.data.load_options import LoadOptions
from sincere.data.named_arrays import NamedArray, check_labels, encode_labels, split_by_class
from sincere.data.npz_arrays import channels_last, square_pixels
from sincere.data.npz_members import (
    FEATURES,
    IMAGES,
    Members,
    kind_of_samples,
    open_npz,
    part_prefixes,
    read_member,
    read_optional,
)
from sincere.data.pixel_storage import Pixels, place_images
from sincere.errors import DataError


def load_npz(path: Path, options: LoadOptions) -> Dataset:
    """Load and check an .npz. `class_names` is optional. Pickled objects are refused, never executed.

    Labels are integers or strings, or label sets (n, L) of 0 and 1. A file without test arrays is split as a folder is.

    Images are uint8, other integers from 0 to 255, or floats from 0 to 1, (n, h, w, c) or (n, c, h, w); of images that
    are not square, the centre square is kept, as for image files. Features are finite numbers (n, d), with one text for
    each sample if there are texts.

    Raises:
        DataError: An array is missing or has a wrong type, shape or value.
    """
    with open_npz(path) as file:
        return load_members(path, file, options)


def load_members(path: Path, file: Members, options: LoadOptions) -> Dataset:
    """Load and check the arrays of an .npz, or others of the same names; `path` stands for them in messages."""
    if kind_of_samples(path, file.files) == FEATURES:
        return _features(path, file, options)
    return _images(path, file, options)


def _features(path: Path, file: Members, options: LoadOptions) -> Dataset:
    prefixes, notes = part_prefixes(path, file.files, FEATURES)
    train, *test = (
        FeaturePart(
            labels=read_member(path, file, f"{prefix}labels"),
            features=read_member(path, file, f"{prefix}{FEATURES}"),
            texts=read_optional(path, file, f"{prefix}texts"),
        )
        for prefix in prefixes
    )
    names = read_optional(path, file, "class_names")
    return features_dataset(
        path.stem, train, test[0] if test else None, class_names=names, notes=notes, options=options
    )


def _images(path: Path, file: Members, options: LoadOptions) -> Dataset:
    prefixes, left_out = part_prefixes(path, file.files, IMAGES)
    given = read_optional(path, file, "class_names")
    parts = [_read_part(path, file, f"{prefix}{IMAGES}", f"{prefix}labels") for prefix in prefixes]
    shapes = [shape for _, shape, _ in parts]
    if len(set(shapes)) > 1:
        names_of_parts = " and ".join(f"{prefix}{IMAGES}" for prefix in prefixes)
        raise DataError(f"{path}: {names_of_parts} must be of one size; got {shapes[0]} and {shapes[1]}")
    labels, names = encode_labels(path, [part_labels for _, _, part_labels in parts], given)
    height, width, n_channels = shapes[0]
    side, notes = min(height, width), list(left_out)
    if height != width:
        kept = f"the centre {side} x {side} px are kept, as for image files"
        notes.append(f"{path}: images are {height} x {width} px (height x width); {kept}")
    if len(parts) == 1:  # split before the pixels are copied: a class may be too small
        remedy = "add test_images and test_labels"
        rows, note = split_by_class(parts[0][2], labels[0], names, seed=options.seed, remedy=remedy)
        notes.append(note)
        whole = _placed(parts[0][0], labels[0], options)
        train, test = whole.subset(rows[0]), whole.subset(rows[1])
    else:
        train, test = (_placed(part[0], part_labels, options) for part, part_labels in zip(parts, labels, strict=True))
    mean, std = channel_statistics(train)
    augmentation = "paper" if n_channels == 3 else "light"
    size = options.input_size(side)
    return check_dataset(Dataset(path.stem, train, test, names, size, mean, std, augmentation, notes=tuple(notes)))


def _read_part(
    path: Path, file: Members, images_name: str, labels_name: str
) -> tuple[Pixels, tuple[int, ...], NamedArray]:
    """Return pixels, the shape (h, w, c) of an image in the file, and labels; images as stored are freed on return."""
    labels = read_member(path, file, labels_name)  # first, because a wrong one is noticed sooner
    images = channels_last(read_member(path, file, images_name))
    check_labels(labels, len(images.values))
    return square_pixels(images), images.values.shape[1:], labels


def _placed(pixels: Pixels, labels: NDArray[np.int64], options: LoadOptions) -> Samples:
    return all_samples(place_images(pixels, options.device), labels)
