"""`sincere transfer`: evaluate the model of a run on another data set."""

from __future__ import annotations

from sincere.cli.flags import parse_request
from sincere.settings.requests import TransferRequest


def main(arguments: list[str]) -> None:
    """Evaluate a run on another data set."""
    request = parse_request(TransferRequest, arguments)
    from sincere.workflows.transfer import run_transfer

    run_transfer(request)
