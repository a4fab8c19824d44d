"""The cache on disk: entries that are published atomically, and the decoded images that most of them hold.

An entry is a folder whose name tells its subject (such as the training images of a data set) and the state of its
sources; while the sources are unchanged it is used again, and a new state replaces it. Image files are decoded once, in
parallel, into a memory-mapped array with a checksum of every image. A damaged entry is computed again.
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
from sincere.records.files import LOCK, UNFINISHED, locked, publish_folder
from sincere.records.npz import read_arrays, write_arrays

Pixels = NDArray[np.uint8]
Positions = NDArray[np.int64]
Decoder = Callable[[int], Pixels]

IMAGES, ABOUT = "images.bin", "about.npz"
CHUNK = 32  # images that a thread decodes as one task
STALE_SECONDS = 24 * 3600.0  # age of an unfinished entry without a lock from which on its writer counts as dead


def cache_key(*parts: object) -> str:
    """Return a short content hash of these parts, for the name of an entry."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:24]


def entry_path(folder: Path, subject: tuple[object, ...], state: tuple[object, ...]) -> Path:
    """Return the path of the entry on `subject` whose sources are in `state`."""
    return folder / f"{cache_key(*subject)}-{cache_key(*state)}"


@contextmanager
def new_entry(path: Path) -> Iterator[Path]:
    """Yield a temporary folder, which becomes the entry at `path` on success and is removed on an error.

    Older entries on the same subject are removed as well. An entry that exists at `path` is taken to be damaged.

    Raises:
        DataError: The cache cannot be written: it is not a folder, the disk is full, or permission is denied.
    """
    work = path.parent / f"{UNFINISHED}-{uuid4().hex}"  # with the default mode, so that other users can read the entry
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(path.parent)
        shutil.rmtree(path, ignore_errors=True)
        with locked(work):
            yield work
            (work / LOCK).unlink()
            _publish(work, path)
    except OSError as error:
        remedy = "make room or choose another folder with $SINCERE_HOME"
        raise DataError(f"{path.parent}: cached images cannot be written ({first_line(error)}); {remedy}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _publish(work: Path, path: Path) -> None:
    try:
        publish_folder(work, path)
    except OSError:
        if not path.is_dir():  # else another process published the same entry first
            raise
    subject = path.name.split("-")[0]
    for older in path.parent.glob(f"{subject}-*"):
        if older != path:
            shutil.rmtree(older, ignore_errors=True)


def _remove_stale(folder: Path) -> None:
    """Remove the unfinished entries of killed processes, but none that is still being written."""
    for left in folder.glob(f"{UNFINISHED}-*"):
        try:
            if (left / LOCK).exists():
                with locked(left):  # fails while its writer is alive
                    shutil.rmtree(left, ignore_errors=True)
            elif time.time() - max(path.stat().st_mtime for path in (left, *left.iterdir())) > STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
        except (OSError, DataError):  # its writer has just finished, or is still writing
            continue


@dataclass(frozen=True, eq=False)
class DecodedImages:
    """Decoded images in the cache.

    Attributes:
        pixels: Memory-mapped pixels (k, h, w, c).
        positions: Position of each image in the source (k,), ascending.
        checksums: CRC-32 of each image (k,).
    """

    pixels: Pixels
    positions: Positions
    checksums: NDArray[np.uint32]


def checksums_of(pixels: Pixels) -> NDArray[np.uint32]:
    """Return the CRC-32 of each image."""
    return np.fromiter((zlib.crc32(np.ascontiguousarray(image).data) for image in pixels), np.uint32, len(pixels))


def decoded_images(
    path: Path,
    decode: Decoder,
    n_images: int,
    *,
    source: str,
    skip_bad: bool,
    progress: Progress | None = None,
    workers: int | None = None,
    refresh: bool = False,
) -> DecodedImages:
    """Return the images that `decode` returns for 0 to n_images - 1, from the cache entry at `path` if it is intact.

    Args:
        path: Path of the cache entry.
        decode: Maps a position to pixels.
        n_images: Number of images.
        source: Name of the images, for error messages.
        skip_bad: Whether to leave out images that cannot be decoded, instead of raising.
        progress: Called with (done, total) while images are decoded.
        workers: Number of threads; all cores by default.
        refresh: Whether to decode again although there is an entry, because it is known to be damaged.

    Raises:
        DataError: An image is bad and `skip_bad` is off, or all are; or the cache cannot be written.
    """
    images = None if refresh else _read(path, n_images)
    if images is None:
        with new_entry(path) as work:
            if not _write(work, n_images, _decoded_chunks(decode, n_images, skip_bad, progress, workers)):
                raise DataError(f"{source}: none of the {n_images} images can be read")
        images = _read(path, n_images)
    if images is None:
        raise DataError(f"{path}: was changed by another process while it was written; try again")
    return images


def good_positions(
    path: Path,
    decode: Decoder,
    n_images: int,
    *,
    source: str,
    progress: Progress | None = None,
    workers: int | None = None,
) -> Positions:
    """Return the positions of the images that can be decoded, computed once and kept in the cache entry at `path`.

    Raises:
        DataError: No image can be decoded, or the cache cannot be written.
    """
    stored = _read_about(path, n_images)
    if stored is not None:
        return stored[0]
    with closing(_decoded_chunks(decode, n_images, True, progress, workers)) as chunks:
        good = np.concatenate([positions for positions, _ in chunks] or [np.zeros(0, dtype=np.int64)])
    if not len(good):
        raise DataError(f"{source}: none of the {n_images} images can be read")
    with new_entry(path) as work:
        write_arrays(work / ABOUT, {"positions": good})
    return good


def _read_about(path: Path, n_images: int) -> tuple[Positions, dict[str, NDArray[np.generic]]] | None:
    """Return the stored positions and all arrays of about.npz, or None if anything is missing or damaged."""
    try:
        arrays = read_arrays(path / ABOUT, remedy="")
        positions = arrays["positions"]
    except (DataError, FileNotFoundError, KeyError):
        return None
    sound = positions.dtype == np.int64 and positions.ndim == 1 and 0 < len(positions) <= n_images
    if not sound or positions[0] < 0 or positions[-1] >= n_images or not (np.diff(positions) > 0).all():
        return None
    return positions, arrays


def _read(path: Path, n_images: int) -> DecodedImages | None:
    """Return the images of an entry, or None if anything is missing or damaged; checksums are not verified here."""
    about = _read_about(path, n_images)
    if about is None:
        return None
    positions, arrays = about
    try:
        shape = tuple(int(side) for side in arrays["shape"])
        checksums = arrays["checksums"]
        if checksums.dtype != np.uint32 or checksums.shape != positions.shape or len(shape) != 3:
            return None
        size = (path / IMAGES).stat().st_size
        if size != len(positions) * int(np.prod(shape)):
            return None
        pixels = np.memmap(path / IMAGES, dtype=np.uint8, mode="r", shape=(len(positions), *shape))
    except (OSError, KeyError, TypeError, ValueError):
        return None
    return DecodedImages(pixels, positions, checksums.astype(np.uint32))


def _write(work: Path, n_images: int, chunks: Generator[tuple[Positions, Pixels], None, None]) -> bool:
    """Write the decoded images and return whether there were any."""
    array: Pixels | None = None
    positions, checksums, n_done = list[Positions](), list[NDArray[np.uint32]](), 0
    with closing(chunks):
        for chunk, pixels in chunks:
            if array is None:
                shape = pixels.shape[1:]
                array = _allocated(work / IMAGES, (n_images, *shape))
            array[n_done : n_done + len(chunk)] = pixels
            n_done += len(chunk)
            positions.append(chunk)
            checksums.append(checksums_of(pixels))
    if array is None:
        return False
    array.flush()  # type: ignore[attr-defined]
    os.truncate(work / IMAGES, n_done * int(np.prod(shape)))  # gives back the space of bad images
    about: dict[str, NDArray[Any]] = {"positions": np.concatenate(positions), "shape": np.array(shape)}
    write_arrays(work / ABOUT, {**about, "checksums": np.concatenate(checksums)})
    return True


def _allocated(path: Path, shape: tuple[int, ...]) -> Pixels:
    """Return a new memory-mapped file with its disk space allocated: a full disk would kill the process later."""
    n_bytes = int(np.prod(shape))
    with path.open("w+b") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, n_bytes)
        elif shutil.disk_usage(path.parent).free < n_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        else:
            file.truncate(n_bytes)
    return np.memmap(path, dtype=np.uint8, mode="r+", shape=shape)


def _decoded_chunks(
    decode: Decoder, n_images: int, skip_bad: bool, progress: Progress | None, workers: int | None
) -> Generator[tuple[Positions, Pixels], None, None]:
    """Yield positions and pixels of the images that can be decoded, in order, a chunk at a time."""

    def decode_chunk(start: int) -> tuple[Positions, Pixels]:
        good, pixels = list[int](), list[Pixels]()
        for position in range(start, min(start + CHUNK, n_images)):
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
            starts = iter(range(0, n_images, CHUNK))
            upcoming: deque[Future[tuple[Positions, Pixels]]] = deque()
            for start in starts:
                upcoming.append(pool.submit(decode_chunk, start))
                if len(upcoming) > 2 * n_workers:
                    break
            done = 0
            while upcoming:
                good, pixels = upcoming.popleft().result()
                if (start := next(starts, -1)) >= 0:
                    upcoming.append(pool.submit(decode_chunk, start))
                done = min(done + CHUNK, n_images)
                if progress is not None:
                    progress(done, n_images)
                if len(good):
                    yield good, pixels
        except BaseException:  # also Ctrl-C and a closed generator: do not wait for the remaining tasks
            pool.shutdown(wait=False, cancel_futures=True)
            raise
