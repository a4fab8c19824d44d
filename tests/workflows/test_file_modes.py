"""Every file of a run has the mode that the umask gives any new file, so that others can read a shared run."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import sincere
from tests.workflows.conftest import QUICK


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640)])
def test_every_file_of_a_run_has_the_mode_of_the_umask(umask: int, mode: int, data: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    before = os.umask(umask)
    try:
        sincere.train(data=data, out=tmp_path / "run", log=["tensorboard"], validation=0.2, **QUICK)
        sincere.evaluate(tmp_path / "run", probe="both", probe_epochs=1, quiet=True)
    finally:
        os.umask(before)
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    names = {path.relative_to(tmp_path / "run").parts[0] for path in files}
    expected = {"model.safetensors", "embeddings.safetensors", "checkpoints", "tensorboard", "results.json", "figures"}
    assert names >= expected
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in files} == {path.name: mode for path in files}
