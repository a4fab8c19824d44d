"""The figures of docs/explanation/theory.md: `python -m sincere.workflows.theory FOLDER`."""

from __future__ import annotations

import argparse
from pathlib import Path

from sincere.records.results import FIGURE_FORMATS
from sincere.report.figure_files import save_figure
from sincere.report.theory_figures import bounds_figure, coefficient_range_figure
from sincere.theory.sweeps import coefficient_ranges, gaussian_sweep


def write_theory_figures(folder: Path, *, n_draws: int = 4000, formats: tuple[str, ...] = FIGURE_FORMATS) -> list[Path]:
    """Compute the sweeps, draw them and return the files written."""
    bounds = bounds_figure(gaussian_sweep(n_draws=n_draws))
    ranges = coefficient_range_figure(coefficient_ranges())
    return [
        *save_figure(bounds, folder, "theory-bounds", formats=formats),
        *save_figure(ranges, folder, "theory-coefficients", formats=formats),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write the figures, as SVG")
    for path in write_theory_figures(parser.parse_args().folder, formats=("svg",)):
        print(path)
