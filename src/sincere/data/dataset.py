"""A data set as every stage takes it: images with labels and ids, in a train and a test part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sincere import checks
from sincere.data.images import Images
from sincere.data.splits import stratified_split
from sincere.errors import DataError


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Labelled images.

    Attributes:
        images: Their pixels.
        labels: Class of each image, an index into the class names.
        ids: Which image of the source each is; they pair results of different runs.
        positions: Where each image stands in `images`.
    """

    images: Images
    labels: NDArray[np.int64]
    ids: NDArray[np.int64]
    positions: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, chosen: NDArray[np.int64]) -> ImageSet:
        """Return some of the images; they keep their ids."""
        return replace(self, labels=self.labels[chosen], ids=self.ids[chosen], positions=self.positions[chosen])


def image_set(images: Images, labels: Sequence[int] | NDArray[np.int64], *, first_id: int = 0) -> ImageSet:
    """Return all images of a source in order, with ids from `first_id`."""
    positions = np.arange(len(labels), dtype=np.int64)
    return ImageSet(images, np.asarray(labels, dtype=np.int64), positions + first_id, positions)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named data set.

    Attributes:
        name: As on the command line.
        train: Images to learn from; stored larger than `size` where crops gain from it.
        test: Images to test on, never augmented, shuffled or resampled.
        class_names: In label order.
        size: Side of the network's input, in pixels.
        mean: Of each channel over train, in shares of 255.
        std: Likewise.
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
        """Return only these classes, numbered in the order given.

        Raises:
            InputValueError: A name is unknown, with the nearest one; or fewer than two are given.
        """
        old = [self.class_names.index(checks.choice("classes", "class", name, self.class_names)) for name in names]
        if len(set(old)) < 2:
            raise DataError(f"classes: at least two different classes are needed; got {', '.join(names)}")
        new = np.full(len(self.class_names), -1, dtype=np.int64)
        new[old] = np.arange(len(old))
        parts = {}
        for part in ("train", "test"):
            images: ImageSet = getattr(self, part)
            kept = images.subset(np.flatnonzero(new[images.labels] >= 0))
            parts[part] = replace(kept, labels=new[kept.labels])
        return replace(self, train=parts["train"], test=parts["test"], class_names=tuple(names))

    def validation_split(self, fraction: float = 0.1, *, seed: int = 0) -> tuple[ImageSet, ImageSet]:
        """Split train, stratified, into images to learn from and images to validate on.

        Both are plain sets: augmentation belongs to the loader of a training run, so validation never carries it.
        """
        rest, held_out = stratified_split(self.train.labels, fraction, seed=seed)
        return self.train.subset(rest), self.train.subset(held_out)


def channel_statistics(images: ImageSet, *, at_once: int = 4096) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel, in shares of 255, exactly, a part at a time."""
    n_channels = images.images.shape[1]
    total, squares, count = np.zeros(n_channels), np.zeros(n_channels), 0
    for positions in np.array_split(images.positions, max(1, len(images) // at_once)):
        pixels = images.images.gather(positions).double().div_(255)
        total += pixels.sum(dim=(0, 2, 3)).cpu().numpy()
        squares += pixels.square().sum(dim=(0, 2, 3)).cpu().numpy()
        count += pixels[:, 0].numel()
    mean = total / count
    std = np.sqrt(np.maximum(squares / count - mean**2, 1e-12))
    return tuple(mean.tolist()), tuple(std.tolist())


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
