"""Images decoded once, in parallel, into a memory-mapped array that is found again while its sources are unchanged."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sincere.data.entries import new_entry
from sincere.data.settings import Progress
from sincere.errors import DataError

Pixels = NDArray[np.uint8]
Positions = NDArray[np.int64]
Decoder = Callable[[], Pixels]


def file_state(path: Path, root: Path) -> tuple[str, int, int]:
    """Return what changes when a file does: its place, size and time of change. A missing file has -1 for both."""
    name = path.relative_to(root).as_posix()
    try:
        status = path.stat()
    except OSError:
        return name, -1, -1
    return name, status.st_size, status.st_mtime_ns


def decoded_array(
    place: Path,
    decoders: Sequence[Decoder],
    *,
    source: str,
    skip_bad: bool,
    progress: Progress | None = None,
    workers: int | None = None,
) -> tuple[Pixels, Positions]:
    """Return the decoded images (k, h, w, c), memory-mapped, and the positions that could be decoded.

    Decodes all of them unless `place` holds the result already. `source` says in messages what they are.

    Raises:
        DataError: An image is bad and `skip_bad` is off, or all are; or the cache cannot be written.
    """
    found = _read(place)
    if found is None:
        with new_entry(place) as work:
            decoded = _decoded(decoders, skip_bad, progress, workers)
            if not _decode_into(work, len(decoders), decoded):
                raise DataError(f"{source}: none of the {len(decoders)} images can be read")
        found = _read(place)
    if found is None:
        raise DataError(f"{place}: was changed by another process while it was written; try again")
    return found


def good_positions(
    place: Path,
    decoders: Sequence[Decoder],
    *,
    source: str,
    progress: Progress | None = None,
    workers: int | None = None,
) -> Positions:
    """Return the positions that can be decoded, found out once and kept at `place`.

    Raises:
        DataError: None can; or the cache cannot be written.
    """
    path = place / "positions.npy"
    good = read_array(path)
    if good is None:
        with closing(_decoded(decoders, True, progress, workers)) as decoded:
            good = np.asarray([position for position, _ in decoded], dtype=np.int64)
        if not len(good):
            raise DataError(f"{source}: none of the {len(decoders)} images can be read")
        with new_entry(place) as work:
            np.save(work / path.name, good)
    return good


def read_array(path: Path, *, mapped: bool = False) -> NDArray[Any] | None:
    """Return a stored array, or None if it is missing or damaged."""
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r" if mapped else None)
    except (OSError, ValueError, EOFError):
        return None
    return array


def _read(place: Path) -> tuple[Pixels, Positions] | None:
    array, good = read_array(place / "images.npy", mapped=True), read_array(place / "positions.npy")
    return None if array is None or good is None else (array[: len(good)], good)


def _decode_into(work: Path, n_images: int, decoded: Generator[tuple[int, Pixels], None, None]) -> bool:
    """Write the images, and tell whether there were any."""
    array, good = None, list[int]()
    with closing(decoded):
        for position, pixels in decoded:
            if array is None:
                shape = (n_images, *pixels.shape)
                array = np.lib.format.open_memmap(work / "images.npy", mode="w+", dtype=np.uint8, shape=shape)
                _reserve(work / "images.npy")
            array[len(good)] = pixels
            good.append(position)
    if array is None:
        return False
    array.flush()
    np.save(work / "positions.npy", np.asarray(good, dtype=np.int64))
    return True


def _reserve(path: Path) -> None:
    """Take the room of a sparse file now: a full disk under a memory map would kill the process."""
    n_bytes = path.stat().st_size
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, n_bytes)
    elif shutil.disk_usage(path.parent).free < n_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _decoded(
    decoders: Sequence[Decoder], skip_bad: bool, progress: Progress | None, workers: int | None
) -> Generator[tuple[int, Pixels], None, None]:
    """Yield position and pixels of each image that can be decoded, in order."""

    def attempt(decoder: Decoder) -> Pixels | None:
        try:
            return decoder()
        except DataError:
            if skip_bad:
                return None
            raise

    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        try:
            for position, pixels in enumerate(pool.map(attempt, decoders)):
                if progress is not None:
                    progress(position + 1, len(decoders))
                if pixels is not None:
                    yield position, pixels
        except BaseException:  # Ctrl-C too, and the reader's end: do not wait for all the others
            pool.shutdown(wait=False, cancel_futures=True)
            raise
