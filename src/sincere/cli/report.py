"""`sincere report`: write the page of a run or a comparison again from what is stored."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass
class Options:
    """Write report.html and figures/ again from stored results; nothing is trained or evaluated."""

    folder: tyro.conf.Positional[Path]
    """Of a run or a comparison: it holds results.json."""
    figures: bool = True
    """Also write the figures as PNG, SVG and PDF."""


def main(arguments: list[str]) -> int:
    """Run the verb."""
    options = tyro.cli(Options, prog="sincere report", args=arguments)
    from sincere.report.page import write_report

    print(write_report(options.folder, figures=options.figures))
    return 0
