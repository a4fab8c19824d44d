"""Images decoded once, in parallel, into a memory-mapped array that is found again while its sources are unchanged."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sincere.data.settings import Progress
from sincere.errors import DataError

Decoder = Callable[[], NDArray[np.uint8]]


def cache_key(*parts: object) -> str:
    """Return a name for what these parts describe."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:24]


def file_state(path: Path, root: Path) -> tuple[str, int, int]:
    """Return what changes when a file does: its place, size and time of change."""
    status = path.stat()
    return path.relative_to(root).as_posix(), status.st_size, status.st_mtime_ns


def decoded_array(
    folder: Path,
    key: str,
    decoders: Sequence[Decoder],
    *,
    skip_bad: bool,
    progress: Progress | None = None,
    workers: int | None = None,
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the decoded images (k, h, w, c), memory-mapped, and the positions that could be decoded.

    Decodes all of them unless `folder` holds the result already. The result appears whole or not at all.

    Raises:
        DataError: An image is bad and `skip_bad` is off, or all are.
    """
    place = folder / key
    if not place.exists():
        folder.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=folder, prefix=".unfinished-"))
        try:
            _decode_into(work, decoders, skip_bad=skip_bad, progress=progress, workers=workers)
            if not place.exists():  # else another process was quicker, with the same result
                os.replace(work, place)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    good = np.load(place / "positions.npy")
    return np.load(place / "images.npy", mmap_mode="r")[: len(good)], good


def _decode_into(
    work: Path, decoders: Sequence[Decoder], *, skip_bad: bool, progress: Progress | None, workers: int | None
) -> None:
    def attempt(decoder: Decoder) -> NDArray[np.uint8] | DataError:
        try:
            return decoder()
        except DataError as error:
            if skip_bad:
                return error
            raise

    array, good = None, list[int]()
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        pending = pool.map(attempt, decoders)
        try:
            for position, result in enumerate(pending):
                if progress is not None:
                    progress(position + 1, len(decoders))
                if isinstance(result, DataError):
                    continue
                if array is None:
                    shape = (len(decoders), *result.shape)
                    array = np.lib.format.open_memmap(work / "images.npy", mode="w+", dtype=np.uint8, shape=shape)
                array[len(good)] = result
                good.append(position)
        except DataError:
            pool.shutdown(cancel_futures=True)
            raise
    if array is None:
        raise DataError("none of the images can be read")
    array.flush()
    np.save(work / "positions.npy", np.asarray(good, dtype=np.int64))
