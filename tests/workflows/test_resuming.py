"""A run can be killed at any moment and goes on to the same end."""

from __future__ import annotations

import random
import re
import signal
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

import sincere
from sincere.errors import DataError
from sincere.records.config import write_config
from sincere.settings.requests import RunSettings
from sincere.workflows.run_folder import RunFolder
from tests.faults.command import Command, Server
from tests.workflows.conftest import QUICK
from tests.workflows.trained_runs import same_weights, stopped_after, weights


@pytest.mark.parametrize("optimizer", ["sgd", "muon"])
@pytest.mark.parametrize("step", [1, 5, 6, 7, 11])
def test_stopped_at_any_step_and_resumed_it_ends_the_same(
    step: int, optimizer: str, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"data": data, "validation": 0.2, "validate_every": 2, "optimizer": optimizer, **QUICK, "batch_size": 16}
    options["unaugmented"] = 0.4  # from step 7 on
    sincere.train(out=tmp_path / "whole", **options)
    stopped_after(step, monkeypatch, out=tmp_path / "parts", **options)
    assert not (tmp_path / "parts" / "summary.json").exists()
    sincere.train(resume=True, out=tmp_path / "parts", quiet=True)
    assert same_weights(tmp_path / "whole", tmp_path / "parts")
    logs = [RunFolder(tmp_path / name).log.rows() for name in ("whole", "parts")]
    timed = ("images_per_second", "data_wait_share", "seconds")
    stripped = [[{k: v for k, v in row.items() if k not in timed} for row in rows] for rows in logs]
    assert stripped[0] == stripped[1]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the fork server needs /proc")
def test_killed_at_random_moments_it_ends_the_same(data: str, tmp_path: Path) -> None:
    """SIGKILL, three times; `make faults` and benchmarks/kill_and_resume.py do more."""
    options = ["--data", data, "--epochs", "40", "--batch-size", "16", "--head", "linear", "--checkpoint-minutes", "0"]
    folder, generator = tmp_path / "parts", random.Random(0)
    log = RunFolder(folder).log
    server = Server(Path(sincere.__file__).parents[1], tmp_path)

    def run(*words: str, rows: int | None = None) -> int:
        """Run a command, killed some time after its log has so many more rows."""
        n_rows = len(log.rows()) + (rows or 0)

        def is_due() -> bool:  # asked often
            return len(log.rows()) >= n_rows and generator.random() < 0.1

        signals = [] if rows is None else [(is_due, signal.SIGKILL)]
        return server.run(Command(["train", *words, "--quiet"], signals=signals)).code

    try:
        assert run(*options, "--out", str(tmp_path / "whole")) == 0
        assert run(*options, "--out", str(folder), rows=generator.randint(2, 8)) == -signal.SIGKILL
        for _ in range(2):
            assert run("--resume", "--out", str(folder), rows=generator.randint(2, 8)) == -signal.SIGKILL
        assert run("--resume", "--out", str(folder)) == 0
    finally:
        server.close()
    assert same_weights(tmp_path / "whole", folder)
    assert [row["epoch"] for row in log.rows()] == list(range(1, 41))


