"""Charts are written as PNG, SVG and PDF, without a browser."""

from __future__ import annotations

from pathlib import Path

from sincere.report.figure_files import save_figure
from sincere.report.theory_figures import coefficient_range_figure
from sincere.theory.sweeps import coefficient_ranges

STARTS = {".png": b"\x89PNG", ".svg": b"<svg", ".pdf": b"%PDF"}


def test_every_format_is_written_and_nothing_else(tmp_path: Path) -> None:
    chart = coefficient_range_figure(coefficient_ranges())
    paths = save_figure(chart, tmp_path / "new", "one")
    assert set(paths) == set((tmp_path / "new").iterdir())
    assert {path.suffix for path in paths} == STARTS.keys()
    for path in paths:
        assert path.read_bytes().startswith(STARTS[path.suffix])
    assert save_figure(chart, tmp_path, "one", formats=("svg",)) == [tmp_path / "one.svg"]
