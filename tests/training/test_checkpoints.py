"""Checkpoints are whole or absent, the last two are kept, and every generator goes on where it was."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from sincere.errors import DataError
from sincere.records.log import MetricsLog
from sincere.training import checkpoints
from sincere.training.checkpoints import Checkpoints, random_states, read, restore_random_states


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    for step in (9, 10, 200):
        store.save({"step": step, "weights": torch.full((3,), float(step))}, step)
    store.save_best({"step": 9})
    assert [path.name for path in store.paths()] == ["step-000000010.pt", "step-000000200.pt"]
    content, notes = store.last()
    assert content is not None
    assert content["step"] == 200
    assert notes == []
    assert read(tmp_path / "best.pt")["step"] == 9
    assert not list(tmp_path.glob(".*")), "nothing unfinished stays"


@pytest.mark.parametrize("keep", [0, 10, 700])
def test_a_truncated_one_falls_back_and_says_so(keep: int, tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    for step in (1, 2):
        newest = store.save({"step": step, "weights": torch.randn(500)}, step)
    newest.write_bytes(newest.read_bytes()[:keep])
    content, notes = store.last()
    assert content is not None
    assert content["step"] == 1
    assert notes == [f"{newest}: is cut off or damaged; going back to the one before"]


def test_a_changed_byte_is_noticed_and_the_damaged_one_removed(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    path = store.save({"weights": torch.zeros(500)}, 1)
    content = bytearray(path.read_bytes())
    content[content.index(bytes(1000)) + 500] = 1
    path.write_bytes(content)
    (tmp_path / ".step-000000002.pt.unfinished").write_bytes(b"cut off")
    assert store.last() == (None, [f"{path}: is cut off or damaged; none is left: beginning again"])
    assert not list(tmp_path.iterdir())


def test_none_readable_is_none(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "missing").last() == (None, [])


def test_nothing_is_executed(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "executed",))

    path = tmp_path / "step-000000001.pt"
    torch.save({"model": Evil()}, path, pickle_protocol=pickle.HIGHEST_PROTOCOL)
    with pytest.raises(DataError):
        read(path)
    assert not (tmp_path / "executed").exists()


def test_a_failed_write_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Checkpoints(tmp_path)
    path = store.save({"step": 1}, 1)

    def fail(*args: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(checkpoints.os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        store.save({"step": 1, "more": 2}, 1)
    assert read(path) == {"step": 1}


def test_generators_go_on(tmp_path: Path) -> None:
    path = Checkpoints(tmp_path).save(random_states(), 1)
    expected = torch.rand(3), np.random.rand(3), random.random()
    restore_random_states(read(path))
    assert torch.equal(torch.rand(3), expected[0])
    assert np.array_equal(np.random.rand(3), expected[1])
    assert random.random() == expected[2]


def test_rows_after_the_checkpoint_are_dropped(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for epoch in (1, 2, 3):
        log.append({"epoch": epoch})
    with log.path.open("a") as file:
        file.write('{"epoch": 4, "lo')  # killed while writing
    assert [row["epoch"] for row in log.rows()] == [1, 2, 3]
    assert log.keep(2) == [{"epoch": 1}, {"epoch": 2}]
    log.append({"epoch": 3})
    assert log.path.read_text() == '{"epoch": 1}\n{"epoch": 2}\n{"epoch": 3}\n'
    assert MetricsLog(tmp_path / "none").rows() == []
