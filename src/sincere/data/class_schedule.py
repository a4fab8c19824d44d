"""How classes take turns in the slots of batches, and a class's images in its turns: functions of (seed, step) alone.

A turn gives one class a few slots in a row. A cycle of turns goes once round the classes; a round goes once through the
images of one class.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


class ClassTurns:
    """Slots that go round the classes, and within each class round its images.

    The classes follow one base order, loosened so that not always the same ones meet: a class's turns come less than
    `looseness` turns earlier or later than a full cycle after one another. No class moves across the end of an epoch,
    so each epoch has the counts of the base order, which over any stretch of turns differ by at most one.

    Attributes:
        images_per_turn: Slots of a turn.
        looseness: How much the distance between turns of a class may vary.
        most: Images of one class that a batch can hold.
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
        self.base = self._generator(1, 0).permutation(len(self.members))
        self.places = np.argsort(self.base)  # where each class stands in the base order
        # Per object, so that the last batches' orders go with it.
        self._classes = lru_cache(maxsize=4)(self._draw_classes)
        self._images = lru_cache(maxsize=4 * len(self.members))(self._draw_images)

    def positions(self, step: int) -> Indices:
        """Return the positions of the images in batch `step`."""
        classes, draws = self._slots(step)
        rounds, places = np.divmod(draws, self.sizes[classes])
        slots = zip(classes.tolist(), rounds.tolist(), places.tolist(), strict=True)
        return np.asarray([self._images(chosen, nth)[place] for chosen, nth, place in slots], dtype=np.int64)

    def rounds(self, step: int) -> Indices:
        """Return, for each image of that batch, how often its class was gone through before."""
        classes, draws = self._slots(step)
        rounds: Indices = draws // self.sizes[classes]
        return rounds

    def _slots(self, step: int) -> tuple[Indices, Indices]:
        """Return the class of each slot, and how many slots that class had before."""
        turns = np.arange(step * self.turns_per_batch, (step + 1) * self.turns_per_batch)
        cycles, places = np.divmod(turns, len(self.members))
        classes = [self._classes(cycle)[places[cycles == cycle]] for cycle in np.unique(cycles).tolist()]
        k = self.images_per_turn
        return np.concatenate(classes).repeat(k), (cycles[:, None] * k + np.arange(k)).ravel()

    def _draw_classes(self, cycle: int) -> Indices:
        """Return the order of the classes in a cycle: near the base order, each in the epoch where that has it."""
        if not self.looseness:
            return self.base
        places = np.arange(len(self.base))
        epochs = (cycle * len(places) + places) // self.turns_per_epoch
        noise = self._generator(2, cycle).random(len(places)) * (self.looseness / 2)
        return self.base[np.lexsort((places + noise, epochs))]

    def _draw_images(self, chosen: int, nth: int) -> Indices:
        """Return the order of a class's images in its nth round, such that no batch over two rounds holds one twice.

        Rounds depend on each other at most through what was drawn, never through what was made of it: any is found at
        once. Where a batch holds much of a class, an order stays until a batch ends with it.
        """
        members, shared = self.members[chosen], self.most - 1
        if shared == 0 or len(members) < self.most:
            return self._drawn(chosen, nth)
        if len(members) < 3 * shared:
            while not self._starts_a_batch(chosen, nth * len(members)):
                nth -= 1
            return self._drawn(chosen, nth)
        drawn = self._drawn(chosen, nth)
        if nth == 0:
            return drawn
        # The end stays as drawn, so that the next round knows it; the start has enough others to put first.
        start, end = drawn[:-shared], drawn[-shared:]
        recent = np.isin(start, self._drawn(chosen, nth - 1)[-shared:])
        return np.concatenate([start[~recent], start[recent], end])

    def _drawn(self, chosen: int, nth: int) -> Indices:
        return self._generator(3 + chosen, nth).permutation(self.members[chosen])

    def _starts_a_batch(self, chosen: int, draw: int) -> bool:
        """Tell whether an image of a class stands in another batch than the one before it."""
        draws = np.asarray([draw - 1, draw])
        turns = draws // self.images_per_turn * len(self.members) + self.places[chosen]
        before, after = turns // self.turns_per_batch
        return bool(draw == 0 or before != after)

    def _generator(self, *key: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, *key))
