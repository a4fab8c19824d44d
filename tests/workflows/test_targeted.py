"""Runs with a loss that keeps something for each class."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import sincere
from sincere.training import checkpoints
from sincere.workflows.run_folder import RunFolder
from tests.workflows.conftest import QUICK
from tests.workflows.trained_runs import same_weights, stopped_after


def test_a_killed_run_resumes_with_its_targets(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**QUICK, "data": data, "loss": "targeted"}
    sincere.train(out=tmp_path / "whole", **settings)
    stopped_after(3, monkeypatch, out=tmp_path / "part", **settings)
    stored = checkpoints.read(RunFolder(tmp_path / "part").checkpoints.paths()[-1])["loss"]
    assert stored["means"].norm(dim=1).tolist() == pytest.approx([1.0] * 3)
    sincere.train(out=tmp_path / "part", resume=True)
    assert same_weights(tmp_path / "whole", tmp_path / "part")
    ends = [checkpoints.read(RunFolder(tmp_path / name).checkpoints.paths()[-1])["loss"] for name in ("whole", "part")]
    assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())


def test_a_term_of_a_sum(data: str, tmp_path: Path) -> None:
    sincere.train(data=data, loss="targeted + 0.5*infonce", out=tmp_path / "run", target_weight=2.0, **QUICK)
    rows = RunFolder(tmp_path / "run").log.rows()
    assert rows[-1]["term_targeted"] < rows[0]["term_targeted"]
    assert "term_infonce" in rows[0]
