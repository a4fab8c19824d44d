"""Batch samplers: which images are in which batch, as a function of (seed, step) alone; a step number resumes a run.

- `shuffle`: a new random order of all images in each epoch.
- `balanced`: cycles through the classes, so that every class has an equal share of each batch; with more classes than
  slots, of every few batches.
- `p-by-k`: K images each of P classes, cycling through the classes (Hermans et al. 2017,
  https://arxiv.org/abs/1703.07737); for many classes, where balanced batches would leave an anchor only its own views
  as positives.
With the last two, no image of a class comes again before all others of the class have, and none comes twice in a batch
unless the class is smaller than its share of the batch: see `class_schedule`. Label sets and images without a label
have no classes to cycle through, and are shuffled.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sincere import checks
from sincere.catalog import SAMPLERS
from sincere.data.class_schedule import ClassSchedule
from sincere.errors import InputValueError

Indices = NDArray[np.int64]


class Sampler(ABC):
    """Batches of image positions.

    Attributes:
        labels: Class of each image (n,), or label sets (n, L).
        batch_size: Number of images in a batch.
        n_batches: Number of batches in an epoch; an incomplete last batch is dropped.
    """

    def __init__(self, labels: ArrayLike, batch_size: int, *, seed: int = 0) -> None:
        caller = type(self).__name__
        self.labels = _checked_labels(caller, labels)
        self.batch_size = checks.count(caller, "batch_size", batch_size, least=2)
        self.seed = checks.count(caller, "seed", seed, least=0)
        if self.batch_size > len(self.labels):
            requirement = f"batch_size must be at most {len(self.labels)}, the number of images"
            raise InputValueError(checks.wording(caller, requirement, batch_size))
        self.n_batches = len(self.labels) // self.batch_size

    @abstractmethod
    def batch(self, step: int) -> Indices:
        """Return the positions of the images in batch `step`, counted from 0 over all epochs."""

    @abstractmethod
    def visits(self, step: int) -> Indices:
        """Return a visit number for each image of batch `step`; no image ever has the same number twice."""

    def describe(self, n_views: int, *, noun: str = "images") -> tuple[str, str | None]:
        """Return a line with the mean number of positives per anchor in the first epoch, and a warning or None.

        `noun` is what the samples are called. A repeated image is counted once: a copy of the anchor is not a positive.
        """
        positives, without, anchors = 0.0, 0, 0
        for step in range(min(self.n_batches, 50)):
            different = np.unique(self.batch(step))
            each = _n_alike(self.labels[different]) * n_views - 1
            positives, without, anchors = positives + each.sum(), without + (each == 0).sum(), anchors + len(each)
        views = "1 view" if n_views == 1 else f"{n_views} views"
        line = f"batches of {self.batch_size} {noun} x {views}: {positives / anchors:.1f} positives per anchor"
        warning = f"{without / anchors:.0%} of the anchors have no positive and contribute nothing to the loss"
        return line, warning if without else None


class ShuffleSampler(Sampler):
    """A new random order of all images in each epoch; images that do not fill a batch are left for another epoch."""

    def __init__(self, labels: ArrayLike, batch_size: int, *, seed: int = 0) -> None:
        super().__init__(labels, batch_size, seed=seed)
        self._order = lru_cache(maxsize=2)(self._draw_order)

    def batch(self, step: int) -> Indices:
        """Return the positions of the images in batch `step`."""
        epoch, index = divmod(step, self.n_batches)
        return self._order(epoch)[index * self.batch_size : (index + 1) * self.batch_size]

    def visits(self, step: int) -> Indices:
        """Return the epoch for each image: none comes twice in an epoch."""
        return np.full(self.batch_size, step // self.n_batches, dtype=np.int64)

    def _draw_order(self, epoch: int) -> Indices:
        return np.random.default_rng((self.seed, 0, epoch)).permutation(len(self.labels))


class BalancedSampler(Sampler):
    """Every class equally often: B / C times in a batch of B, for C classes.

    For any number of images and classes and any batch size, any ceil(C / B) batches in a row hold every class, and over
    each epoch the classes' counts differ by at most 1. With more classes than slots no class comes twice in a batch,
    and which classes share a batch varies as far as this allows: not at all if C is a multiple of B.
    """

    def __init__(self, labels: ArrayLike, batch_size: int, *, seed: int = 0) -> None:
        super().__init__(labels, batch_size, seed=seed)
        n_classes = len(np.unique(self.labels))
        span = math.ceil(n_classes / self.batch_size) * self.batch_size
        looseness = max(0, min(span - n_classes, n_classes - self.batch_size))
        self.schedule = ClassSchedule(self.labels, self.batch_size, 1, looseness, self.n_batches, self.seed)

    def batch(self, step: int) -> Indices:
        """Return the positions of the images in batch `step`."""
        return self.schedule.positions(step)

    def visits(self, step: int) -> Indices:
        """Return, for each image, how many passes through its class were completed before."""
        return self.schedule.visits(step)


class PByKSampler(Sampler):
    """K images each of P different classes, P x K = batch size, cycling through the classes.

    Over each epoch the classes' counts differ by at most K. A class with fewer than K images repeats them.
    """

    def __init__(self, labels: ArrayLike, batch_size: int, *, seed: int = 0, images_per_class: int = 2) -> None:
        k = checks.count("PByKSampler", "images_per_class", images_per_class, least=2)
        super().__init__(labels, batch_size, seed=seed)
        n_classes, n_turns = len(np.unique(self.labels)), self.batch_size // k
        if self.batch_size % k:
            requirement = f"batch_size must be a multiple of images_per_class = {k}"
            raise InputValueError(checks.wording("PByKSampler", requirement, batch_size))
        if n_turns > n_classes:
            requirement = f"images_per_class must be at least {math.ceil(batch_size / n_classes)}"
            remedy = f"{batch_size} slots are more than {k} for each of {n_classes} classes"
            raise InputValueError(checks.wording("PByKSampler", requirement, k, remedy))
        self.schedule = ClassSchedule(self.labels, self.batch_size, k, n_classes - n_turns, self.n_batches, self.seed)

    def batch(self, step: int) -> Indices:
        """Return the positions of the images in batch `step`."""
        return self.schedule.positions(step)

    def visits(self, step: int) -> Indices:
        """Return, for each image, how many passes through its class were completed before."""
        return self.schedule.visits(step)


def make_sampler(
    name: str, labels: ArrayLike, batch_size: int, *, seed: int = 0, images_per_class: int | None = None
) -> Sampler:
    """Return a sampler by name; "auto" is p-by-k where classes outnumber half the slots, else shuffle.

    Args:
        name: One of `SAMPLERS`.
        labels: Class of each image (n,), or label sets (n, L).
        batch_size: Number of images in a batch.
        seed: Random seed.
        images_per_class: K of p-by-k; None takes the smallest K that divides the batch size and fits the classes.

    Raises:
        InputValueError: The name is unknown, the sizes do not fit together, or label sets are not to be shuffled.
            "auto" never falls back to shuffled batches of classes in which many anchors have no positives: where it
            needs p-by-k, K must divide the batch size.
    """
    caller = "make_sampler"
    checks.choice(caller, "sampler", name, SAMPLERS)
    checks.count(caller, "batch_size", batch_size, least=2)
    checked = _checked_labels(caller, labels)
    if checked.ndim == 2 or (checked < 0).any():
        if name not in ("auto", "shuffle"):
            what = "label sets" if checked.ndim == 2 else "data with unlabelled images"
            requirement = f"sampler must be shuffle for {what}, which have no classes to balance"
            raise InputValueError(checks.wording(caller, requirement, name))
        return ShuffleSampler(labels, batch_size, seed=seed)
    n_classes = len(np.unique(checked))
    if name == "p-by-k" or (name == "auto" and n_classes > batch_size / 2):
        if images_per_class is None:
            fewest = max(2, math.ceil(batch_size / n_classes))
            fitting = [k for k in range(fewest, batch_size // 2 + 1) if batch_size % k == 0]
            if not fitting:
                requirement = f"batch_size must be K images of each of P classes, K at least {fewest} and P at least 2"
                remedy = f"With {n_classes} classes, {2 * fewest} would do"
                raise InputValueError(checks.wording(caller, requirement, batch_size, remedy))
            images_per_class = fitting[0]
        return PByKSampler(labels, batch_size, seed=seed, images_per_class=images_per_class)
    return (BalancedSampler if name == "balanced" else ShuffleSampler)(labels, batch_size, seed=seed)


def _checked_labels(caller: str, labels: ArrayLike) -> Indices:
    array = np.asarray(labels)
    if array.ndim not in (1, 2) or not len(array) or not np.issubdtype(array.dtype, np.integer):
        got = f"{array.dtype} of shape {array.shape}"
        raise InputValueError(checks.wording(caller, "labels must be integers of shape (n,) with n > 0", got))
    return array.astype(np.int64)


def _n_alike(labels: Indices) -> Indices:
    """Return, for each image of a batch, how many have its class or share a label with it, itself included."""
    if labels.ndim == 2:
        shares = labels @ labels.T > 0
        np.fill_diagonal(shares, True)  # an image without a label has its own views as positives
        return np.asarray(shares.sum(axis=1), dtype=np.int64)
    _, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return np.where(labels < 0, 1, counts[inverse])  # an image without a label is a class of its own
