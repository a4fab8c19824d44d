"""metrics.jsonl: one row for each epoch, without gaps or repeats however often a run was killed."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sincere.records.files import read_bytes, write_atomic

METRICS = "metrics.jsonl"
CRC = "crc32"  # key of a row's checksum


@dataclass(frozen=True)
class MetricsLog:
    """Rows on disk, in order of their epoch, each with a checksum."""

    path: Path

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows that are intact."""
        return self._read()[0]

    def damaged(self) -> list[int]:
        """Return the numbers of the lines that are damaged; a last line cut off by a kill is not."""
        return self._read()[1]

    def _read(self) -> tuple[list[dict[str, Any]], list[int]]:
        try:
            content = read_bytes(self.path)
        except FileNotFoundError:
            return [], []
        lines = content.split(b"\n")
        rows, damaged = [], []
        for number, line in enumerate(lines, start=1):
            row = _row(line)
            if row is not None:
                rows.append(row)
            elif number < len(lines):
                damaged.append(number)
        return rows, damaged

    def rewrite(self, rows: Sequence[dict[str, Any]]) -> None:
        """Write these rows in place of what is there, when a run resumes."""
        write_atomic(self.path, b"".join(map(_line, rows)))

    def append(self, row: dict[str, Any]) -> None:
        """Add a row and flush it to disk."""
        with self.path.open("ab") as file:
            file.write(_line(row))
            file.flush()
            os.fsync(file.fileno())


def _line(row: dict[str, Any]) -> bytes:
    return json.dumps({**row, CRC: _crc(row)}).encode() + b"\n"


def _row(line: bytes) -> dict[str, Any] | None:
    """Return the row in a line, or None if it holds none or does not match its checksum."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or not isinstance(row.get("epoch"), int):
        return None
    stored = row.pop(CRC, None)
    return row if stored is None or stored == _crc(row) else None


def _crc(row: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(row, sort_keys=True).encode())
