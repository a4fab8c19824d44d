"""The notebooks in `examples/` run from top to bottom, and are stored with their outputs."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


def shown(cell: object) -> list[str]:
    """Return the kinds of the outputs of a cell, without progress on stderr, which may split a text in two."""
    outputs = [output for output in cell["outputs"] if output.get("name") != "stderr"]  # type: ignore[index]
    return [kind for kind, _ in groupby(output["output_type"] for output in outputs)]


def test_there_are_two() -> None:
    assert len(NOTEBOOKS) == 2


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_and_has_its_outputs(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    stored = [shown(cell) for cell in notebook.cells if cell.cell_type == "code"]
    assert sum(map(len, stored)) >= 3
    assert not any("error" in kinds for kinds in stored)
    nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    assert [shown(cell) for cell in notebook.cells if cell.cell_type == "code"] == stored
