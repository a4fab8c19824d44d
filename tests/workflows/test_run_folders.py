"""The folder of a run is its own: nothing else is removed, and nobody else writes there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sincere
from sincere.errors import DataError, InputValueError
from sincere.workflows.run_folder import RunFolder
from tests.workflows.conftest import QUICK


def test_a_folder_with_another_run_is_refused(data: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(DataError, match="holds no run to resume; leave out resume=True to start one"):
        sincere.train(data=data, out=run, resume=True, quiet=True)
    sincere.train(data=data, out=run, **QUICK)
    with pytest.raises(
        DataError, match="holds a run already; pass resume=True to resume it or overwrite=True to replace it"
    ):
        sincere.train(data=data, out=run, **QUICK)
    with pytest.raises(DataError) as caught:
        sincere.train(out=run, resume=True, temperature=0.2, quiet=True)
    assert str(caught.value) == f"{run}: its run has temperature = 0.1, not 0.2; resume takes the run's settings"
    sincere.train(data=data, out=run, overwrite=True, **{**QUICK, "epochs": 1})
    assert len(RunFolder(run).log.rows()) == 1
    with pytest.raises(InputValueError, match="resume and overwrite exclude each other"):
        sincere.train(data=data, out=run, overwrite=True, resume=True)
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match=r"holds files that are not a run's, such as notes\.txt"):
        sincere.train(data=data, out=other, overwrite=True, **QUICK)
    assert (other / "notes.txt").read_text() == "mine"


def test_overwrite_never_touches_what_is_not_a_runs(data: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "config.toml").write_text("[site]\n")
    (project / "thesis.tex").write_text("mine")
    with pytest.raises(DataError, match=r"such as thesis\.tex"):
        sincere.train(data=data, out=project, overwrite=True, **QUICK)
    assert (project / "thesis.tex").read_text() == "mine"


def test_a_folder_taken_in_between_is_left_alone(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, real = tmp_path / "run", RunFolder.begin

    def late(self: RunFolder, *arguments: Any) -> None:
        (run / "config.toml").write_text('loss = "supcon"\n')  # another process was here first
        real(self, *arguments)

    monkeypatch.setattr(RunFolder, "begin", late)
    with pytest.raises(DataError, match="holds a run already"):
        sincere.train(data=data, out=run, **QUICK)
    assert (run / "config.toml").read_text() == 'loss = "supcon"\n'


def test_two_processes_do_not_share_a_folder(data: str, tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run").locked(), pytest.raises(DataError, match="another process is working in it"):
        sincere.train(data=data, out=tmp_path / "run", **QUICK)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_run_killed_before_it_had_begun_is_started_again(overwrite: bool, data: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "manifest.json").write_text("{}")
    (run / ".config.toml.unfinished").write_text("los")
    assert sincere.train(data=data, out=run, overwrite=overwrite, **QUICK).epochs == 4
    assert not list(run.glob(".*.unfinished"))


@pytest.mark.parametrize(
    "name", ["figures/mine.png", "checkpoints/notes.txt", "transfer/other/mine.txt", "tensorboard/x", "wandb/mine.txt"]
)
def test_overwrite_never_touches_files_in_folders_named_like_ours(name: str, data: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    sincere.train(data=data, out=run, **QUICK)
    (run / name).parent.mkdir(parents=True, exist_ok=True)
    (run / name).write_text("mine")
    with pytest.raises(DataError, match="holds files that are not a"):
        sincere.train(data=data, out=run, overwrite=True, **QUICK)
    assert (run / name).read_text() == "mine"
    assert (run / "model.safetensors").exists()
