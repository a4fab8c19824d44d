"""metrics.jsonl: one row for each epoch, without gaps or repeats however often a run was killed."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sincere.records.files import write_atomic

METRICS = "metrics.jsonl"


@dataclass(frozen=True)
class MetricsLog:
    """Rows on disk, in order of their epoch."""

    path: Path

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows; lines that are damaged are left out, such as a last one cut off by a kill."""
        return [row for _, row in self._lines() if isinstance(row, dict)]

    def damaged(self) -> list[int]:
        """Return the numbers of the lines that are damaged, from 1; a last one cut off by a kill is not counted."""
        lines = self._lines()
        if lines and lines[-1][1] is None:
            lines.pop()
        return [number for number, row in lines if not isinstance(row, dict)]

    def _lines(self) -> list[tuple[int, Any]]:
        """Return number and content of every line, None where it is no JSON."""
        if not self.path.exists():
            return []
        found: list[tuple[int, Any]] = []
        text = self.path.read_bytes().decode("utf-8", "replace")
        for number, line in enumerate(text.split("\n")[: -1 if text.endswith("\n") else None], start=1):
            try:
                found.append((number, json.loads(line)))
            except (ValueError, RecursionError):
                found.append((number, None))
        return found

    def keep(self, n_epochs: int) -> list[dict[str, Any]]:
        """Drop what was written after `n_epochs` epochs, when a run goes on from there; return what stays."""
        kept = [row for row in self.rows() if row["epoch"] <= n_epochs]
        write_atomic(self.path, "".join(json.dumps(row) + "\n" for row in kept))
        return kept

    def append(self, row: dict[str, Any]) -> None:
        """Add a row and flush it to disk."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
