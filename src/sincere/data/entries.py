"""Entries of the cache: folders that appear atomically, and go when newer ones replace them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from sincere.errors import DataError, first_line
from sincere.records.files import LOCK, locked

_UNFINISHED = ".unfinished-"
_STALE_SECONDS = 24 * 3600.0  # without any change, where no lock tells whether its writer is alive


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
