"""Cached features are computed once; a killed, damaged or changed cache is completed with the same values."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sincere.data import feature_cache
from sincere.data.feature_cache import BLOCK, cached_features, fill_share
from sincere.errors import DataError
from sincere.records.files import write_atomic

N, D = 2 * BLOCK + 7, 3


class Encoder:
    """Maps positions to features, and counts the samples; fails from some sample on."""

    def __init__(self, most: int = N) -> None:
        self.n_computed, self.most = 0, most

    def __call__(self, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        if positions[-1] >= self.most:
            raise KeyboardInterrupt
        self.n_computed += len(positions)
        return np.stack([positions, positions**2, -positions], axis=1).astype(np.float32)


def values() -> NDArray[np.float32]:
    return Encoder()(np.arange(N))


def test_features_are_computed_once(tmp_path: Path) -> None:
    first, second, steps = Encoder(), Encoder(), list[tuple[int, int]]()
    progress = lambda done, total: steps.append((done, total))  # noqa: E731
    assert np.array_equal(cached_features(tmp_path / "a-1", first, (N, D), progress=progress), values())
    assert np.array_equal(cached_features(tmp_path / "a-1", second, (N, D)), values())
    assert (first.n_computed, second.n_computed) == (N, 0)
    assert steps == [(BLOCK, N), (2 * BLOCK, N), (N, N)]


def test_an_interrupted_computation_resumes(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        cached_features(tmp_path / "a-1", Encoder(most=BLOCK + 1), (N, D))
    rest = Encoder()
    assert np.array_equal(cached_features(tmp_path / "a-1", rest, (N, D)), values())
    assert rest.n_computed == N - BLOCK


@pytest.mark.parametrize("damage", ["flip", "truncate", "mark"])
def test_damaged_blocks_are_computed_again(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "a-1"
    cached_features(path, Encoder(), (N, D))
    file = path / feature_cache.FEATURES
    content = bytearray(file.read_bytes())
    if damage == "flip":
        content[12 * BLOCK + 5] ^= 1
        file.write_bytes(content)
    elif damage == "truncate":
        file.write_bytes(content[:-1])
    else:
        (path / "block-000001").write_text("17")
    again = Encoder()
    assert np.array_equal(cached_features(path, again, (N, D)), values())
    assert again.n_computed == (N if damage == "truncate" else BLOCK)


def test_entries_that_were_not_used_for_longest_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n_bytes = 4 * N * D
    monkeypatch.setattr(feature_cache, "LIMIT_BYTES", 3 * n_bytes)
    for age, name in enumerate(("new", "older", "oldest")):
        cached_features(tmp_path / name, Encoder(), (N, D))
        used = time.time() - age * 2 * feature_cache.IN_USE_SECONDS
        os.utime(tmp_path / name, (used, used))
    cached_features(tmp_path / "another", Encoder(), (N, D))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["another", "new", "older"]
    monkeypatch.setattr(feature_cache, "LIMIT_BYTES", 0)
    cached_features(tmp_path / "last", Encoder(), (N, D))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["another", "last", "new"], "these may be in use"


def test_a_complete_entry_is_only_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a disk that is write-protected; permissions would not stop an administrator."""
    cached_features(tmp_path / "a", Encoder(), (N, D))
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "a").iterdir()}

    def refuse(*arguments: Any, **options: Any) -> None:
        raise OSError(30, "Read-only file system")

    for name in ("mkdir", "write_bytes", "write_text", "unlink"):
        monkeypatch.setattr(Path, name, refuse)
    monkeypatch.setattr(os, "utime", refuse)
    found = cached_features(tmp_path / "a", Encoder(most=0), (N, D))
    assert np.array_equal(found, values())
    found[0] = 17  # of this process alone
    assert np.array_equal(cached_features(tmp_path / "a", Encoder(most=0), (N, D)), values())
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "a").iterdir()} == before


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(DataError, match=r"cached features cannot be written .*; make room or choose another folder"):
        cached_features(tmp_path / "cache" / "a-1", Encoder(), (N, D))


def test_processes_may_write_the_same_mark(tmp_path: Path) -> None:
    """Each writes under a name of its own; under one name, a writer found its file gone."""
    with ThreadPoolExecutor(8) as pool:
        writes = [pool.submit(write_atomic, tmp_path / "block", "1", shared=True) for _ in range(200)]
    assert [write.exception() for write in writes] == [None] * 200
    assert [path.name for path in tmp_path.iterdir()] == ["block"]


def test_progress_of_a_share_is_that_of_its_blocks(tmp_path: Path) -> None:
    steps = list[tuple[int, int]]()
    fill_share(tmp_path / "a-1", Encoder(), (N, D), share=[1, 2], progress=lambda *step: steps.append(step))
    assert steps == [(BLOCK, BLOCK + 7), (BLOCK + 7, BLOCK + 7)]
    rest = list[tuple[int, int]]()
    fill_share(tmp_path / "a-1", Encoder(), (N, D), progress=lambda *step: rest.append(step))
    assert rest == [(N, N)]
