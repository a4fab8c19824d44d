"""`sincere compare`: train several losses on the same data, compare them, write a report."""

from __future__ import annotations

from sincere.cli.flags import given_settings
from sincere.messages import Messages
from sincere.settings.requests import CompareRequest
from sincere.workflows.finished import finished_comparison


def main(arguments: list[str]) -> None:
    """Compare losses; a comparison that is done already is shown without starting torch."""
    request = CompareRequest.make_complete(**given_settings(CompareRequest, arguments))
    messages = Messages(quiet=request.quiet)
    if finished_comparison(request, messages) is not None:
        return
    from sincere.workflows.compare import run_comparison

    run_comparison(request, messages)
