"""Data loaders: prefetched batches of augmented views for training, plain batches in order for evaluation."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from threading import Barrier
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sincere import checks
from sincere.data.dataset import Samples
from sincere.data.feature_storage import Features
from sincere.data.samplers import Sampler
from sincere.data.views import ViewMaker

WHOLE = slice(None)
WORKERS = 2  # prefetching threads: on two cores, a single one has half the throughput


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch of samples.

    Attributes:
        inputs: Views for training, (n, n_views, c, size, size) in [0, 1] or (n, n_views, d) of features; else uint8
            pixels (n, c, h, w) or features (n, d).
        labels: Class of each sample (n,), or label sets (n, L).
        ids: Id of each sample (n,).
    """

    inputs: Tensor
    labels: Tensor
    ids: Tensor


@dataclass(frozen=True, eq=False)
class MicroBatchedBatch:
    """A batch whose views are computed in micro-batches, the same ones each time `pieces` is called.

    Attributes:
        labels: Class of each image of the batch (n,), or label sets (n, L).
        pieces: Returns a generator of the micro-batches, in order.
    """

    labels: Tensor
    pieces: Callable[[], Generator[Batch, None, None]]


@dataclass(frozen=True, eq=False)
class ViewLoader:
    """Yields the batches of a training run, from any step on; a batch is a function of (seed, step) alone.

    Attributes:
        samples: What to draw batches from.
        sampler: Which samples are in which batch.
        make_views: Makes views (n, n_views, ...) of the items, given the id and the visit number of each sample.
        device: Where views are computed.
        share: The part of each batch that this process takes, where several processes share a batch.
        in_threads: Whether `make_views` may run in other threads, while the network computes.
        late_views: Takes the place of `make_views` at the end of the run.
        late_from: First step of that end.
    """

    samples: Samples
    sampler: Sampler
    make_views: ViewMaker
    device: torch.device | str = "cpu"
    share: slice = field(default_factory=lambda: WHOLE)
    in_threads: bool = True
    late_views: ViewMaker | None = None
    late_from: int = 0

    def batch(self, step: int, part: slice = WHOLE) -> Batch:
        """Return this process's share of batch `step`, counted from 0 over all epochs, or a part of that share.

        The views of an image do not depend on `share` and `part`, except those of a caller's own augmentation.
        """
        chosen, counts = (values[self.share][part] for values in (self.sampler.batch(step), self.sampler.visits(step)))
        items = _on_device(self._gather(self.samples.positions[chosen]), self.device)
        labels, ids, visits = (
            _on_device(torch.from_numpy(values), self.device)
            for values in (self.samples.labels[chosen], self.samples.ids[chosen], counts)
        )
        is_late = self.late_views is not None and step >= self.late_from
        make_views = cast(ViewMaker, self.late_views) if is_late else self.make_views
        return Batch(make_views(items, ids, visits), labels, ids)

    def _gather(self, positions: NDArray[np.int64]) -> Tensor:
        items = self.samples.items
        return items.gather_versions(positions) if isinstance(items, Features) else items.gather(positions)

    def batches(self, start: int, end: int) -> Generator[Batch, None, None]:
        """Yield batches `start` to `end` - 1, prefetching the next ones."""
        return self._prefetch(lambda i: self.batch(start + i), end - start)

    def micro_batched_batches(self, start: int, end: int, *, size: int) -> Generator[MicroBatchedBatch, None, None]:
        """Yield batches `start` to `end` - 1 in micro-batches of at most `size` images, computed on demand."""
        for step in range(start, end):
            chosen = self.sampler.batch(step)[self.share]
            n_pieces = self._n_pieces(step, size)
            edges = [len(chosen) * i // n_pieces for i in range(n_pieces + 1)]
            labels = _on_device(torch.from_numpy(self.samples.labels[chosen]), self.device)
            yield MicroBatchedBatch(labels, partial(self._prefetch, partial(self._piece, step, edges), n_pieces))

    def _piece(self, step: int, edges: Sequence[int], index: int) -> Batch:
        return self.batch(step, slice(edges[index], edges[index + 1]))

    def _n_pieces(self, step: int, size: int) -> int:
        """Return the number of micro-batches: the same in every process, although shares may differ by an image."""
        n, n_shares = len(self.sampler.batch(step)), self.share.step or 1
        return max(1, min(ceil(ceil(n / n_shares) / size), n // n_shares))

    def _prefetch(self, make: Callable[[int], Batch], n: int) -> Generator[Batch, None, None]:
        """Yield the results of `make` for 0 to n - 1, in order; `WORKERS` threads compute the next ones."""
        if not self.in_threads:
            yield from map(make, range(n))
            return
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


def plain_batches(samples: Samples, *, batch_size: int = 512, device: torch.device | str = "cpu") -> Iterator[Batch]:
    """Yield all samples once, in order and without augmentation.

    Raises:
        InputValueError: `batch_size` is below 1; raised by the call, not by the first iteration.
    """
    return _in_order(samples, checks.count("plain_batches", "batch_size", batch_size, least=1), device)


def _in_order(samples: Samples, batch_size: int, device: torch.device | str) -> Iterator[Batch]:
    for chosen in np.array_split(np.arange(len(samples)), max(1, -(-len(samples) // batch_size))):
        items = _on_device(samples.items.gather(samples.positions[chosen]), device)
        labels, ids = (_on_device(torch.from_numpy(values[chosen]), device) for values in (samples.labels, samples.ids))
        yield Batch(items, labels, ids)


def _on_device(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Return a tensor on a device; to a GPU it is copied from pinned memory, while the GPU computes something else."""
    target = torch.device(device)
    if target.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(target, non_blocking=target.type == "cuda")
