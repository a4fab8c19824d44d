"""The theory figures show the rows of the sweeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from sincere.report.theory_figures import bounds_figure, coefficient_range_figure
from sincere.theory.sweeps import SWEEPS, coefficient_ranges, gaussian_sweep
from sincere.workflows.theory import write_theory_figures


def test_the_bounds_of_a_sweep_are_ordered() -> None:
    rows = gaussian_sweep(n_draws=500)
    assert len(rows) == 4 * sum(map(len, SWEEPS.values()))
    by_setting: dict[tuple[str, float], dict[str, float]] = {}
    for row in rows:
        by_setting.setdefault((row["varied"], row["value"]), {})[row["quantity"]] = row["nats"]
        assert row["standard_error"] < 0.2
    for (varied, value), nats in by_setting.items():
        assert nats["bound (paper)"] <= nats["bound (tighter)"] + 1e-9
        assert nats["bound (tighter)"] <= nats["loss"] + 0.3, (varied, value)
    assert by_setting["dimension", 8]["symmetrised KL"] == pytest.approx(8 * 0.5**2)


def test_supcon_range_grows_with_partners() -> None:
    rows = [row for row in coefficient_ranges((1, 4, 64)) if row["loss"] == "SupCon"]
    assert [row["high"] for row in rows] == [0, 0.75, 1 - 1 / 64]
    assert [row["low"] for row in rows] == [-1, -0.25, -1 / 64]


def test_charts_contain_the_rows() -> None:
    panels = bounds_figure(gaussian_sweep(n_draws=10)).to_dict()["hconcat"]
    assert [len(panel["data"]["values"]) for panel in panels] == [4 * len(values) for values in SWEEPS.values()]
    panels = coefficient_range_figure(coefficient_ranges()).to_dict()["hconcat"]
    assert [panel["title"] for panel in panels] == ["SINCERE", "SupCon"]
    assert len(panels[0]["layer"][0]["data"]["values"]) == 10


def test_files(tmp_path: Path) -> None:
    paths = write_theory_figures(tmp_path / "new", n_draws=10)
    assert sorted(path.suffix for path in paths) == [".pdf", ".pdf", ".png", ".png", ".svg", ".svg"]
    starts = {".png": b"\x89PNG", ".svg": b"<svg", ".pdf": b"%PDF"}
    for path in paths:
        assert path.read_bytes().startswith(starts[path.suffix])
