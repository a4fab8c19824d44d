"""Which images stand in which batch: a function of (seed, step) alone, so a saved step number resumes a run.

Three ways:
- `shuffle`: each epoch a new order of all images.
- `balanced`: slots go round the classes, so every class has its share of each batch; with more classes than slots, of
  each few batches.
- `p-by-k`: K images each of P classes, going round the classes; for many classes, where balanced batches would leave
  an anchor only its own views as partners.
Within a class no image comes again before all others have, and none comes twice in a batch unless the class is smaller
than its share of it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sincere import checks
from sincere.errors import InputValueError

Indices = NDArray[np.int64]
SAMPLERS = ("auto", "shuffle", "balanced", "p-by-k")


class Sampler(ABC):
    """Batches of image positions.

    Attributes:
        batch_size: Images in each batch.
        n_batches: Batches in an epoch: as many as whole batches fit into the data.
    """

    def __init__(self, labels: ArrayLike, batch_size: int, *, seed: int = 0) -> None:
        caller = type(self).__name__
        self.labels = np.asarray(labels, dtype=np.int64)
        self.batch_size = checks.count(caller, "batch_size", batch_size, least=2)
        self.seed = checks.count(caller, "seed", seed, least=0)
        if self.batch_size > len(self.labels):
            requirement = f"batch_size must be at most {len(self.labels)}, the number of images"
            raise InputValueError(checks.wording(caller, requirement, batch_size))
        self.n_batches = len(self.labels) // self.batch_size

    @abstractmethod
    def batch(self, step: int) -> Indices:
        """Return the positions of the images in batch `step`, counted from 0 over all epochs."""

    def describe(self, n_views: int) -> str:
        """Return a line that says how many partners an anchor has, from the first epoch's batches."""
        partners, without, anchors = 0.0, 0, 0
        for step in range(min(self.n_batches, 50)):
            _, inverse, counts = np.unique(self.labels[self.batch(step)], return_inverse=True, return_counts=True)
            each = counts[inverse] * n_views - 1
            partners, without, anchors = partners + each.sum(), without + (each == 0).sum(), anchors + len(each)
        line = f"batches of {self.batch_size} images x {n_views} views: {partners / anchors:.1f} partners per anchor"
        if without:
            line += f"; warning: {without / anchors:.0%} of the anchors have none and teach nothing"
        return line


class ShuffleSampler(Sampler):
    """Each epoch all images in a new order; what does not fill a batch waits for another epoch."""

    def batch(self, step: int) -> Indices:
        """Return the positions of the images in batch `step`."""
        epoch, place = divmod(step, self.n_batches)
        return self._order(epoch)[place * self.batch_size : (place + 1) * self.batch_size]

    @lru_cache(maxsize=2)  # noqa: B019 - samplers live as long as the run
    def _order(self, epoch: int) -> Indices:
        return _generator(self.seed, 0, epoch).permutation(len(self.labels))


