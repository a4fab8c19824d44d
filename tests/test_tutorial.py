"""The tutorial "Add a loss" of CONTRIBUTING.md, followed to the letter in a copy of the package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
EDIT = re.compile(
    r"^```python edit\n# (at the end of|after LOSSES in|new file) (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE
)
LOSSES_END = "\n}\nDEFAULT_LOSS"


def follow(folder: Path) -> list[str]:
    """Copy the package and make the edits; return the files that were edited."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    edited = []
    for where, name, code in EDIT.findall((ROOT / "CONTRIBUTING.md").read_text()):
        path = folder / name
        if where == "new file":
            path.parent.mkdir(parents=True)
            path.write_text(code)
        elif where == "at the end of":
            path.write_text(path.read_text() + "\n\n" + code)
        else:
            before, mark, after = path.read_text().partition(LOSSES_END)
            assert mark
            path.write_text(f"{before}\n}}\n{code}DEFAULT_LOSS{after}")
        edited.append(name)
    return edited


@pytest.mark.slow
def test_the_loss_of_the_tutorial_trains_and_compares(tmp_path: Path) -> None:
    assert [Path(name).name for name in follow(tmp_path)] == [
        "equations.py", "modules.py", "loss_catalog.py", "test_alignment_uniformity.py",
    ]  # fmt: skip
    generator, labels = np.random.default_rng(0), np.arange(90) % 3
    features = (3 * np.eye(8)[labels] + generator.normal(size=(90, 8))).astype(np.float32)
    np.savez(tmp_path / "data.npz", features=features, labels=labels)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src"), "SINCERE_HOME": str(tmp_path / "home")}

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "1 passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    out = run(
        *("-m", "sincere.cli", "compare", "--data", "data.npz", "--losses", "sincere", "alignment-uniformity"),
        *("--epochs", "3", "--metrics", "margin", "knn", "--out", "comparison"),
    )
    assert "alignment-uniformity" in out
    assert "Alignment + uniformity" in (tmp_path / "comparison" / "report.html").read_text()
    rows = (tmp_path / "comparison" / "runs" / "alignment-uniformity-0" / "metrics.jsonl").read_text().splitlines()
    assert len(rows) == 3
