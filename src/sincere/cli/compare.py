"""`sincere compare`: train several losses on the same data, compare them, write a report."""

from __future__ import annotations

import sys

from rich.console import Console

from sincere.checks import printable
from sincere.cli import INTERRUPTED
from sincere.cli.flags import parse_request
from sincere.data.identity import source_digest
from sincere.records.comparing import ONE_EACH, CompareRequest, stored_results
from sincere.records.results import REPORT
from sincere.report.tables import show


def main(arguments: list[str]) -> int:
    """Run the verb."""
    request = parse_request(CompareRequest, arguments, verb="compare", hidden=[*ONE_EACH, "devices", "nodes"])
    if (stored := stored_results(request, source_digest(request.data, request.data_dir))) is not None:
        if not request.quiet:
            print(printable(f"{request.folder()}: is done already; --overwrite starts over"))
            show(stored, request.folder() / REPORT, Console())
        return 0
    from sincere.training.interruption import InterruptedRunError
    from sincere.workflows.compare import run_comparison

    try:
        run_comparison(request)
    except InterruptedRunError as stopped:
        print(f"sincere: {stopped}; the same command resumes it", file=sys.stderr)
        return INTERRUPTED
    return 0
