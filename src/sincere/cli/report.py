"""`sincere report`: write the page of a run or a comparison again from what is stored."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from sincere.checks import printable
from sincere.cli.flags import parse_request
from sincere.errors import DataError
from sincere.records.config import Settings
from sincere.records.files import EVALUATION_LOCK, locked
from sincere.records.measuring import POSITIONAL
from sincere.records.results import RESULTS


class ReportRequest(Settings):
    """Write report.html and figures/ again from stored results; nothing is trained or evaluated.

    `sincere report runs/digits-sincere-0` after `sincere evaluate`, or the folder of a comparison or a transfer.
    """

    folder: Path = Field(json_schema_extra=POSITIONAL)
    """That holds results.json."""
    figures: bool = True
    """Also write the figures as PNG, SVG and PDF."""


def main(arguments: list[str]) -> int:
    """Run the verb."""
    request = parse_request(ReportRequest, arguments, verb="report")
    from sincere.report.page import write_report

    if not (request.folder / RESULTS).exists():
        raise DataError(f"{request.folder}: holds no {RESULTS}; `sincere evaluate` writes it for a run")
    with locked(request.folder, EVALUATION_LOCK):
        page = write_report(request.folder, figures=request.figures, warn=lambda text: print(f"note: {text}"))
    print(printable(str(page)))
    return 0
