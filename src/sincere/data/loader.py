"""Batches of views for training, made ahead in a background thread; plain batches for evaluation, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from threading import Barrier

import numpy as np
import torch
from torch import Tensor

from sincere import checks
from sincere.catalog import Augmentation
from sincere.data.dataset import ImageSet
from sincere.data.samplers import Sampler
from sincere.data.views import make_views

WHOLE = slice(None)
WORKERS = 2  # threads that make batches: one alone delivers half as much on two cores


@dataclass(frozen=True, eq=False)
class Batch:
    """Images: (n, views, c, size, size) in [0, 1] in training, uint8 (n, c, h, w) otherwise; labels and ids (n,)."""

    images: Tensor
    labels: Tensor
    ids: Tensor


@dataclass(frozen=True, eq=False)
class PiecedBatch:
    """A batch whose views are made piece by piece, the same ones each time `pieces` is called.

    Attributes:
        labels: Of all its images.
        pieces: Makes the pieces, in order.
    """

    labels: Tensor
    pieces: Callable[[], Generator[Batch, None, None]]


@dataclass(frozen=True, eq=False)
class ViewLoader:
    """The batches of a training run, from any step on; a batch is a function of (seed, step) alone.

    Raises:
        InputValueError, InputTypeError: `size`, `seed` or `n_views` is not such a number.
    """

    images: ImageSet
    sampler: Sampler
    augmentation: Augmentation
    size: int
    seed: int = 0
    n_views: int = 2
    device: torch.device | str = "cpu"
    share: slice = field(default_factory=lambda: WHOLE)  # of each batch, where several processes take a part of it

    def __post_init__(self) -> None:
        for argument, least in (("size", 1), ("seed", 0), ("n_views", 1)):
            # Plain integers from here on: numpy's overflow where the draws are hashed.
            value = checks.count("ViewLoader", argument, getattr(self, argument), least=least)
            object.__setattr__(self, argument, value)

    def batch(self, step: int, part: slice = WHOLE) -> Batch:
        """Return the share of batch `step`, counted from 0 over all epochs, or a part of it.

        Views do not depend on share or part.
        """
        chosen, rounds = (values[self.share][part] for values in (self.sampler.batch(step), self.sampler.rounds(step)))
        images = self.images.images.gather(self.images.positions[chosen]).to(self.device)
        labels, ids, shown = (
            torch.from_numpy(values).to(self.device)
            for values in (self.images.labels[chosen], self.images.ids[chosen], rounds)
        )
        views = make_views(images, ids, shown, self.augmentation, size=self.size, seed=self.seed, n_views=self.n_views)
        return Batch(views, labels, ids)

    def batches(self, start: int, end: int) -> Generator[Batch, None, None]:
        """Yield batches `start` to `end` - 1, the next ones being made while one is used."""
        return self._ahead(lambda i: self.batch(start + i), end - start)

    def pieced_batches(self, start: int, end: int, *, size: int) -> Generator[PiecedBatch, None, None]:
        """Yield batches `start` to `end` - 1 in pieces of at most `size` images, made when they are asked for."""
        for step in range(start, end):
            chosen = self.sampler.batch(step)[self.share]
            n_pieces = self._n_pieces(step, size)
            edges = [len(chosen) * i // n_pieces for i in range(n_pieces + 1)]
            labels = torch.from_numpy(self.images.labels[chosen]).to(self.device)
            yield PiecedBatch(labels, partial(self._ahead, partial(self._piece, step, edges), n_pieces))

    def _piece(self, step: int, edges: Sequence[int], number: int) -> Batch:
        return self.batch(step, slice(edges[number], edges[number + 1]))

    def _n_pieces(self, step: int, size: int) -> int:
        """Return how many pieces a share has: as many in every process, whose shares may differ by an image."""
        n, n_shares = len(self.sampler.batch(step)), self.share.step or 1
        return max(1, min(ceil(ceil(n / n_shares) / size), n // n_shares))

    def _ahead(self, make: Callable[[int], Batch], n: int) -> Generator[Batch, None, None]:
        """Yield what `make` returns for 0 to n - 1, in order; `WORKERS` calls run ahead in threads."""
        n_makers = min(WORKERS, n)
        if n_makers <= 0:
            return
        ready, n_threads = Barrier(n_makers + 1), torch.get_num_threads()

        def begin() -> None:
            torch.set_num_threads(1)  # for this thread: more would only wait for each other
            ready.wait()

        with ThreadPoolExecutor(n_makers, initializer=begin) as makers:
            upcoming = deque(makers.submit(make, number) for number in range(n_makers))
            ready.wait()
            torch.set_num_threads(n_threads)  # matrix products share one number, which the makers have set
            try:
                for number in range(n_makers, n + n_makers):
                    if number < n:
                        upcoming.append(makers.submit(make, number))
                    yield upcoming.popleft().result()
            finally:
                makers.shutdown(wait=True, cancel_futures=True)


def plain_batches(images: ImageSet, *, batch_size: int = 512, device: torch.device | str = "cpu") -> Iterator[Batch]:
    """Yield all images once, in order, un-augmented, as stored.

    Raises:
        InputValueError: `batch_size` is below 1; at once, not when the first batch is asked for.
    """
    return _in_order(images, checks.count("plain_batches", "batch_size", batch_size, least=1), device)


def _in_order(images: ImageSet, batch_size: int, device: torch.device | str) -> Iterator[Batch]:
    for chosen in np.array_split(np.arange(len(images)), max(1, -(-len(images) // batch_size))):
        pixels = images.images.gather(images.positions[chosen]).to(device)
        labels, ids = (torch.from_numpy(values[chosen]).to(device) for values in (images.labels, images.ids))
        yield Batch(pixels, labels, ids)
