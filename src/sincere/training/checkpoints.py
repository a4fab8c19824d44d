"""Checkpoints: written atomically, the last two are kept, and an unreadable one is never deleted."""

from __future__ import annotations

import io
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sincere.errors import DataError, first_line
from sincere.records.files import UNFINISHED, atomic_file, is_intact_zip, read_bytes

KEPT = 2
BEST, DAMAGED = "best.pt", ".damaged"
KEYS = {"identity", "progress", "rows", "model", "optimizer", "precision", "random"}  # of a checkpoint


class DamagedError(DataError):
    """A file is missing, or certainly truncated or changed."""


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a run, in one folder."""

    folder: Path

    def save(self, content: Mapping[str, Any], step: int) -> Path:
        """Write the checkpoint of `step` and remove all but the last two."""
        path = self.folder / f"step-{step:09d}.pt"
        _write(content, path)
        for old in self.paths()[:-KEPT]:
            old.unlink(missing_ok=True)
        return path

    def save_best(self, content: Mapping[str, Any]) -> Path:
        """Write the best checkpoint so far."""
        path = self.folder / BEST
        _write(content, path)
        return path

    def paths(self) -> list[Path]:
        """Return the checkpoints, the oldest first."""
        return sorted(self.folder.glob("step-*.pt"))

    def last(self) -> tuple[dict[str, Any] | None, list[str]]:
        """Return the newest intact checkpoint, or None, and a note for each damaged one, which is renamed.

        Raises:
            DataError: A checkpoint cannot be read at the moment, or is of another version; all are left as they are.
        """
        notes: list[str] = []
        for unfinished in self.folder.glob(f".*{UNFINISHED}"):
            unfinished.unlink()
        for path in reversed(self.paths()):
            try:
                return read(path), notes
            except DamagedError as error:
                path.replace(path.with_name(path.name + DAMAGED))
                next_step = "resuming from the one before" if self.paths() else "none is left: starting over"
                notes.append(f"{error}, and was moved aside; {next_step}")
        return None, notes


def read(path: Path) -> dict[str, Any]:
    """Read a checkpoint; nothing in it is executed.

    Raises:
        DamagedError: It is missing, truncated or changed.
        DataError: It cannot be read at the moment, or is not a checkpoint of this version.
    """
    try:
        data = read_bytes(path)
    except FileNotFoundError as error:
        raise DamagedError(f"{path}: is missing") from error
    if not is_intact_zip(data):
        raise DamagedError(f"{path}: is truncated or damaged")
    try:
        content = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # out of memory, or something that weights_only refuses
        reason = first_line(error)
        raise DataError(f"{path}: cannot be loaded ({reason}); it was left as it is") from error
    if not isinstance(content, dict) or not content.keys() >= KEYS:
        raise DataError(f"{path}: is not a checkpoint of this version of sincere; it was left as it is")
    return content


def _write(content: Mapping[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()  # torch.save to a full disk may end the process instead of raising
    torch.save(dict(content), buffer)
    with atomic_file(path) as temporary:
        temporary.write_bytes(buffer.getbuffer())


def random_states() -> dict[str, Any]:
    """Return the state of every random generator, in types that torch.load accepts with weights_only."""
    kind, keys, position, has_gauss, gauss = np.random.get_state()  # which libraries may use
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [str(kind), np.asarray(keys).tolist(), int(position), int(has_gauss), float(gauss)],
        "python": random.getstate(),
    }


def restore_random_states(states: Mapping[str, Any]) -> None:
    """Restore the state of every random generator."""
    torch.set_rng_state(states["torch"])
    if states["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"])
    kind, keys, position, has_gauss, gauss = states["numpy"]
    np.random.set_state((kind, np.asarray(keys, dtype=np.uint32), position, has_gauss, gauss))
    random.setstate(states["python"])