class _ClassSampler(Sampler):
    """Slots that go round the classes, and within each class round its images."""

    def __init__(self, labels: ArrayLike, batch_size: int, *, seed: int, images_per_turn: int, looseness: int) -> None:
        super().__init__(labels, batch_size, seed=seed)
        self.images_per_turn = images_per_turn
        n_classes = len(np.unique(self.labels))
        # How many images of one class a batch can hold.
        self.most = images_per_turn * (1 + math.ceil(self.batch_size / images_per_turn / n_classes))
        self.members = [np.flatnonzero(self.labels == label) for label in np.unique(self.labels)]
        self.base = _generator(self.seed, 1, 0).permutation(len(self.members))
        self.looseness = looseness

    def batch(self, step: int) -> Indices:
        """Return the positions of the images in batch `step`."""
        n_classes, k = len(self.members), self.images_per_turn
        first = step * self.batch_size // k
        turns = np.arange(first, first + self.batch_size // k)
        positions: list[int] = []
        for turn in turns:
            cycle, place = divmod(int(turn), n_classes)
            chosen = int(self._classes(cycle)[place])
            positions.extend(self._image(chosen, cycle * k + i) for i in range(k))
        return np.asarray(positions, dtype=np.int64)

    @lru_cache(maxsize=4)  # noqa: B019
    def _classes(self, cycle: int) -> Indices:
        """Return the order of the classes in a cycle: near the base order, so that no class waits long for its turn."""
        places = np.arange(len(self.base))
        noise = _generator(self.seed, 2, cycle).random(len(self.base)) * (self.looseness / 2)
        return self.base[np.argsort(places + noise, kind="stable")]

    def _image(self, chosen: int, draw: int) -> int:
        members = self.members[chosen]
        cycle, place = divmod(draw, len(members))
        return int(self._members(chosen, cycle)[place])

    @lru_cache(maxsize=4096)  # noqa: B019
    def _members(self, chosen: int, cycle: int) -> Indices:
        """Return the order of a class's images in a cycle, such that none of the last batch comes at once again.

        The end of each cycle is left as drawn, so the next cycle's start, which avoids it, depends on no other cycle.
        A small class keeps one order, in which as many images in a row as it has are different.
        """
        members = self.members[chosen]
        if cycle == 0 or len(members) < 3 * self.most:
            return _generator(self.seed, 3 + chosen, 0).permutation(members)
        drawn = _generator(self.seed, 3 + chosen, cycle).permutation(members)
        last = _generator(self.seed, 3 + chosen, cycle - 1).permutation(members)[-self.most :]
        start = drawn[: -self.most]
        recent = np.isin(start, last)
        return np.concatenate([start[~recent], start[recent], drawn[-self.most :]])


class BalancedSampler(_ClassSampler):
    """Every class equally often: once in B / C batches, or B / C times in each.

    Any ceil(C / B) batches in a row hold every class; over an epoch the classes' counts differ by at most 1.
    """

    def __init__(self, labels: ArrayLike, batch_size: int, *, seed: int = 0) -> None:
        n_classes = len(np.unique(np.asarray(labels)))
        span = math.ceil(n_classes / max(1, batch_size)) * batch_size
        super().__init__(labels, batch_size, seed=seed, images_per_turn=1, looseness=span - n_classes)


class PByKSampler(_ClassSampler):
    """K images each of P different classes, P x K = batch size, the classes taking turns.

    A class with fewer than K images repeats them.
    """

    def __init__(self, labels: ArrayLike, batch_size: int, *, seed: int = 0, images_per_class: int = 2) -> None:
        n_classes = len(np.unique(np.asarray(labels)))
        k = checks.count("PByKSampler", "images_per_class", images_per_class, least=2)
        if batch_size % k:
            requirement = f"batch_size must be a multiple of images_per_class = {k}"
            raise InputValueError(checks.wording("PByKSampler", requirement, batch_size))
        if batch_size // k > n_classes:
            requirement = f"images_per_class must be at least {math.ceil(batch_size / n_classes)}"
            remedy = f"{batch_size} slots are more than {k} for each of {n_classes} classes"
            raise InputValueError(checks.wording("PByKSampler", requirement, k, remedy))
        super().__init__(labels, batch_size, seed=seed, images_per_turn=k, looseness=n_classes - batch_size // k)


def make_sampler(name: str, labels: ArrayLike, batch_size: int, *, seed: int = 0, images_per_class: int = 2) -> Sampler:
    """Return a sampler by name; "auto" is p-by-k where classes outnumber half the slots, else shuffle."""
    checks.choice("make_sampler", "sampler", name, SAMPLERS)
    many = len(np.unique(np.asarray(labels))) > batch_size / 2
    if name == "p-by-k" or (name == "auto" and many and batch_size % images_per_class == 0):
        return PByKSampler(labels, batch_size, seed=seed, images_per_class=images_per_class)
    return (BalancedSampler if name == "balanced" else ShuffleSampler)(labels, batch_size, seed=seed)


def _generator(*key: int) -> np.random.Generator:
    return np.random.default_rng(key)
