"""Where results are stored, and what they depend on."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import torch

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """Return what the measurements depend on: CPU, threads, memory, versions; no host names, no paths."""
    info = Path("/proc/cpuinfo")
    models = (
        [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.exists()
        else []
    )
    packages = ("torch", "torchvision", "kornia", "pytorch-metric-learning", "faiss-cpu")
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "python": platform.python_version(),
        "system": sys.platform,
        "versions": {name: importlib.metadata.version(name) for name in packages},
        "date": datetime.now(UTC).date().isoformat(),
    }


def write(name: str, results: dict[str, Any]) -> Path:
    """Write results/<name>.json: the measurements and the machine."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), **results}, indent=1) + "\n")
    return path
