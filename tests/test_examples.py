"""Every program in `examples/` runs as it is, in another folder and without the network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
MEASURED = {  # print a number before and after
    "ddp",
    "hf_trainer",
    "lightning_module",
    "memory_queue",
    "metric_learning",
    "own_loop",
    "sentences",
    "several_labels",
}


def improvement(output: str) -> tuple[float, float] | None:
    """Return the first decimal number of the first line "before ..." and of the last line "after ..."."""
    before, after = (re.findall(rf"^{word}\b.*?(\d+\.\d+)", output, flags=re.MULTILINE) for word in ("before", "after"))
    return (float(before[0]), float(after[-1])) if before and after else None


def test_improvement_is_read_from_the_output() -> None:
    assert improvement("before: 5-NN accuracy 43.8%\nafter 1 epochs: 5-NN 50.0%\nafter 2 epochs: 9-NN 61.5%, 0.1") == (
        43.8,
        61.5,
    )
    assert improvement("loss 0.5") is None


def test_the_examples_are_found() -> None:
    assert {path.stem for path in EXAMPLES} >= MEASURED


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    finished = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.strip()
    measured = improvement(finished.stdout)
    assert measured is not None or path.stem not in MEASURED, finished.stdout
    if measured is not None:
        assert measured[1] > measured[0], finished.stdout
