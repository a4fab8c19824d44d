"""A data set as all other stages use it: images with labels and ids, in a train and a test part."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sincere import checks
from sincere.data.pixel_storage import Images
from sincere.data.splits import stratified_split
from sincere.errors import DataError

CHUNK_BYTES = 64 * 10**6  # of pixels that are read at a time


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Labelled images.

    Attributes:
        images: Pixels of all images in the storage, of which this set may have a part.
        labels: Class of each image (n,), an index into the class names.
        ids: Id of each image (n,): its position in the source before anything was split off or left out. Ids pair the
            results of different runs. Where the source has separate train and test parts, each is counted from 0.
        positions: Position of each image in `images` (n,).
        digests: Hash of the name and content of each image file (n, 16); None where the pixels are hashed instead.
    """

    images: Images
    labels: NDArray[np.int64]
    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    digests: NDArray[np.uint8] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, chosen: NDArray[np.int64]) -> ImageSet:
        """Return some of the images, with their ids."""
        digests = None if self.digests is None else self.digests[chosen]
        return ImageSet(self.images, self.labels[chosen], self.ids[chosen], self.positions[chosen], digests)

    def batches(self, n_bytes: int) -> Iterator[Tensor]:
        """Yield the pixels in order, about `n_bytes` at a time."""
        batch_size = max(1, n_bytes // int(np.prod(self.images.shape[1:])))
        for start in range(0, len(self), batch_size):
            yield self.images.gather(self.positions[start : start + batch_size])


def image_set(
    images: Images, labels: Sequence[int] | NDArray[np.int64], *, ids: NDArray[np.int64] | None = None
) -> ImageSet:
    """Return all images in order, with these ids; by default ids are counted from 0."""
    positions = np.arange(len(labels), dtype=np.int64)
    chosen = positions if ids is None else ids.astype(np.int64)
    return ImageSet(images, np.asarray(labels, dtype=np.int64), chosen, positions)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named data set.

    Attributes:
        name: Name of the data set, as on the command line.
        train: Training images. They and the test images may be stored larger than `size`, for sharper crops.
        test: Test images, never augmented, shuffled or resampled.
        class_names: Names of the classes, in label order.
        size: Side of the network's input in pixels.
        mean: Mean of each channel, scaled to [0, 1], over the training images of all classes of the source.
        std: Standard deviation of each channel, scaled likewise; 1 for a constant channel.
        augmentation: Name of the augmentation that suits the data.
        mirror_is_same_class: Whether a mirrored image is still of its class; not so for digits and letters.
        notes: Notes for the user from loading, for example on skipped images.
    """

    name: str
    train: ImageSet
    test: ImageSet
    class_names: tuple[str, ...]
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augmentation: str
    mirror_is_same_class: bool = True
    notes: tuple[str, ...] = ()

    def select_classes(self, names: Sequence[str]) -> Dataset:
        """Return the data set with these classes only, labelled in the order given; mean and std are unchanged.

        Raises:
            InputValueError: A class is unknown; the message suggests the nearest name.
            DataError: There are fewer than two classes, one is given twice, or the test part has none of them.
        """
        old = [self.class_names.index(checks.choice("classes", "class", name, self.class_names)) for name in names]
        if len(set(old)) < 2:
            raise DataError(f"classes: at least two different classes are needed; got {', '.join(names)}")
        if len(set(old)) < len(old):
            raise DataError(f"classes: each class can be given once; got {', '.join(names)}")
        new = np.full(len(self.class_names), -1, dtype=np.int64)
        new[old] = np.arange(len(old))
        parts = {}
        for part in ("train", "test"):
            images: ImageSet = getattr(self, part)
            kept = images.subset(np.flatnonzero(new[images.labels] >= 0))
            parts[part] = replace(kept, labels=new[kept.labels])
        return check_dataset(replace(self, train=parts["train"], test=parts["test"], class_names=tuple(names)))

    @cached_property
    def digest(self) -> str:
        """Content hash of the data set, the same on every machine.

        It covers class names, statistics, labels, ids and the names and bytes of image files, or every pixel.
        """
        digest = hashlib.sha256(repr((self.class_names, self.mean, self.std)).encode())
        for part in (self.train, self.test):
            digest.update(part.labels.tobytes() + part.ids.tobytes())
            if part.digests is not None:
                digest.update(part.digests.tobytes())
                continue
            for pixels in part.batches(CHUNK_BYTES):
                digest.update(pixels.cpu().contiguous().numpy().data)
        return digest.hexdigest()[:16]

    def validation_split(self, fraction: float = 0.1, *, seed: int = 0) -> tuple[ImageSet, ImageSet]:
        """Split the training images, stratified by class, into training and validation images.

        Neither is augmented: augmentation is done by the data loader of a training run.
        """
        rest, held_out = stratified_split(self.train.labels, fraction, seed=seed)
        return self.train.subset(rest), self.train.subset(held_out)


def channel_statistics(
    images: ImageSet, *, chunk_bytes: int = CHUNK_BYTES
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel, scaled to [0, 1].

    They are computed from the counts of the 256 values, so sums are exact, and the memory is about twice `chunk_bytes`.
    A constant channel has a standard deviation of 1, so that normalising by it is safe.
    """
    n_channels = images.images.shape[1]
    counts = np.zeros((n_channels, 256), dtype=np.int64)
    for pixels in images.batches(chunk_bytes):
        for channel in range(n_channels):
            counts[channel] += torch.bincount(pixels[:, channel].flatten(), minlength=256).cpu().numpy()
    means, stds = [], []
    for channel_counts in counts.tolist():
        count = sum(channel_counts)
        total = sum(value * n for value, n in enumerate(channel_counts))
        squares = sum(value * value * n for value, n in enumerate(channel_counts))
        spread = count * squares - total * total  # Python integers: exact, no cancellation
        means.append(total / count / 255)
        stds.append(sqrt(spread) / count / 255 if spread else 1.0)
    return tuple(means), tuple(stds)


def check_dataset(dataset: Dataset) -> Dataset:
    """Check that labels are in range, and that there are two classes or more, each with a training image.

    Raises:
        DataError: They are not; the message names the data set.
    """
    n_classes = len(dataset.class_names)
    if n_classes < 2:
        raise DataError(f"{dataset.name}: at least two classes are needed; got {n_classes}")
    for part, images in (("train", dataset.train), ("test", dataset.test)):
        if len(images) == 0:
            raise DataError(f"{dataset.name}: the {part} part has no images")
        low, high = int(images.labels.min()), int(images.labels.max())
        if low < 0 or high >= n_classes:
            wrong = low if low < 0 else high
            raise DataError(f"{dataset.name}: {part} labels must be 0 to {n_classes - 1}; got {wrong}")
    missing = np.setdiff1d(np.arange(n_classes), dataset.train.labels)
    if len(missing):
        raise DataError(f"{dataset.name}: class {dataset.class_names[missing[0]]!r} has no training image")
    return dataset
