"""Comparisons that are done already: found and shown without starting torch."""

from __future__ import annotations

from sincere.data.identity import source_digest
from sincere.messages import Messages
from sincere.records.comparison import stored_results
from sincere.records.results import REPORT, Results
from sincere.report.tables import show
from sincere.settings.requests import CompareRequest


def finished_comparison(request: CompareRequest, messages: Messages) -> Results | None:
    """Show and return the results of a comparison, if the same request has been done on the same data."""
    folder = request.folder()
    digest = source_digest(request.data.source, request.data.data_dir)
    stored = None if request.overwrite else stored_results(folder, request.identity(), digest)
    if stored is not None:
        messages.say(f"{folder}: is done already; --overwrite starts over")
        show(stored, folder / REPORT, messages)
    return stored
