"""Computed features on disk: one file that is filled block by block, so that an interrupted computation resumes.

Every finished block has a file with its checksum beside it. A missing or damaged block is computed again. Several
processes may fill the same file: they write the same values. When all entries together grow too large, those are
removed that have not been used for longest.
"""

from __future__ import annotations

import os
import shutil
import time
import zlib
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sincere.data.cache import allocate
from sincere.data.load_options import Progress
from sincere.errors import DataError, first_line
from sincere.records.files import write_atomic

FEATURES = "features.bin"
BLOCK = 256  # samples; always the same, because the last bits of a feature may depend on the batch it was computed in
LIMIT_BYTES = 20 * 10**9  # of all entries
IN_USE_SECONDS = 24 * 3600.0  # entries that were used within this time are not removed

Rows = NDArray[np.float32]
Block = Callable[[NDArray[np.int64]], Rows]


def cached_features(path: Path, compute: Block, shape: tuple[int, ...], *, progress: Progress | None = None) -> Rows:
    """Return features of this shape (n, ...), memory-mapped from the cache entry at `path`.

    A complete entry is only read, so that the disk may be write-protected.

    Args:
        path: Folder of the entry.
        compute: Maps positions to their features; called for the blocks that are missing.
        shape: Shape of all features; the first axis counts the samples.
        progress: Called with (done, total) samples while features are computed.

    Raises:
        DataError: The cache cannot be written.
    """
    fill_share(path, compute, shape, progress=progress)
    with suppress(OSError):
        os.utime(path)  # the time of its last use
    return _mapped(path, shape)


def fill_share(
    path: Path,
    compute: Block,
    shape: tuple[int, ...],
    *,
    share: Collection[int] | None = None,
    progress: Progress | None = None,
) -> None:
    """Compute the blocks that an entry lacks, or those of them whose number is in `share`: see `cached_features`.

    Raises:
        DataError: The cache cannot be written.
    """
    try:
        missing = _missing(path, shape)
        if missing:
            own, chosen = (
                [rows for rows in blocks if share is None or rows.start // BLOCK in share]
                for blocks in (_blocks(shape), missing)
            )
            _fill(path, compute, shape, chosen, _n_rows(own), progress)
    except OSError as error:
        remedy = "make room or choose another folder with $SINCERE_HOME"
        raise DataError(f"{path.parent}: cached features cannot be written ({first_line(error)}); {remedy}") from error


def _fill(
    path: Path, compute: Block, shape: tuple[int, ...], missing: list[slice], n_rows: int, progress: Progress | None
) -> None:
    """Compute the blocks of an entry that are missing of a share of `n_rows`; make the entry if there is none."""
    path.mkdir(parents=True, exist_ok=True)
    file, n_bytes = path / FEATURES, _n_bytes(shape)
    if not file.is_file() or file.stat().st_size != n_bytes:
        make_room(path, n_bytes)
        _start(path, n_bytes)
    values: Rows = np.memmap(file, dtype=np.float32, mode="r+", shape=shape)
    n_done = n_rows - _n_rows(missing)
    for rows in missing:
        computed = np.ascontiguousarray(compute(np.arange(rows.start, rows.stop)), dtype=np.float32)
        values[rows] = computed
        values.flush()  # type: ignore[attr-defined]
        write_atomic(path / _mark(rows), str(zlib.crc32(computed.data)), shared=True)
        n_done += len(computed)
        if progress is not None:
            progress(n_done, n_rows)


def _missing(path: Path, shape: tuple[int, ...]) -> list[slice]:
    """Return the blocks of an entry that were not finished, or are not what was written."""
    blocks = _blocks(shape)
    file = path / FEATURES
    if not file.is_file() or file.stat().st_size != _n_bytes(shape):
        return blocks
    values = _mapped(path, shape)
    return [rows for rows in blocks if not _is_intact(path / _mark(rows), values[rows])]


def _blocks(shape: tuple[int, ...]) -> list[slice]:
    return [slice(start, min(start + BLOCK, shape[0])) for start in range(0, shape[0], BLOCK)]


def _n_rows(blocks: list[slice]) -> int:
    return sum(rows.stop - rows.start for rows in blocks)


def _mapped(path: Path, shape: tuple[int, ...]) -> Rows:
    """Return the values of an entry; changes of them would not reach the file."""
    return np.memmap(path / FEATURES, dtype=np.float32, mode="c", shape=shape)


def _n_bytes(shape: tuple[int, ...]) -> int:
    return 4 * int(np.prod(shape))


def _start(path: Path, n_bytes: int) -> None:
    """Allocate an empty file of features, without marks of finished blocks."""
    for mark in (*path.glob("block-*"), *path.glob(".block-*")):  # those of killed writers, too
        mark.unlink(missing_ok=True)
    with (path / FEATURES).open("wb") as file:
        allocate(file, n_bytes)
        file.truncate(n_bytes)


def _mark(rows: slice) -> str:
    return f"block-{rows.start // BLOCK:06d}"


def _is_intact(mark: Path, values: Rows) -> bool:
    """Return whether a block was finished and is what was written."""
    try:
        return mark.read_bytes() == str(zlib.crc32(np.ascontiguousarray(values).data)).encode()
    except OSError:
        return False


def make_room(path: Path, n_bytes: int) -> None:
    """Remove the entries that were not used for longest, until there is room for one of `n_bytes` within the limit.

    Entries of the last day stay: other processes may be using or filling them.
    """
    sizes = {}
    for entry in path.parent.iterdir():
        with suppress(OSError):  # another process may be removing it
            if entry != path and (entry / FEATURES).is_file():
                sizes[entry] = (entry.stat().st_mtime, (entry / FEATURES).stat().st_size)
    total = n_bytes + sum(size for _, size in sizes.values())
    for entry, (used, size) in sorted(sizes.items(), key=lambda item: item[1]):
        if total <= LIMIT_BYTES or time.time() - used < IN_USE_SECONDS:
            return
        shutil.rmtree(entry, ignore_errors=True)
        total -= size
