"""Text files that are whole or absent."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write aside, flush to disk, rename: a reader sees the old text or the new one, never a part."""
    aside = path.with_name(f".{path.name}.unfinished")
    with aside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
