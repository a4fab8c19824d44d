"""Which class each slot of a batch gets, and which image of that class: a function of (seed, step) alone.

Classes take turns; a turn gives one class a few slots in a row. A cycle is one turn of every class; a pass goes once
through all images of a class.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


class ClassSchedule:
    """Cycles through the classes, and within each class through its images.

    The classes follow one base order, shuffled locally so that it is not always the same ones that meet in a batch: two
    turns of a class are a full cycle apart, give or take fewer than `looseness` turns. No class moves across the end of
    an epoch, so every epoch has the class counts of the base order, which over any stretch of turns differ by at most
    one.

    Attributes:
        images_per_turn: Number of slots in a turn.
        looseness: How much the distance between two turns of a class may vary, in turns.
        most: Largest number of images of one class in a batch.
    """

    def __init__(
        self, labels: Indices, batch_size: int, images_per_turn: int, looseness: int, n_batches: int, seed: int
    ) -> None:
        self.images_per_turn, self.looseness, self.seed = images_per_turn, looseness, seed
        self.members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
        self.sizes = np.asarray([len(members) for members in self.members])
        self.turns_per_batch = batch_size // images_per_turn
        self.turns_per_epoch = self.turns_per_batch * n_batches
        self.most = images_per_turn * math.ceil(self.turns_per_batch / len(self.members))
        self.base_order = self._generator(1, 0).permutation(len(self.members))
        self.base_ranks = np.argsort(self.base_order)  # position of each class in the base order
        # Caches of this object alone, so that they are freed with it.
        self._class_order = lru_cache(maxsize=4)(self._make_class_order)
        self._image_order = lru_cache(maxsize=4 * len(self.members))(self._make_image_order)

    def positions(self, step: int) -> Indices:
        """Return the positions of the images in batch `step`."""
        classes, slot_counts = self._slots(step)
        passes, ranks = np.divmod(slot_counts, self.sizes[classes])
        slots = zip(classes.tolist(), passes.tolist(), ranks.tolist(), strict=True)
        return np.asarray([self._image_order(label, nth)[rank] for label, nth, rank in slots], dtype=np.int64)

    def visits(self, step: int) -> Indices:
        """Return, for each image of that batch, how many passes through its class were completed before."""
        classes, slot_counts = self._slots(step)
        visits: Indices = slot_counts // self.sizes[classes]
        return visits

    def _slots(self, step: int) -> tuple[Indices, Indices]:
        """Return the class of each slot, and how many slots that class had before."""
        turns = np.arange(step * self.turns_per_batch, (step + 1) * self.turns_per_batch)
        cycles, ranks = np.divmod(turns, len(self.members))
        classes = [self._class_order(cycle)[ranks[cycles == cycle]] for cycle in np.unique(cycles).tolist()]
        k = self.images_per_turn
        return np.concatenate(classes).repeat(k), (cycles[:, None] * k + np.arange(k)).ravel()

    def _make_class_order(self, cycle: int) -> Indices:
        """Return the order of the classes in a cycle: close to the base order, each class in the same epoch."""
        if not self.looseness:
            return self.base_order
        ranks = np.arange(len(self.base_order))
        epochs = (cycle * len(ranks) + ranks) // self.turns_per_epoch
        jitter = self._generator(2, cycle).random(len(ranks)) * (self.looseness / 2)
        return self.base_order[np.lexsort((ranks + jitter, epochs))]

    def _make_image_order(self, label: int, nth: int) -> Indices:
        """Return the order of a class's images in its nth pass; no batch that spans two passes holds an image twice.

        A pass depends on the random permutation of the pass before, never on the order made from it, so any pass is
        computed directly. Where a batch holds much of a class, a permutation is reused until a pass starts with a new
        batch.
        """
        members, shared = self.members[label], self.most - 1
        if shared == 0 or len(members) < self.most:
            return self._permutation(label, nth)
        if len(members) < 3 * shared:
            while not self._starts_a_batch(label, nth * len(members)):
                nth -= 1
            return self._permutation(label, nth)
        order = self._permutation(label, nth)
        if nth == 0:
            return order
        # The end stays as it was drawn, because the next pass relies on it; images at the start that the last pass had
        # at its end move back, behind the others.
        start, end = order[:-shared], order[-shared:]
        recent = np.isin(start, self._permutation(label, nth - 1)[-shared:])
        return np.concatenate([start[~recent], start[recent], end])

    def _permutation(self, label: int, nth: int) -> Indices:
        return self._generator(3 + label, nth).permutation(self.members[label])

    def _starts_a_batch(self, label: int, slot_count: int) -> bool:
        """Return whether this slot of a class, counted over all batches, is its first in a batch."""
        slot_counts = np.asarray([slot_count - 1, slot_count])
        turns = slot_counts // self.images_per_turn * len(self.members) + self.base_ranks[label]
        before, after = turns // self.turns_per_batch
        return bool(slot_count == 0 or before != after)

    def _generator(self, *key: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, *key))
