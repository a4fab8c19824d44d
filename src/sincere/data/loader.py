"""Data loaders: prefetched batches of augmented views for training, plain batches in order for evaluation."""

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
WORKERS = 2  # prefetching threads: on two cores, a single one has half the throughput


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch of images.

    Attributes:
        images: Views (n, n_views, c, size, size) in [0, 1] for training, else uint8 pixels (n, c, h, w).
        labels: Class of each image (n,).
        ids: Id of each image (n,).
    """

    images: Tensor
    labels: Tensor
    ids: Tensor


@dataclass(frozen=True, eq=False)
class MicroBatchedBatch:
    """A batch whose views are computed in micro-batches, the same ones each time `pieces` is called.

    Attributes:
        labels: Class of each image of the batch (n,).
        pieces: Returns a generator of the micro-batches, in order.
    """

    labels: Tensor
    pieces: Callable[[], Generator[Batch, None, None]]


@dataclass(frozen=True, eq=False)
class ViewLoader:
    """Yields the batches of a training run, from any step on; a batch is a function of (seed, step) alone.

    Attributes:
        images: Images to draw batches from.
        sampler: Which images are in which batch.
        augmentation: How views are made of an image.
        size: Side of the views in pixels.
        seed: Random seed of the augmentation.
        n_views: Number of views of each image.
        device: Where views are computed.
        share: The part of each batch that this process takes, where several processes share a batch.

    Raises:
        InputValueError, InputTypeError: `size`, `seed` or `n_views` is too small, or not an integer.
    """

    images: ImageSet
    sampler: Sampler
    augmentation: Augmentation
    size: int
    seed: int = 0
    n_views: int = 2
    device: torch.device | str = "cpu"
    share: slice = field(default_factory=lambda: WHOLE)

    def __post_init__(self) -> None:
        for argument, least in (("size", 1), ("seed", 0), ("n_views", 1)):
            # As Python integers: numpy's would overflow where random numbers are hashed.
            value = checks.count("ViewLoader", argument, getattr(self, argument), least=least)
            object.__setattr__(self, argument, value)

    def batch(self, step: int, part: slice = WHOLE) -> Batch:
        """Return this process's share of batch `step`, counted from 0 over all epochs, or a part of that share.

        The views of an image do not depend on `share` and `part`.
        """
        chosen, counts = (values[self.share][part] for values in (self.sampler.batch(step), self.sampler.visits(step)))
        images = self.images.images.gather(self.images.positions[chosen]).to(self.device)
        labels, ids, visits = (
            torch.from_numpy(values).to(self.device)
            for values in (self.images.labels[chosen], self.images.ids[chosen], counts)
        )
        views = make_views(images, ids, visits, self.augmentation, size=self.size, seed=self.seed, n_views=self.n_views)
        return Batch(views, labels, ids)

    def batches(self, start: int, end: int) -> Generator[Batch, None, None]:
        """Yield batches `start` to `end` - 1, prefetching the next ones."""
        return self._prefetch(lambda i: self.batch(start + i), end - start)

    def micro_batched_batches(self, start: int, end: int, *, size: int) -> Generator[MicroBatchedBatch, None, None]:
        """Yield batches `start` to `end` - 1 in micro-batches of at most `size` images, computed on demand."""
        for step in range(start, end):
            chosen = self.sampler.batch(step)[self.share]
            n_pieces = self._n_pieces(step, size)
            edges = [len(chosen) * i // n_pieces for i in range(n_pieces + 1)]
            labels = torch.from_numpy(self.images.labels[chosen]).to(self.device)
            yield MicroBatchedBatch(labels, partial(self._prefetch, partial(self._piece, step, edges), n_pieces))

    def _piece(self, step: int, edges: Sequence[int], index: int) -> Batch:
        return self.batch(step, slice(edges[index], edges[index + 1]))

    def _n_pieces(self, step: int, size: int) -> int:
        """Return the number of micro-batches: the same in every process, although shares may differ by an image."""
        n, n_shares = len(self.sampler.batch(step)), self.share.step or 1
        return max(1, min(ceil(ceil(n / n_shares) / size), n // n_shares))

    def _prefetch(self, make: Callable[[int], Batch], n: int) -> Generator[Batch, None, None]:
        """Yield the results of `make` for 0 to n - 1, in order; `WORKERS` threads compute the next ones."""
        n_workers = min(WORKERS, n)
        if n_workers <= 0:
            return
        ready, n_threads = Barrier(n_workers + 1), torch.get_num_threads()

        def start_worker() -> None:
            torch.set_num_threads(1)  # of this worker: more would compete for the same cores
            ready.wait()

        with ThreadPoolExecutor(n_workers, initializer=start_worker) as workers:
            upcoming = deque(workers.submit(make, i) for i in range(n_workers))
            ready.wait()
            torch.set_num_threads(n_threads)  # BLAS has one setting for all threads, which the workers have changed
            try:
                for i in range(n_workers, n + n_workers):
                    if i < n:
                        upcoming.append(workers.submit(make, i))
                    yield upcoming.popleft().result()
            finally:
                workers.shutdown(wait=True, cancel_futures=True)


def plain_batches(images: ImageSet, *, batch_size: int = 512, device: torch.device | str = "cpu") -> Iterator[Batch]:
    """Yield all images once, in order and without augmentation.

    Raises:
        InputValueError: `batch_size` is below 1; raised by the call, not by the first iteration.
    """
    return _in_order(images, checks.count("plain_batches", "batch_size", batch_size, least=1), device)


def _in_order(images: ImageSet, batch_size: int, device: torch.device | str) -> Iterator[Batch]:
    for chosen in np.array_split(np.arange(len(images)), max(1, -(-len(images) // batch_size))):
        pixels = images.images.gather(images.positions[chosen]).to(device)
        labels, ids = (torch.from_numpy(values[chosen]).to(device) for values in (images.labels, images.ids))
        yield Batch(pixels, labels, ids)
