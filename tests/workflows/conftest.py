"""Small data that train in a moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sincere

# A small, quick run: 60 images of 3 classes, 8 px.
QUICK: dict[str, Any] = {"epochs": 4, "batch_size": 20, "quiet": True, "head": "linear", "dim": 8}


def blobs(path: Path, *, n_train: int = 60, n_test: int = 30, channels: int = 1, side: int = 8) -> str:
    generator = np.random.default_rng(0)
    arrays = {}
    for part, n in (("train", n_train), ("test", n_test)):
        labels = np.arange(n) % 3
        centres = np.array([60, 120, 200])[labels][:, None, None, None]
        noise = generator.normal(0, 25, (n, side, side, channels))
        arrays[f"{part}_images"] = np.clip(centres + noise, 0, 255).astype(np.uint8)
        arrays[f"{part}_labels"] = labels
    np.savez(path, **arrays)
    return str(path)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return blobs(tmp_path_factory.mktemp("data") / "blobs.npz")


@pytest.fixture(scope="session")
def finished(data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, to copy and not to change."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    sincere.train(data=data, out=folder, **QUICK)
    return folder
