"""Images decoded once, in parallel, into a memory-mapped array that is found again while its sources are unchanged.

A checksum of every image is kept beside it. What is damaged is decoded anew.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import time
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from sincere.data.decode import BadImageError
from sincere.data.load_options import Progress
from sincere.errors import DataError, first_line
from sincere.records.files import LOCK, locked
from sincere.records.npz import read_arrays, write_arrays

Pixels = NDArray[np.uint8]
Positions = NDArray[np.int64]
Decoder = Callable[[int], Pixels]
AT_ONCE = 32  # images that one task of a thread decodes

IMAGES, ABOUT = "images.bin", "about.npz"
_UNFINISHED = ".unfinished-"
_STALE_SECONDS = 24 * 3600.0  # without any change, where no lock tells whether its writer is alive


@dataclass(frozen=True, eq=False)
class DecodedImages:
    """Images as the cache holds them.

    Attributes:
        pixels: (k, h, w, c), memory-mapped.
        positions: Which of the source's images they are (k,), ascending.
        checksums: CRC-32 of each (k,).
    """

    pixels: Pixels
    positions: Positions
    checksums: NDArray[np.uint32]


def checksums_of(pixels: Pixels) -> NDArray[np.uint32]:
    """Return the CRC-32 of each image."""
    return np.fromiter((zlib.crc32(np.ascontiguousarray(image).data) for image in pixels), np.uint32, len(pixels))


def decoded_images(
    place: Path,
    decode: Decoder,
    n_images: int,
    *,
    source: str,
    skip_bad: bool,
    progress: Progress | None = None,
    workers: int | None = None,
    anew: bool = False,
) -> DecodedImages:
    """Return the images that `decode` makes of 0 to n_images - 1, from the cache if `place` holds them already.

    Args:
        place: Where the cache keeps them.
        decode: Position to pixels.
        n_images: How many there are.
        source: What they are, for messages.
        skip_bad: Whether to leave out images that cannot be decoded, instead of stopping.
        progress: Told (done, total).
        workers: Threads; all cores by default.
        anew: Whether what is stored is known to be damaged.

    Raises:
        DataError: An image is bad and `skip_bad` is off, or all are; or the cache cannot be written.
    """
    found = None if anew else _read(place, n_images)
    if found is None:
        with new_entry(place) as work:
            if not _decode_into(work, n_images, _decoded(decode, n_images, skip_bad, progress, workers)):
                raise DataError(f"{source}: none of the {n_images} images can be read")
        found = _read(place, n_images)
    if found is None:
        raise DataError(f"{place}: was changed by another process while it was written; try again")
    return found


def good_positions(
    place: Path,
    decode: Decoder,
    n_images: int,
    *,
    source: str,
    progress: Progress | None = None,
    workers: int | None = None,
) -> Positions:
    """Return the positions that can be decoded, found out once and kept at `place`.

    Raises:
        DataError: None can; or the cache cannot be written.
    """
    stored = _about(place, n_images)
    if stored is not None:
        return stored[0]
    with closing(_decoded(decode, n_images, True, progress, workers)) as decoded:
        good = np.concatenate([positions for positions, _ in decoded] or [np.zeros(0, dtype=np.int64)])
    if not len(good):
        raise DataError(f"{source}: none of the {n_images} images can be read")
    with new_entry(place) as work:
        write_arrays(work / ABOUT, {"positions": good})
    return good


def _about(place: Path, n_images: int) -> tuple[Positions, dict[str, NDArray[np.generic]]] | None:
    """Return the stored positions and what else is known, or None if anything is missing or damaged."""
    try:
        arrays = read_arrays(place / ABOUT, remedy="")
        positions = arrays["positions"]
    except (DataError, FileNotFoundError, KeyError):
        return None
    sound = positions.dtype == np.int64 and positions.ndim == 1 and 0 < len(positions) <= n_images
    if not sound or positions[0] < 0 or positions[-1] >= n_images or not (np.diff(positions) > 0).all():
        return None
    return positions, arrays


def _read(place: Path, n_images: int) -> DecodedImages | None:
    found = _about(place, n_images)
    if found is None:
        return None
    positions, arrays = found
    try:
        shape = tuple(int(side) for side in arrays["shape"])
        checksums = arrays["checksums"]
        if checksums.dtype != np.uint32 or checksums.shape != positions.shape or len(shape) != 3:
            return None
        size = (place / IMAGES).stat().st_size
        if size != len(positions) * int(np.prod(shape)):
            return None
        pixels = np.memmap(place / IMAGES, dtype=np.uint8, mode="r", shape=(len(positions), *shape))
    except (OSError, KeyError, TypeError, ValueError):
        return None
    return DecodedImages(pixels, positions, checksums.astype(np.uint32))


def _decode_into(work: Path, n_images: int, decoded: Generator[tuple[Positions, Pixels], None, None]) -> bool:
    """Write the images, and tell whether there were any."""
    array: Pixels | None = None
    positions, checksums, n_done = list[Positions](), list[NDArray[np.uint32]](), 0
    with closing(decoded):
        for some, pixels in decoded:
            if array is None:
                shape = pixels.shape[1:]
                array = _reserved(work / IMAGES, (n_images, *shape))
            array[n_done : n_done + len(some)] = pixels
            n_done += len(some)
            positions.append(some)
            checksums.append(checksums_of(pixels))
    if array is None:
        return False
    array.flush()  # type: ignore[attr-defined]
    os.truncate(work / IMAGES, n_done * int(np.prod(shape)))  # the room of bad images
    about: dict[str, NDArray[Any]] = {"positions": np.concatenate(positions), "shape": np.array(shape)}
    write_arrays(work / ABOUT, {**about, "checksums": np.concatenate(checksums)})
    return True


def _reserved(path: Path, shape: tuple[int, ...]) -> Pixels:
    """Return a new mapped file whose room is taken now: a full disk under a memory map would kill the process."""
    n_bytes = int(np.prod(shape))
    with path.open("w+b") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, n_bytes)
        elif shutil.disk_usage(path.parent).free < n_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        else:
            file.truncate(n_bytes)
    return np.memmap(path, dtype=np.uint8, mode="r+", shape=shape)


def _decoded(
    decode: Decoder, n_images: int, skip_bad: bool, progress: Progress | None, workers: int | None
) -> Generator[tuple[Positions, Pixels], None, None]:
    """Yield positions and pixels of the images that can be decoded, some at a time, in order."""

    def some_from(start: int) -> tuple[Positions, Pixels]:
        good, pixels = list[int](), list[Pixels]()
        for position in range(start, min(start + AT_ONCE, n_images)):
            try:
                pixels.append(decode(position))
                good.append(position)
            except BadImageError:
                if not skip_bad:
                    raise
        return np.asarray(good, dtype=np.int64), np.stack(pixels) if pixels else np.zeros(0, dtype=np.uint8)

    n_workers = workers or os.cpu_count() or 1
    with ThreadPoolExecutor(n_workers) as pool:
        try:
            starts = iter(range(0, n_images, AT_ONCE))
            upcoming: deque[Future[tuple[Positions, Pixels]]] = deque()
            for start in starts:
                upcoming.append(pool.submit(some_from, start))
                if len(upcoming) > 2 * n_workers:
                    break
            done = 0
            while upcoming:
                good, pixels = upcoming.popleft().result()
                if (start := next(starts, -1)) >= 0:
                    upcoming.append(pool.submit(some_from, start))
                done = min(done + AT_ONCE, n_images)
                if progress is not None:
                    progress(done, n_images)
                if len(good):
                    yield good, pixels
        except BaseException:  # Ctrl-C too, and the reader's end: do not wait for all the others
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def cache_key(*parts: object) -> str:
    """Return a name for what these parts describe."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:24]