def test_a_truncated_checkpoint_falls_back_and_says_so(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"data": data, "checkpoint_minutes": 0, **QUICK}
    sincere.train(out=tmp_path / "run", **options)
    whole = weights(tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    newest = folder.checkpoints.paths()[-1]
    newest.write_bytes(newest.read_bytes()[:1000])
    sincere.train(resume=True, out=tmp_path / "run", quiet=True)
    said = capsys.readouterr().err.replace("\n", " ")
    assert f"note: {newest}: is truncated or damaged, and was moved aside; resuming from the one before" in said
    again = weights(tmp_path / "run")
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_a_finished_run_is_not_repeated(data: str, tmp_path: Path) -> None:
    first = sincere.train(data=data, out=tmp_path / "run", **QUICK)
    began = time.monotonic()
    again = sincere.train(resume=True, out=tmp_path / "run", quiet=True)
    assert again == first
    assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("temperature = 0.5", "its checkpoint has temperature = 0.1, not 0.5; set it back, or start over"),
        ("dim = 9", "its checkpoint has dim = 8, not 9"),
        ('optimizer = "sgd"', "its checkpoint has optimizer = 'muon', not 'sgd'"),
    ],
)
def test_a_checkpoint_of_another_configuration(
    line: str, message: str, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    stopped_after(5, monkeypatch, data=data, out=run, **QUICK)
    config = (run / "config.toml").read_text()
    name = line.split(" =")[0]
    changed = re.sub(rf"^{name} = .*$", line, config, flags=re.MULTILINE)
    (run / "config.toml").write_text(changed)
    with pytest.raises(DataError, match=r"config\.toml: was damaged or changed since the run began"):
        sincere.train(resume=True, out=run, quiet=True)
    write_config(RunSettings.make(**tomllib.loads(changed)).stored(), run)
    with pytest.raises(DataError) as caught:
        sincere.train(resume=True, out=run, quiet=True)
    assert message in str(caught.value)


def test_changed_data_are_noticed_and_moved_data_are_not_minded(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, moved, other = tmp_path / "run", tmp_path / "elsewhere" / "moved.npz", tmp_path / "other.npz"
    stopped_after(5, monkeypatch, data=data, out=run, **QUICK)
    with np.load(data) as file:
        arrays = dict(file)
    np.savez(other, **{**arrays, "train_images": 255 - arrays["train_images"]})
    with pytest.raises(DataError, match=r"its checkpoint has data \(contents\) = "):
        sincere.train(resume=True, out=run, data=other, quiet=True)
    moved.parent.mkdir()
    np.savez(moved, **arrays)
    assert sincere.train(resume=True, out=run, data=moved, quiet=True).epochs == 4


@pytest.mark.parametrize("damage", ["is truncated or damaged", "is missing"])
def test_a_damaged_best_checkpoint_does_not_keep_a_run_from_its_end(
    damage: str, data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {**QUICK, "batch_size": 16, "validation": 0.2, "validate_every": 1}
    sincere.train(data=data, out=tmp_path / "run", **options)
    (tmp_path / "run" / "summary.json").unlink()
    best = tmp_path / "run" / "checkpoints" / "best.pt"
    best.unlink() if damage == "is missing" else best.write_bytes(b"cut off")
    assert sincere.train(resume=True, out=tmp_path / "run", quiet=True).epochs == 4
    said = " ".join(capsys.readouterr().err.split())
    assert f"best.pt: {damage}; taking the last weights instead of the best" in said


def test_micro_batches_resume(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {**QUICK, "data": data, "micro_batch": 8}
    sincere.train(out=tmp_path / "whole", **options)
    stopped_after(5, monkeypatch, out=tmp_path / "parts", **options)
    sincere.train(out=tmp_path / "parts", resume=True, quiet=True)
    assert same_weights(tmp_path / "whole", tmp_path / "parts")


def test_a_damaged_line_of_the_log_is_written_again(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, options = tmp_path / "run", {**QUICK, "batch_size": 16, "data": data}
    whole = sincere.train(out=tmp_path / "whole", **options)
    stopped_after(8, monkeypatch, out=run, **options)
    log = RunFolder(run).log
    before = log.rows()
    lines = log.path.read_bytes().splitlines(keepends=True)
    assert len(lines) >= 2
    log.path.write_bytes(b"".join([lines[0][:20] + b"?" + lines[0][21:], *lines[1:]]))
    again = sincere.train(resume=True, out=run, quiet=True)
    assert "metrics.jsonl: damaged lines (1) were written again from the checkpoint" in capsys.readouterr().err
    assert log.rows()[: len(before)] == before
    assert again.epochs == whole.epochs


def test_a_damaged_summary_is_written_again(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = sincere.train(data=data, out=tmp_path / "run", **QUICK)
    path = tmp_path / "run" / "summary.json"
    path.write_text(path.read_text().replace('"epochs": 4', '"epochs": 3'))
    assert sincere.train(resume=True, out=tmp_path / "run", quiet=True) == first
    assert "the end of the run is repeated" in capsys.readouterr().err


@pytest.mark.parametrize("side", [1, 2, 4, 7])
def test_tiny_images_train_resume_and_evaluate(side: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    arrays = {
        f"{part}_{name}": values
        for part, n in (("train", 40), ("test", 12))
        for name, values in (
            ("images", generator.integers(0, 256, (n, side, side, 3), dtype=np.uint8)),
            ("labels", np.arange(n) % 2),
        )
    }
    path = tmp_path / "tiny.npz"
    np.savez(path, **arrays)
    stopped_after(3, monkeypatch, data=path, out=tmp_path / "run", **QUICK)
    sincere.train(resume=True, out=tmp_path / "run", quiet=True)
    results = sincere.evaluate(tmp_path / "run", metrics=("knn",), resamples=100, report=False, quiet=True)
    assert results.data.n_test == 12


def test_a_run_is_resumed_with_the_threads_it_began_with(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine with more cores it ends the same."""
    stopped_after(3, monkeypatch, data=data, out=tmp_path / "run", **{**QUICK, "threads": 1})
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    assert sincere.train(resume=True, out=tmp_path / "run", quiet=True).settings.machine.threads == 1


def test_a_damaged_summary_without_checkpoints_is_not_trained_over(data: str, tmp_path: Path) -> None:
    sincere.train(data=data, out=tmp_path / "run", **QUICK)
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        path.unlink()
    (tmp_path / "run" / "summary.json").write_text("{")
    before = weights(tmp_path / "run")
    with pytest.raises(DataError, match="without a checkpoint only overwrite=True makes it again"):
        sincere.train(resume=True, out=tmp_path / "run", quiet=True)
    again = weights(tmp_path / "run")
    assert all(torch.equal(before[name], again[name]) for name in before)
