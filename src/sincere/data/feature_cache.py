"""Computed features on disk: one file that is filled block by block, so that an interrupted computation resumes.

Every finished block has a file with its checksum beside it. A missing or damaged block is computed again. Several
processes may fill the same file: they write the same values.
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sincere.data.cache import allocate
from sincere.data.load_options import Progress
from sincere.errors import DataError, first_line
from sincere.records.files import write_atomic

FEATURES = "features.bin"
BLOCK = 1024  # samples; always the same, because the last bits of a feature may depend on the batch it was computed in

Rows = NDArray[np.float32]
Block = Callable[[NDArray[np.int64]], Rows]


def cached_features(path: Path, compute: Block, shape: tuple[int, ...], *, progress: Progress | None = None) -> Rows:
    """Return features of this shape (n, ...), memory-mapped from the cache entry at `path`.

    Args:
        path: Folder of the entry; other entries whose names begin alike, up to the first "-", are removed.
        compute: Maps positions to their features; called for the blocks that are missing.
        shape: Shape of all features; the first axis counts the samples.
        progress: Called with (done, total) samples while features are computed.

    Raises:
        DataError: The cache cannot be written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        file = path / FEATURES
        n_bytes = 4 * int(np.prod(shape))
        if not file.is_file() or file.stat().st_size != n_bytes:
            _start(path, n_bytes)
        values: Rows = np.memmap(file, dtype=np.float32, mode="r+", shape=shape)
        blocks = [np.arange(start, min(start + BLOCK, shape[0])) for start in range(0, shape[0], BLOCK)]
        missing = [i for i, rows in enumerate(blocks) if not _is_intact(path, i, values[rows[0] : rows[-1] + 1])]
        n_done = shape[0] - sum(len(blocks[i]) for i in missing)
        for i in missing:
            rows = blocks[i]
            computed = np.ascontiguousarray(compute(rows), dtype=np.float32)
            values[rows[0] : rows[-1] + 1] = computed
            values.flush()  # type: ignore[attr-defined]
            write_atomic(path / _mark(i), str(zlib.crc32(computed.data)))
            n_done += len(rows)
            if progress is not None:
                progress(n_done, shape[0])
    except OSError as error:
        remedy = "make room or choose another folder with $SINCERE_HOME"
        raise DataError(f"{path.parent}: cached features cannot be written ({first_line(error)}); {remedy}") from error
    _remove_others(path)
    return values


def _start(path: Path, n_bytes: int) -> None:
    """Allocate an empty file of features, without marks of finished blocks."""
    for mark in path.glob("block-*"):
        mark.unlink(missing_ok=True)
    with (path / FEATURES).open("wb") as file:
        allocate(file, n_bytes)
        file.truncate(n_bytes)


def _mark(block: int) -> str:
    return f"block-{block:06d}"


def _is_intact(path: Path, block: int, values: Rows) -> bool:
    """Return whether a block was finished and is what was written."""
    try:
        return (path / _mark(block)).read_bytes() == str(zlib.crc32(np.ascontiguousarray(values).data)).encode()
    except OSError:
        return False


def _remove_others(path: Path) -> None:
    subject = path.name.split("-")[0]
    for older in path.parent.glob(f"{subject}-*"):
        if older != path and os.path.isdir(older):
            shutil.rmtree(older, ignore_errors=True)
