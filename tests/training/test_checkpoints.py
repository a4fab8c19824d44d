"""Checkpoints are atomic, none is deleted because it is unreadable, and random generators are restored."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from sincere.errors import DataError
from sincere.records import files
from sincere.records.log import MetricsLog
from sincere.training import checkpoints
from sincere.training.checkpoints import KEYS, Checkpoints, random_states, read, restore_random_states


def content(step: int, **more: object) -> dict[str, object]:
    return {name: {} for name in KEYS} | {"step": step, **more}


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    for step in (9, 10, 200):
        store.save(content(step, weights=torch.full((3,), float(step))), step)
    store.save_best(content(9))
    assert [path.name for path in store.paths()] == ["step-000000010.pt", "step-000000200.pt"]
    found, notes = store.last()
    assert found is not None
    assert found["step"] == 200
    assert notes == []
    assert read(tmp_path / "best.pt")["step"] == 9
    assert not list(tmp_path.glob(".*")), "no temporary file is left"


@pytest.mark.parametrize("keep", [0, 10, 700])
def test_a_truncated_checkpoint_is_moved_aside_and_the_one_before_is_used(keep: int, tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    for step in (1, 2):
        newest = store.save(content(step, weights=torch.randn(500)), step)
    cut = newest.read_bytes()[:keep]
    newest.write_bytes(cut)
    found, notes = store.last()
    assert found is not None
    assert found["step"] == 1
    assert notes == [f"{newest}: is truncated or damaged, and was moved aside; resuming from the one before"]
    assert newest.with_name(newest.name + ".damaged").read_bytes() == cut


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    path = store.save(content(1, weights=torch.zeros(500)), 1)
    changed = bytearray(path.read_bytes())
    changed[changed.index(bytes(1000)) + 500] = 1
    path.write_bytes(changed)
    (tmp_path / ".step-000000002.pt.unfinished").write_bytes(b"cut off")
    note = f"{path}: is truncated or damaged, and was moved aside; none is left: starting over"
    assert store.last() == (None, [note])
    assert [left.name for left in tmp_path.iterdir()] == [path.name + ".damaged"]


def denied(self: Path) -> bytes:
    raise PermissionError(13, "Permission denied", str(self))


def no_memory(self: Path) -> bytes:
    raise MemoryError


@pytest.mark.parametrize("fault", [denied, no_memory])
def test_an_unreadable_checkpoint_is_kept(
    fault: Callable[[Path], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Checkpoints(tmp_path)
    for step in (1, 2):
        store.save(content(step), step)
    before = {path: path.stat().st_ino for path in tmp_path.iterdir()}
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", fault)
        with pytest.raises(DataError, match="cannot be read"):
            store.last()
    assert {path: path.stat().st_ino for path in tmp_path.iterdir()} == before
    found, _ = store.last()
    assert found is not None
    assert found["step"] == 2


def test_a_checkpoint_that_does_not_fit_into_memory_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Checkpoints(tmp_path)
    path = store.save(content(1), 1)

    def fail(*args: object, **options: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(checkpoints.torch, "load", fail)
    with pytest.raises(DataError, match=r"cannot be loaded .*it was left as it is"):
        store.last()
    assert path.exists()


@pytest.mark.parametrize("stored", [[1, 2], {"model": {}}, {}])
def test_another_file_is_refused_and_kept(stored: object, tmp_path: Path) -> None:
    path = tmp_path / "step-000000001.pt"
    torch.save(stored, path)
    with pytest.raises(DataError, match="is not a checkpoint of this version of sincere; it was left as it is"):
        Checkpoints(tmp_path).last()
    assert path.exists()


def test_a_missing_folder_has_no_checkpoint(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "missing").last() == (None, [])


def test_nothing_in_a_checkpoint_is_executed(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "executed",))

    path = tmp_path / "step-000000001.pt"
    torch.save({"model": Evil()}, path, pickle_protocol=pickle.HIGHEST_PROTOCOL)
    with pytest.raises(DataError):
        read(path)
    assert not (tmp_path / "executed").exists()


def test_a_failed_write_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Checkpoints(tmp_path)
    path = store.save(content(1), 1)

    def fail(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(OSError, match=rf"No space left on device: '{path}'"):
        store.save(content(1, more=2), 1)
    assert "more" not in read(path)
    assert [left.name for left in tmp_path.iterdir()] == [path.name]


def test_random_generators_are_restored(tmp_path: Path) -> None:
    path = Checkpoints(tmp_path).save(content(1, random=random_states()), 1)
    expected = torch.rand(3), np.random.rand(3), random.random()
    restore_random_states(read(path)["random"])
    assert torch.equal(torch.rand(3), expected[0])
    assert np.array_equal(np.random.rand(3), expected[1])
    assert random.random() == expected[2]


def test_rows_of_the_log(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for epoch in (1, 2, 3):
        log.append({"epoch": epoch, "loss": 0.1 * epoch})
    with log.path.open("a") as file:
        file.write('{"epoch": 4, "lo')  # killed while writing
    assert [row["epoch"] for row in log.rows()] == [1, 2, 3]
    assert log.damaged() == []
    log.rewrite(log.rows()[:2])
    log.append({"epoch": 3})
    assert [row["epoch"] for row in log.rows()] == [1, 2, 3]
    assert MetricsLog(tmp_path / "none").rows() == []


@pytest.mark.parametrize("damage", [b'"loss": 0.3', b"\xff", b"[" * 100_000, b'{"epoch": "two"}', b"[1]"])
def test_a_damaged_line_of_the_log_is_named(damage: bytes, tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for epoch in (1, 2, 3):
        log.append({"epoch": epoch, "loss": 0.2})
    lines = log.path.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"loss": 0.2', damage) if damage.startswith(b'"') else damage + b"\n"
    log.path.write_bytes(b"".join(lines))
    assert [row["epoch"] for row in log.rows()] == [1, 3]
    assert log.damaged() == [2]
