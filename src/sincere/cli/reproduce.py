"""`sincere reproduce`: the paper's tables and figures with our values beside the paper's."""

from __future__ import annotations

from sincere.cli.flags import parse_request
from sincere.settings.reproduce_request import ReproduceRequest


def main(arguments: list[str]) -> None:
    """Show the tables of an item, and write its page."""
    request = parse_request(ReproduceRequest, arguments)
    from sincere.workflows.reproduce import run_reproduction

    run_reproduction(request)
