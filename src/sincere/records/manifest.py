"""Where a run came from: versions, seed, code, hardware."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from sincere.checks import printable
from sincere.records.files import write_json

MANIFEST = "manifest.json"
MOST_BYTES = 10**7  # of a file of git that is read
PACKAGES = ("sincere", "torch", "torchvision", "lightning-fabric", "numpy", "scipy", "scikit-learn")


def now() -> str:
    """Return the time, as manifests state it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def make_manifest(*, seed: int, device: str, started: str | None = None) -> dict[str, Any]:
    """Return what a reader needs to repeat or doubt a run.

    Args:
        seed: Random seed.
        device: Device that computes.
        started: When the work began that ends now; None where it begins now.
    """
    ended = {} if started is None else {"ended": now()}
    return {
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "device": device,
        "seed": seed,
        "git_commit": _git_commit(),
        "command": [printable(without_password(word)) for word in (Path(sys.argv[0]).name, *sys.argv[1:])],
        "started": started or now(),
        **ended,
    }


def without_password(text: str) -> str:
    """Return text with the passwords of addresses in it replaced by asterisks.

    Example:
        >>> without_password("--storage=postgresql://ann:secret@db/studies")
        '--storage=postgresql://ann:***@db/studies'
        >>> without_password("postgresql://db/studies?user=ann&password=secret")
        'postgresql://db/studies?user=ann&password=***'
    """
    text = re.sub(r"(://[^/\s:@]*:)\S*@", r"\1***@", text)
    return re.sub(r"(?i)([?&]\w*password=)[^&\s]*", r"\1***", text)


def write_manifest(manifest: dict[str, Any], folder: Path) -> None:
    """Write manifest.json."""
    write_json(folder / MANIFEST, manifest)


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if sys.platform == "linux" and info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def _git_commit(folder: Path | None = None) -> str | None:
    """Return the commit that a folder (the current one) has checked out; None outside a repository.

    Read from the repository's files: git itself runs programs that the configuration of a folder names.
    """
    folder = (folder or Path.cwd()).resolve()
    for top in (folder, *folder.parents):
        entry = top / ".git"
        if entry.is_dir():
            return _commit(entry)
        if (text := _line(entry)).startswith("gitdir: "):  # a work tree or a submodule
            return _commit(top / text.removeprefix("gitdir: "))
    return None


def _commit(folder: Path) -> str | None:
    head = _line(folder / "HEAD")
    shared = folder / (_line(folder / "commondir") or ".")
    if head.startswith("ref: "):
        name = head.removeprefix("ref: ")
        inside = not Path(name).is_absolute() and ".." not in Path(name).parts
        candidates = [_line(parent / name) for parent in (folder, shared)] if inside else []
        packed = (line.split() for line in _text(shared / "packed-refs").splitlines())
        candidates += [parts[0] for parts in packed if len(parts) == 2 and parts[1] == name]
        head = next(filter(None, candidates), "")
    return head if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", head) else None


def _line(path: Path) -> str:
    return _text(path).partition("\n")[0].strip()


def _text(path: Path) -> str:
    """Return the text of a small file; empty if there is none."""
    try:
        if not path.is_file() or path.stat().st_size > MOST_BYTES:
            return ""
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return ""
