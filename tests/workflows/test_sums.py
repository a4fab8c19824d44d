"""Runs with a sum of losses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import sincere
from sincere.cli import main
from sincere.workflows.run_folder import RunFolder
from tests.workflows.conftest import QUICK
from tests.workflows.trained_runs import same_weights, stopped_after


@pytest.mark.parametrize("loss", ["sincere + 0.5*cross-entropy", "0.35*sincere + 0.65*infonce"])
def test_a_run_with_a_sum(loss: str, data: str, tmp_path: Path) -> None:
    result = sincere.train(data=data, loss=loss, out=tmp_path / "run", **{**QUICK, "epochs": 10})
    rows = RunFolder(tmp_path / "run").log.rows()
    names = {f"term_{part.rpartition('*')[2].strip()}" for part in loss.split("+")}
    assert names <= rows[0].keys()
    assert sum(rows[-1][name] for name in names) < sum(rows[0][name] for name in names)
    assert result.settings.loss.name == loss.replace(" ", "")
    assert result.knn1_test > 0.8
    # The classifier has served its purpose: the stored model gives embeddings, in training mode, too.
    model = result.model().network
    assert not any(name.startswith("classifier") for name in model.state_dict())
    assert model.train()(torch.zeros(2, 1, 8, 8)).shape == (2, 8)


def test_a_killed_run_resumes_with_its_classifier(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**QUICK, "data": data, "loss": "sincere+0.5*cross-entropy"}
    sincere.train(out=tmp_path / "whole", **settings)
    stopped_after(3, monkeypatch, out=tmp_path / "part", **settings)
    sincere.train(out=tmp_path / "part", resume=True)
    assert same_weights(tmp_path / "whole", tmp_path / "part")


def test_the_command_line_names_a_wrong_term(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--loss", "sincere + 0.5*cross-entrpy"]) == 2
    assert "Did you mean 'cross-entropy'?" in capsys.readouterr().err