def entry(folder: Path, subject: tuple[object, ...], state: tuple[object, ...]) -> Path:
    """Return the place of what is kept about `subject` while its sources are in `state`."""
    return folder / f"{cache_key(*subject)}-{cache_key(*state)}"


@contextmanager
def new_entry(place: Path) -> Iterator[Path]:
    """Give a folder to write into; it becomes `place` when the block ends well, and goes when it does not.

    Older entries on the same subject go as well. What stands at `place` already is taken to be damaged.

    Raises:
        DataError: The cache cannot be written: it is no folder, or full, or not ours.
    """
    work = place.parent / f"{_UNFINISHED}{uuid4().hex}"  # made as any folder, so that others may read the result
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(place.parent)
        shutil.rmtree(place, ignore_errors=True)
        with locked(work):
            yield work
            (work / LOCK).unlink()
            _publish(work, place)
    except OSError as error:
        remedy = "make room or choose another folder with $SINCERE_HOME"
        raise DataError(f"{place.parent}: cached images cannot be written ({first_line(error)}); {remedy}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _publish(work: Path, place: Path) -> None:
    try:
        os.replace(work, place)
    except OSError:
        if not place.is_dir():  # else another process was quicker, with the same result
            raise
    subject = place.name.split("-")[0]
    for older in place.parent.glob(f"{subject}-*"):
        if older != place:
            shutil.rmtree(older, ignore_errors=True)


def _remove_stale(folder: Path) -> None:
    """Remove what processes that were killed have left, but nothing that one is still writing."""
    for left in folder.glob(f"{_UNFINISHED}*"):
        try:
            if (left / LOCK).exists():
                with locked(left):  # its writer is gone, and the lock with it
                    shutil.rmtree(left, ignore_errors=True)
            elif time.time() - max(path.stat().st_mtime for path in (left, *left.iterdir())) > _STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
        except (OSError, DataError):  # its process has just finished, or is at work
            continue
