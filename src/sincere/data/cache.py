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
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from sincere.data.channel_sums import Sums, channel_sums
from sincere.data.chunks import in_order
from sincere.data.decode import BadImageError
from sincere.data.load_options import Progress
from sincere.errors import DataError, first_line
from sincere.records.files import LOCK, UNFINISHED, locked, publish_folder
from sincere.records.npz import read_arrays, write_arrays

Pixels = NDArray[np.uint8]
Positions = NDArray[np.int64]
Decoder = Callable[[int], Pixels]

IMAGES, ABOUT = "images.bin", "about.npz"
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
        pixels: Pixels (k, h, w, c), memory-mapped; on disk the channels of an image follow one another.
        positions: Position of each image in the source (k,), ascending.
        checksums: CRC-32 of each image (k,).
        sums: Sum and sum of squares of the values of each channel, over all images (c, 2).
        fresh: Whether they were decoded just now; their checksums need not be verified.
    """

    pixels: Pixels
    positions: Positions
    checksums: NDArray[np.uint32]
    sums: Sums
    fresh: bool = False


def checksums_of(pixels: Pixels) -> NDArray[np.uint32]:
    """Return the CRC-32 of each image (h, w, c), one channel after the other."""
    planes = pixels.transpose(0, 3, 1, 2)
    return np.fromiter((zlib.crc32(np.ascontiguousarray(image).data) for image in planes), np.uint32, len(planes))


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
            chunks = in_order(partial(_decode_chunk, decode, skip_bad), n_images, progress=progress, workers=workers)
            if not _write(work, n_images, chunks):
                raise DataError(f"{source}: none of the {n_images} images can be read")
        images = _read(path, n_images)
        if images is not None:
            images = replace(images, fresh=True)
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
    with closing(in_order(partial(_good_in, decode), n_images, progress=progress, workers=workers)) as chunks:
        good = np.concatenate([np.zeros(0, dtype=np.int64), *chunks])
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
        checksums, sums = arrays["checksums"], arrays["sums"]
        if checksums.dtype != np.uint32 or checksums.shape != positions.shape or len(shape) != 3:
            return None
        if sums.dtype != np.int64 or sums.shape != (shape[0], 2):
            return None
        size = (path / IMAGES).stat().st_size
        if size != len(positions) * int(np.prod(shape)):
            return None
        planes = np.memmap(path / IMAGES, dtype=np.uint8, mode="c", shape=(len(positions), *shape))
    except (OSError, KeyError, TypeError, ValueError):
        return None
    pixels = planes.transpose(0, 2, 3, 1)
    return DecodedImages(pixels, positions, checksums.astype(np.uint32), sums.astype(np.int64))


@dataclass(frozen=True, eq=False)
class _Chunk:
    """Decoded images with consecutive positions, as in `DecodedImages`; planes are (k, c, h, w)."""

    positions: Positions
    planes: Pixels
    checksums: NDArray[np.uint32]
    sums: Sums


def _write(work: Path, n_images: int, chunks: Generator[_Chunk | None, None, None]) -> bool:
    """Write the decoded images and return whether there were any."""
    positions, checksums, sums = list[Positions](), list[NDArray[np.uint32]](), list[Sums]()
    with closing(chunks), (work / IMAGES).open("wb") as file:
        for chunk in chunks:
            if chunk is None:
                continue
            if not positions:
                shape = chunk.planes.shape[1:]
                allocate(file, n_images * int(np.prod(shape)))
            file.write(chunk.planes.data)
            positions.append(chunk.positions)
            checksums.append(chunk.checksums)
            sums.append(chunk.sums)
        file.truncate()  # gives back the space of bad images
    if not positions:
        return False
    about: dict[str, NDArray[Any]] = {"positions": np.concatenate(positions), "shape": np.array(shape)}
    write_arrays(work / ABOUT, {**about, "checksums": np.concatenate(checksums), "sums": np.sum(sums, axis=0)})
    return True


def allocate(file: IO[bytes], n_bytes: int) -> None:
    """Allocate disk space for a new file: a full disk is noticed now, and not after an hour."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, n_bytes)
    elif shutil.disk_usage(file.name).free < n_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _decode_chunk(decode: Decoder, skip_bad: bool, positions: range) -> _Chunk | None:
    """Return the images at these positions that can be decoded; None if there are none.

    Raises:
        BadImageError: One cannot be decoded, and `skip_bad` is off.
    """
    good, planes = list[int](), None
    for position in positions:
        try:
            pixels = decode(position)
        except BadImageError:
            if not skip_bad:
                raise
            continue
        channels_first = pixels.transpose(2, 0, 1)
        if planes is None:
            planes = np.empty((len(positions), *channels_first.shape), dtype=np.uint8)
        planes[len(good)] = channels_first  # copied here, while the CPU's cache holds the pixels
        good.append(position)
    if planes is None or not good:
        return None
    planes = planes[: len(good)]
    sums = np.sum([channel_sums(planes[i]) for i in range(len(good))], axis=0)
    return _Chunk(np.asarray(good, dtype=np.int64), planes, checksums_of(planes.transpose(0, 2, 3, 1)), sums)


def _good_in(decode: Decoder, positions: range) -> Positions:
    """Return those of the positions whose images can be decoded."""
    good = []
    for position in positions:
        with suppress(BadImageError):
            decode(position)
            good.append(position)
    return np.asarray(good, dtype=np.int64)
