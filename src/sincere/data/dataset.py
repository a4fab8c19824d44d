"""A data set as every stage takes it: images with labels and ids, in a train and a test part."""

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

PART_BYTES = 64 * 10**6  # of pixels read at once for statistics


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Labelled images.

    Attributes:
        images: Their pixels.
        labels: Class of each image, an index into the class names.
        ids: Which image of the source each is, counted before anything was split off or left out; they pair results of
            different runs. Where train and test came apart they are counted in each.
        positions: Where each image stands in `images`.
        digests: What tells the name and content of each image from others (n, 16); None where the pixels do.
    """

    images: Images
    labels: NDArray[np.int64]
    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    digests: NDArray[np.uint8] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, chosen: NDArray[np.int64]) -> ImageSet:
        """Return some of the images; they keep their ids."""
        digests = None if self.digests is None else self.digests[chosen]
        return ImageSet(self.images, self.labels[chosen], self.ids[chosen], self.positions[chosen], digests)

    def batches(self, n_bytes: int) -> Iterator[Tensor]:
        """Yield the pixels in order, about `n_bytes` of them at once."""
        at_once = max(1, n_bytes // int(np.prod(self.images.shape[1:])))
        for start in range(0, len(self), at_once):
            yield self.images.gather(self.positions[start : start + at_once])


def image_set(
    images: Images, labels: Sequence[int] | NDArray[np.int64], *, ids: NDArray[np.int64] | None = None
) -> ImageSet:
    """Return all images in order, with these ids, else counted from 0."""
    positions = np.arange(len(labels), dtype=np.int64)
    chosen = positions if ids is None else ids.astype(np.int64)
    return ImageSet(images, np.asarray(labels, dtype=np.int64), chosen, positions)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named data set.

    Attributes:
        name: As on the command line.
        train: Images to learn from; stored larger than `size` where crops gain from it, and those of test as well.
        test: Images to test on, never augmented, shuffled or resampled.
        class_names: In label order.
        size: Side of the network's input, in pixels.
        mean: Of each channel, in shares of 255, over the training images of all classes the source has.
        std: Likewise; 1 for a channel that never changes.
        augmentation: The named set that suits it.
        mirror_is_same_class: Whether a mirrored image is still of its class; not for digits and letters.
        notes: What was noticed while loading, for the user: skipped images and the like.
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
        """Return only these classes, numbered in the order given. Mean and standard deviation stay.

        Raises:
            InputValueError: A name is unknown; the message has the nearest one.
            DataError: Fewer than two are given, or one twice, or the test part has none of them.
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
        """What tells these images and labels from others: the same wherever and whenever they are loaded.

        It covers labels, ids and all content: names and bytes of image files, else every pixel.
        """
        found = hashlib.sha256(repr((self.class_names, self.mean, self.std)).encode())
        for part in (self.train, self.test):
            found.update(part.labels.tobytes() + part.ids.tobytes())
            if part.digests is not None:
                found.update(part.digests.tobytes())
                continue
            for pixels in part.batches(PART_BYTES):
                found.update(pixels.cpu().contiguous().numpy().data)
        return found.hexdigest()[:16]

    def validation_split(self, fraction: float = 0.1, *, seed: int = 0) -> tuple[ImageSet, ImageSet]:
        """Split train, stratified, into images to learn from and images to validate on.

        Both are plain sets: augmentation belongs to the loader of a training run, so validation never carries it.
        """
        rest, held_out = stratified_split(self.train.labels, fraction, seed=seed)
        return self.train.subset(rest), self.train.subset(held_out)


def channel_statistics(
    images: ImageSet, *, part_bytes: int = PART_BYTES
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel, in shares of 255, a part at a time.

    Values are counted, so sums are exact and the memory is that of a part: about twice `part_bytes`. A channel that
    never changes has a standard deviation of 1: dividing by it must not blow up what differs later.
    """
    n_channels = images.images.shape[1]
    counts = np.zeros((n_channels, 256), dtype=np.int64)
    for pixels in images.batches(part_bytes):
        for channel in range(n_channels):
            counts[channel] += torch.bincount(pixels[:, channel].flatten(), minlength=256).cpu().numpy()
    means, stds = [], []
    for channel_counts in counts.tolist():
        count = sum(channel_counts)
        total = sum(value * n for value, n in enumerate(channel_counts))
        squares = sum(value * value * n for value, n in enumerate(channel_counts))
        spread = count * squares - total * total  # whole numbers of any size: no cancellation
        means.append(total / count / 255)
        stds.append(sqrt(spread) / count / 255 if spread else 1.0)
    return tuple(means), tuple(stds)


def check_dataset(dataset: Dataset) -> Dataset:
    """Raise unless the parts fit together: labels in range, at least two classes, every class in train."""
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
