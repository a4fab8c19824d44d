"""`sincere compare`: train several losses on the same data, compare them, write a report."""

from __future__ import annotations

from sincere.cli.flags import parse_request
from sincere.data.identity import source_digest
from sincere.messages import Messages
from sincere.records.comparison import stored_results
from sincere.records.results import REPORT
from sincere.report.tables import show
from sincere.settings.requests import CompareRequest


def main(arguments: list[str]) -> None:
    """Run the verb; a comparison that is done already is shown without starting torch."""
    request = parse_request(CompareRequest, arguments)
    folder, messages = request.folder(), Messages(quiet=request.quiet)
    digest = source_digest(request.data.source, request.data.data_dir)
    if not request.overwrite and (stored := stored_results(folder, request.identity(), digest)) is not None:
        messages.say(f"{folder}: is done already; --overwrite starts over")
        if not request.quiet:
            show(stored, folder / REPORT, messages.console)
        return
    from sincere.workflows.compare import run_comparison

    run_comparison(request, messages)
