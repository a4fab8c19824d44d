"""Large inputs, measured in processes of their own: seconds, and the peak of memory beyond the input.

`python -m tests.faults.load neighbours` prints a line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
N_QUERIES, N_REFERENCES, DIMENSION, N_CLASSES = 10_000, 1_000_000, 128, 1000
N_BATCH, N_PICTURES, N_FOLDERS = 65_536, 100_000, 100


def measure(source: Path, threads: int) -> dict[str, Any]:
    """Return all measurements, each from a fresh process."""
    found = {}
    for name in MEASUREMENTS:
        variables = {f"{library}_NUM_THREADS": str(threads) for library in ("OMP", "MKL", "OPENBLAS")}
        environment = {**os.environ, **variables, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}"}
        command = [sys.executable, "-m", "tests.faults.load", name]
        ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1200)
        last = (ended.stderr.strip().splitlines() or ["?"])[-1]
        found[name] = json.loads(ended.stdout.splitlines()[-1]) if ended.returncode == 0 else {"error": last}
    return found


def _timed(run: Callable[[], object]) -> dict[str, Any]:
    """Return seconds and peak of memory beyond what was there before."""
    from sincere.device_memory import peak_bytes

    before, start = peak_bytes(), time.perf_counter()
    run()
    return {
        "seconds": round(time.perf_counter() - start, 2),
        "extra_peak_gb": round((peak_bytes() - before) / 1e9, 3),
        "peak_gb": round(peak_bytes() / 1e9, 3),
    }


def neighbours() -> dict[str, Any]:
    """Neighbours of 10,000 queries among 1,000,000 references of 128 dimensions."""
    import torch
    from torch.nn.functional import normalize

    from sincere.evaluation.neighbours import find_neighbours

    generator = torch.Generator().manual_seed(0)
    sizes = (N_QUERIES, N_REFERENCES)
    queries, references = (normalize(torch.randn(n, DIMENSION, generator=generator), dim=1) for n in sizes)
    query_labels, labels = (torch.randint(N_CLASSES, (n,), generator=generator) for n in sizes)
    return _timed(lambda: find_neighbours(queries, query_labels, references, labels, ks=(1, 5)))


def loss() -> dict[str, Any]:
    """SINCERE, value and gradient, of 65,536 embeddings of 128 dimensions."""
    import torch

    from sincere import sincere_loss

    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(N_BATCH, DIMENSION, generator=generator, requires_grad=True)
    labels = torch.randint(N_CLASSES, (N_BATCH,), generator=generator)
    sincere_loss(embeddings[:256], labels[:256]).backward()
    embeddings.grad = None
    return _timed(lambda: sincere_loss(embeddings, labels).backward())


def folder() -> dict[str, Any]:
    """A folder of 100,000 small pictures: listed and cached, then listed again."""
    with tempfile.TemporaryDirectory() as place:
        pictures = Path(place) / "pictures"
        _write_pictures(pictures)
        os.environ["SINCERE_HOME"] = str(Path(place) / "home")
        from sincere.data.catalog import load_source
        from sincere.data.load_options import LoadOptions

        settings = LoadOptions(size=8)
        first = _timed(lambda: load_source(pictures, settings))
        again = _timed(lambda: load_source(pictures, settings))
        cached = sum(path.stat().st_size for path in (Path(place) / "home").rglob("*") if path.is_file())
    return {"first": first, "again": again, "cached_bytes_per_image": round(cached / N_PICTURES, 1)}


def _write_pictures(folder: Path) -> None:
    """Write copies of a few pictures under many names."""
    import io

    import numpy as np
    from PIL import Image

    generator = np.random.default_rng(0)
    templates = []
    for number in range(N_FOLDERS):
        (folder / f"class{number:03d}").mkdir(parents=True)
        file = io.BytesIO()
        Image.fromarray(generator.integers(0, 256, (10, 10, 3), dtype=np.uint8)).save(file, "PNG")
        templates.append(file.getvalue())
    for i in range(N_PICTURES):
        path = folder / f"class{i % N_FOLDERS:03d}" / f"{i:06d}.png"
        path.write_bytes(templates[i // N_FOLDERS % len(templates)])


def report() -> dict[str, Any]:
    """A report of three losses, 1,000 classes and 50,000 test images."""
    from benchmarks.load import report_load

    with tempfile.TemporaryDirectory() as place:
        found = report_load(Path(place), n_classes=1000, n_test=50_000)
    return {name: round(value, 1) for name, value in found.items()}


MEASUREMENTS: dict[str, Callable[[], dict[str, Any]]] = {
    "neighbours": neighbours,
    "loss": loss,
    "folder": folder,
    "report": report,
}

if __name__ == "__main__":
    print(json.dumps(MEASUREMENTS[sys.argv[1]]()))
