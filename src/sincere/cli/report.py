"""`sincere report`: write the page of a run, a comparison or a search again from what is stored."""

from __future__ import annotations

from sincere.cli.flags import parse_request
from sincere.errors import DataError
from sincere.messages import Messages
from sincere.records.files import EVALUATION_LOCK, locked
from sincere.records.results import RESULTS
from sincere.records.search import SEARCH
from sincere.settings.evaluation_requests import ReportRequest


def main(arguments: list[str]) -> None:
    """Write the report."""
    request = parse_request(ReportRequest, arguments)
    from sincere.report.page import write_report
    from sincere.report.search_page import write_search_report

    messages = Messages()
    if (request.folder / SEARCH).exists():
        with locked(request.folder):
            messages.say(str(write_search_report(request.folder, figures=request.figures)))
        return
    if not (request.folder / RESULTS).exists():
        raise DataError(f"{request.folder}: holds no {RESULTS}; `sincere evaluate` writes it for a run")
    with locked(request.folder, EVALUATION_LOCK):
        page = write_report(request.folder, figures=request.figures, warn=messages.note)
    messages.say(str(page))
