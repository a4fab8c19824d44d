"""`sincere search`: find the best hyper-parameters of each loss."""

from __future__ import annotations

from sincere.cli.flags import parse_request
from sincere.settings.search_request import SearchRequest


def main(arguments: list[str]) -> None:
    """Search."""
    request = parse_request(SearchRequest, arguments)
    from sincere.workflows.search import run_search

    run_search(request)
