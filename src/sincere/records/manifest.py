"""Where a run came from: versions, seed, code, hardware."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from sincere.records.files import write_atomic

MANIFEST = "manifest.json"
PACKAGES = ("sincere", "torch", "torchvision", "lightning-fabric", "numpy", "scipy", "scikit-learn")


def make_manifest(*, seed: int, device: str) -> dict[str, Any]:
    """Return what a reader needs to repeat or doubt a run."""
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
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def write_manifest(manifest: dict[str, Any], folder: Path) -> None:
    """Write manifest.json."""
    write_atomic(folder / MANIFEST, json.dumps(manifest, indent=1) + "\n")


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if sys.platform == "linux" and info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def _git_commit() -> str | None:
    """Return the commit of the working folder, with a mark if files differ from it; None outside a repository."""
    try:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True, timeout=10)
        changed = subprocess.run(
            ["git", "status", "--porcelain"], capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return commit.stdout.strip() + ("-changed" if changed.stdout.strip() else "")
