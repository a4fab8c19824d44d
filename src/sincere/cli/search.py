"""`sincere search`: find the best hyper-parameters of each loss."""

from __future__ import annotations

from sincere.cli.flags import parse_request
from sincere.errors import MissingPackageError, missing_package
from sincere.settings.search_request import SearchRequest


def main(arguments: list[str]) -> None:
    """Search."""
    request = parse_request(SearchRequest, arguments)
    try:
        import optuna  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingPackageError(missing_package("search", error, extra="search")) from error
    from sincere.workflows.search import run_search

    run_search(request)
