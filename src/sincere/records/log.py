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
        """Return the rows; a last line cut off by a kill is not one."""
        if not self.path.exists():
            return []
        rows = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return rows

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
