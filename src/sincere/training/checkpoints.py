"""Checkpoints that are whole or absent: written aside, flushed to disk, renamed; the last two are kept."""

from __future__ import annotations

import os
import pickle
import random
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sincere.errors import DataError

KEPT = 2
BEST = "best.pt"
_UNREADABLE = (OSError, EOFError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError, zipfile.BadZipFile)


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a run, in one folder."""

    folder: Path

    def save(self, content: Mapping[str, Any], step: int) -> Path:
        """Write a checkpoint of `step` and remove all but the last two."""
        path = self.folder / f"step-{step:09d}.pt"
        write_whole(content, path)
        for old in self.paths()[:-KEPT]:
            old.unlink(missing_ok=True)
        return path

    def save_best(self, content: Mapping[str, Any]) -> Path:
        """Write the best checkpoint so far."""
        path = self.folder / BEST
        write_whole(content, path)
        return path

    def paths(self) -> list[Path]:
        """Return the checkpoints, the oldest first."""
        return sorted(self.folder.glob("step-*.pt"))

    def last(self) -> tuple[dict[str, Any] | None, list[str]]:
        """Return the newest readable checkpoint, or None; and a note for each that was not, and is removed."""
        notes: list[str] = []
        for unfinished in self.folder.glob(".*.unfinished"):
            unfinished.unlink()
        for path in reversed(self.paths()):
            try:
                return read(path), notes
            except DataError as error:
                path.unlink()
                left = "going back to the one before" if self.paths() else "none is left: beginning again"
                notes.append(f"{error}; {left}")
        return None, notes


def read(path: Path) -> dict[str, Any]:
    """Read a checkpoint; nothing in it is executed.

    Raises:
        DataError: It is cut off or damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        content: dict[str, Any] = {} if damaged else torch.load(path, map_location="cpu", weights_only=True)
    except _UNREADABLE as error:
        raise DataError(f"{path}: is cut off or damaged") from error
    if damaged:
        raise DataError(f"{path}: is cut off or damaged")
    return content


def write_whole(content: Mapping[str, Any], path: Path) -> None:
    """Write, flush to disk, rename: a reader sees the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.unfinished")
    with aside.open("wb") as file:
        torch.save(dict(content), file)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def random_states() -> dict[str, Any]:
    """Return the state of every random generator, in types that load without executing anything."""
    kind, keys, position, has_gauss, gauss = np.random.get_state()  # libraries may use it
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [str(kind), np.asarray(keys).tolist(), int(position), int(has_gauss), float(gauss)],
        "python": random.getstate(),
    }


def restore_random_states(states: Mapping[str, Any]) -> None:
    """Set every random generator as it was."""
    torch.set_rng_state(states["torch"])
    if states["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"])
    kind, keys, position, has_gauss, gauss = states["numpy"]
    np.random.set_state((kind, np.asarray(keys, dtype=np.uint32), position, has_gauss, gauss))
    random.setstate(states["python"])
