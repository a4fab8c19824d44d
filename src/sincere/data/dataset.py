"""A data set as all other stages use it: images or features with labels and ids, in a train and a test part."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sincere import checks
from sincere.data.channel_sums import mean_and_std
from sincere.data.imbalance import long_tailed_positions
from sincere.data.splits import split_label_sets, stratified_split
from sincere.errors import DataError

CHUNK_BYTES = 64 * 10**6  # of pixels that are read at a time
VALUES = np.arange(256)  # of a pixel
UNLABELLED = -1  # label of a training sample whose class is not known


class Items(Protocol):
    """Images or features that can be gathered by position."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of items, then channels, height and width of images, or the number of features."""
        ...

    def gather(self, positions: NDArray[np.int64]) -> Tensor:
        """Return uint8 images (k, c, h, w), or float32 features (k, d)."""
        ...


@dataclass(frozen=True, eq=False)
class Samples:
    """Labelled samples: images, or the features of images or of anything else.

    Attributes:
        items: Storage of the images or features, of which these samples may be a part.
        labels: Class of each sample (n,), an index into the class names; or label sets (n, L), where a sample may have
            several labels: 1 for those it has, else 0.
        ids: Id of each sample (n,): its position in the source before anything was split off or left out. Ids pair the
            results of different runs. Where the source has separate train and test parts, each is counted from 0.
        positions: Position of each sample in `items` (n,).
        digests: Hash of the name and content of each image file (n, 16); None where the items are hashed instead.
        texts: A text or path for each sample (n,), shown in the report; None without.
    """

    items: Items
    labels: NDArray[np.int64]
    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    digests: NDArray[np.uint8] | None = None
    texts: NDArray[np.str_] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Samples({len(self):,} of shape {tuple(self.items.shape[1:])})"

    @property
    def are_features(self) -> bool:
        """Whether the items are features, not images."""
        return len(self.items.shape) == 2

    @property
    def have_label_sets(self) -> bool:
        """Whether a sample may have several labels, not one class."""
        return self.labels.ndim == 2

    def class_sizes(self, n_classes: int) -> NDArray[np.int64]:
        """Return the number of samples of each class, or with each label (n_classes,)."""
        return self.labels.sum(axis=0) if self.have_label_sets else np.bincount(self.labels, minlength=n_classes)

    def subset(self, chosen: NDArray[np.int64]) -> Samples:
        """Return some of the samples, with their ids."""
        digests = None if self.digests is None else self.digests[chosen]
        texts = None if self.texts is None else self.texts[chosen]
        return Samples(self.items, self.labels[chosen], self.ids[chosen], self.positions[chosen], digests, texts)

    def content(self) -> Iterator[bytes | memoryview]:
        """Yield what a content hash covers: labels, ids, and hashes of image files, or every pixel or feature."""
        yield self.labels.tobytes() + self.ids.tobytes()
        if self.digests is not None:
            yield self.digests.tobytes()
            return
        for items in self.batches(CHUNK_BYTES):
            yield items.cpu().contiguous().numpy().data

    def batches(self, n_bytes: int) -> Iterator[Tensor]:
        """Yield the items in order, about `n_bytes` at a time."""
        batch_size = max(1, n_bytes // (int(np.prod(self.items.shape[1:])) * (4 if self.are_features else 1)))
        for start in range(0, len(self), batch_size):
            yield self.items.gather(self.positions[start : start + batch_size])


def all_samples(
    items: Items, labels: Sequence[int] | NDArray[np.int64], *, ids: NDArray[np.int64] | None = None
) -> Samples:
    """Return all items in order, with these ids; by default ids are counted from 0."""
    positions = np.arange(len(labels), dtype=np.int64)
    chosen = positions if ids is None else ids.astype(np.int64)
    return Samples(items, np.asarray(labels, dtype=np.int64), chosen, positions)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named data set.

    Attributes:
        name: Name of the data set, as on the command line.
        train: Training samples. Images may be stored larger than `size`, for sharper crops.
        test: Test samples, never augmented, shuffled or resampled.
        class_names: Names of the classes, in label order; of the labels, where samples may have several.
        size: Side of the network's input in pixels; 0 for features.
        mean: Mean of each channel, scaled to [0, 1], over the training images of all classes of the source; empty for
            features.
        std: Standard deviation of each channel, scaled likewise; 1 for a constant channel.
        augmentation: Name of the augmentation that suits the data.
        mirror_is_same_class: Whether a mirrored image is still of its class; not so for digits and letters.
        are_photos: Whether the images are photos, larger than what a small network is trained on from scratch.
        unlabelled: Training samples whose class is not known, labelled -1, in the storage of `train`, which take part
            in training only; None without.
        unknown: Test samples of classes that were left out, or of another data set, to measure how well they are told
            from the known ones; None without. Their labels mean nothing.
        origin: The images that the features were computed from by a frozen encoder; None otherwise.
        imbalance: Ratio of class sizes that the training samples were reduced to; None where all were kept.
        notes: Notes for the user from loading, for example on skipped images.
    """

    name: str
    train: Samples
    test: Samples
    class_names: tuple[str, ...]
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augmentation: str
    mirror_is_same_class: bool = True
    are_photos: bool = False
    unlabelled: Samples | None = None
    unknown: Samples | None = None
    origin: Dataset | None = None
    imbalance: float | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        counts = f"{len(self.train):,} training and {len(self.test):,} test {self.noun}"
        return f"Dataset({self.name!r}: {counts}, {len(self.class_names):,} classes)"

    @property
    def noun(self) -> Literal["images", "samples"]:
        """What the samples are called in messages."""
        return "samples" if self.train.are_features and self.origin is None else "images"

    @property
    def have_label_sets(self) -> bool:
        """Whether a sample may have several labels, not one class."""
        return self.train.have_label_sets

    @property
    def n_unlabelled(self) -> int:
        """Number of training samples whose class is not known."""
        return 0 if self.unlabelled is None else len(self.unlabelled)

    def with_unlabelled(self, samples: Samples) -> Samples:
        """Return training samples, or some of them, followed by those whose class is not known."""
        if self.unlabelled is None:
            return samples
        assert samples.items is self.unlabelled.items
        both = (samples, self.unlabelled)
        labels, ids, positions = (
            np.concatenate([getattr(part, name) for part in both]) for name in ("labels", "ids", "positions")
        )
        return Samples(samples.items, labels, ids, positions)

    def check_one_label(self, setting: str) -> None:
        """Raise unless every sample has one class, which `setting` needs.

        Raises:
            DataError: Samples may have several labels.
        """
        if self.have_label_sets:
            kind = self.noun.removesuffix("s")
            raise DataError(f"{setting}: needs one label per {kind}; {self.name} has label sets")

    def select_classes(self, names: Sequence[str]) -> Dataset:
        """Return the data set with these classes only, labelled in the order given; mean and std are unchanged.

        Raises:
            InputValueError: A class is unknown; the message suggests the nearest name.
            DataError: There are fewer than two classes, one is given twice, the test part has none of them, or samples
                have label sets.
        """
        self.check_one_label("classes")
        old = [self.class_names.index(checks.choice("classes", "class", name, self.class_names)) for name in names]
        if len(set(old)) < 2:
            raise DataError(f"classes: at least two different classes are needed; got {', '.join(names)}")
        if len(set(old)) < len(old):
            raise DataError(f"classes: each class can be given once; got {', '.join(names)}")
        new = np.full(len(self.class_names), -1, dtype=np.int64)
        new[old] = np.arange(len(old))
        parts = {}
        for part in ("train", "test"):
            samples: Samples = getattr(self, part)
            kept = samples.subset(np.flatnonzero(new[samples.labels] >= 0))
            parts[part] = replace(kept, labels=new[kept.labels])
        return check_dataset(replace(self, train=parts["train"], test=parts["test"], class_names=tuple(names)))

    def leave_out(self, names: Sequence[str]) -> Dataset:
        """Return the data set without these classes, whose test samples become `unknown`.

        Raises:
            InputValueError: A class is unknown; the message suggests the nearest name.
            DataError: Fewer than two classes are left, the classes have no test samples, or samples have label sets.
        """
        self.check_one_label("unknown_classes")
        labels = [
            self.class_names.index(checks.choice("unknown_classes", "class", name, self.class_names)) for name in names
        ]
        kept = [name for name in self.class_names if name not in names]
        if len(kept) < 2:
            raise DataError(
                f"unknown_classes: at least two other classes must be left; got {', '.join(kept) or 'none'}"
            )
        unknown = self.test.subset(np.flatnonzero(np.isin(self.test.labels, labels)))
        if not len(unknown):
            raise DataError(f"unknown_classes: the test part has no {self.noun} of {', '.join(names)}")
        return replace(self.select_classes(kept), unknown=unknown)

    def long_tailed(self, ratio: float, *, seed: int = 0) -> Dataset:
        """Return the data set with training classes whose sizes fall exponentially; mean and std are unchanged.

        Args:
            ratio: Size of the first class over that of the last one; see `long_tailed_positions`.
            seed: Random seed of which samples are kept.

        Raises:
            InputTypeError, InputValueError: `ratio` is no number of at least 1.
            DataError: Samples have label sets.
        """
        self.check_one_label("imbalance")
        kept = long_tailed_positions(self.train.labels, ratio, n_classes=len(self.class_names), seed=seed)
        return replace(self, train=self.train.subset(kept), imbalance=ratio)

    @cached_property
    def digest(self) -> str:
        """Content hash of the data set, the same on every machine.

        It covers class names, statistics, labels, ids and the names and bytes of image files, or every pixel or
        feature. Features that were computed from images have the hash of the images.
        """
        if self.origin is not None:
            return self.origin.digest
        digest = hashlib.sha256(repr((self.class_names, self.mean, self.std)).encode())
        for part in (self.train, self.test, *(() if self.unlabelled is None else (self.unlabelled,))):
            for piece in part.content():
                digest.update(piece)
        return digest.hexdigest()[:16]

    @cached_property
    def unknown_digest(self) -> str:
        """Content hash of the samples of unknown classes; empty without any. It is not part of `digest`."""
        if self.origin is not None:
            return self.origin.unknown_digest
        if self.unknown is None:
            return ""
        digest = hashlib.sha256()
        for piece in self.unknown.content():
            digest.update(piece)
        return digest.hexdigest()[:16]

    @property
    def texts_digest(self) -> str:
        """Content hash of the texts of both parts, which the report shows; empty without texts.

        It is not part of `digest`, because texts do not change what is trained and measured.
        """
        texts = [part.texts for part in (self.train, self.test) if part.texts is not None]
        joined = "\0".join(text for part in texts for text in part.tolist())
        return hashlib.sha256(joined.encode("utf-8", "replace")).hexdigest()[:16] if texts else ""

    def validation_split(self, fraction: float = 0.1, *, seed: int = 0) -> tuple[Samples, Samples]:
        """Split the training samples, stratified by class, into training and validation samples.

        Label sets are split by `split_label_sets`. Neither part is augmented: augmentation is done by the data loader
        of a training run.

        Raises:
            DataError: A class has a single training sample, or no two label sets have their rarest label in common.
        """
        kind = self.noun.removesuffix("s")
        if self.have_label_sets:
            rest, held_out = split_label_sets(self.train.labels, fraction, seed=seed)
            if not len(held_out):
                few = f"no label has two training {self.noun} to hold one out of"
                raise DataError(f"{self.name}: {few}; add more, or set validation to 0")
            return self.train.subset(rest), self.train.subset(held_out)
        sizes = self.train.class_sizes(len(self.class_names))
        if sizes.min() < 2:
            single = f"class {self.class_names[sizes.argmin()]!r} has a single training {kind}"
            raise DataError(f"{self.name}: {single}, so that none can be held out; add more, or set validation to 0")
        rest, held_out = stratified_split(self.train.labels, fraction, seed=seed)
        return self.train.subset(rest), self.train.subset(held_out)


def channel_statistics(
    samples: Samples, *, chunk_bytes: int = CHUNK_BYTES
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel, scaled to [0, 1].

    They are computed from the counts of the 256 values, so sums are exact, and the memory is about twice `chunk_bytes`.
    A constant channel has a standard deviation of 1: see `mean_and_std`.
    """
    n_channels = samples.items.shape[1]
    counts = np.zeros((n_channels, 256), dtype=np.int64)
    for pixels in samples.batches(chunk_bytes):
        for channel in range(n_channels):
            counts[channel] += torch.bincount(pixels[:, channel].flatten(), minlength=256).cpu().numpy()
    sums = np.stack([counts @ VALUES, counts @ VALUES**2], axis=1)
    return mean_and_std(sums, int(counts[0].sum()))


def check_dataset(dataset: Dataset) -> Dataset:
    """Check that labels are in range, and that there are two classes or labels or more, each with a training sample.

    Training samples with label -1 are set apart, as `unlabelled`.

    Raises:
        DataError: They are not; the message names the data set.
    """
    if not dataset.have_label_sets and (dataset.train.labels == UNLABELLED).any():
        are_unlabelled = dataset.train.labels == UNLABELLED
        labelled, unlabelled = (
            dataset.train.subset(np.flatnonzero(rows)) for rows in (~are_unlabelled, are_unlabelled)
        )
        dataset = replace(dataset, train=labelled, unlabelled=unlabelled)
    n_classes, kind = len(dataset.class_names), dataset.noun.removesuffix("s")
    singular, plural = ("label", "labels") if dataset.have_label_sets else ("class", "classes")
    if n_classes < 2:
        raise DataError(f"{dataset.name}: at least two {plural} are needed; got {n_classes}")
    for part, samples in (("train", dataset.train), ("test", dataset.test)):
        if len(samples) == 0:
            raise DataError(f"{dataset.name}: the {part} part has no {dataset.noun}")
        if samples.have_label_sets:
            if not samples.labels.any():
                raise DataError(f"{dataset.name}: no {part} {kind} has a label")
            continue
        low, high = int(samples.labels.min()), int(samples.labels.max())
        if low < 0 or high >= n_classes:
            wrong = low if low < 0 else high
            or_none = ", or -1 for no label" if part == "train" else ""
            raise DataError(f"{dataset.name}: {part} labels must be 0 to {n_classes - 1}{or_none}; got {wrong}")
    missing = np.flatnonzero(dataset.train.class_sizes(n_classes) == 0)
    if len(missing):
        raise DataError(f"{dataset.name}: {singular} {dataset.class_names[missing[0]]!r} has no training {kind}")
    return dataset
