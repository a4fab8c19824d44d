"""Work on many images in threads, a chunk at a time, with the results in order and few of them in memory."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from sincere.data.load_options import Progress

CHUNK = 32  # images that a thread works on as one task
T = TypeVar("T")


def in_order(
    compute: Callable[[range], T], n_images: int, *, progress: Progress | None = None, workers: int | None = None
) -> Generator[T, None, None]:
    """Yield what `compute` returns for each chunk of the positions 0 to n_images - 1, in order.

    Args:
        compute: Called in threads, with the positions of a chunk; at most a few chunks ahead of the reader.
        n_images: Number of images.
        progress: Called with (done, total) before a result is yielded.
        workers: Number of threads; all cores by default.
    """
    n_workers = workers or os.cpu_count() or 1
    chunks = (range(start, min(start + CHUNK, n_images)) for start in range(0, n_images, CHUNK))
    with ThreadPoolExecutor(n_workers) as pool:
        try:
            upcoming: deque[tuple[range, Future[T]]] = deque()
            for chunk in islice(chunks, 2 * n_workers + 1):
                upcoming.append((chunk, pool.submit(compute, chunk)))
            while upcoming:
                chunk, future = upcoming.popleft()
                result = future.result()
                for following in islice(chunks, 1):
                    upcoming.append((following, pool.submit(compute, following)))
                if progress is not None:
                    progress(chunk.stop, n_images)
                yield result
        except BaseException:  # also Ctrl-C and a closed generator: do not wait for the remaining tasks
            pool.shutdown(wait=False, cancel_futures=True)
            raise
