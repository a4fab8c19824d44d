"""Comparisons that are done already: found and shown without starting torch."""

from __future__ import annotations

from sincere.data.identity import source_digest
from sincere.messages import Messages, is_follower
from sincere.records.comparison import stored_results
from sincere.records.results import REPORT, Results
from sincere.report.tables import show
from sincere.settings.requests import CompareRequest


def finished_comparison(request: CompareRequest, messages: Messages) -> Results | None:
    """Show and return the results of a comparison, if the same request has been done on the same data.

    None with loggers, which may not have them yet.
    """
    folder = request.folder()
    stored = (
        None
        if request.overwrite or request.log
        else stored_results(folder, request.identity(), request_digest(request))
    )
    shared = request.machine.devices * request.machine.nodes > 1
    if stored is not None and not (shared and is_follower()):  # one process speaks
        messages.say(f"{folder}: is done already; --overwrite starts over")
        show(stored, folder / REPORT, messages)
    return stored


def request_digest(request: CompareRequest) -> str | None:
    """Return a hash of the files of the data, and of unknown data if there are any; None where there are no files."""
    known, unknown = request.data.source, request.evaluation.unknown_data
    digest = source_digest(known, request.data.data_dir)
    if unknown is None:
        return digest
    return f"{digest} {source_digest(unknown, request.data.data_dir, may_be_plain=True)}"
