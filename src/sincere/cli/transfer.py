"""`sincere transfer`: measure the model of a run on another data set."""

from __future__ import annotations

from sincere.cli.flags import parse_request
from sincere.records.measuring import TransferRequest


def main(arguments: list[str]) -> int:
    """Run the verb."""
    request = parse_request(TransferRequest, arguments, verb="transfer")
    from sincere.workflows.transfer import run_transfer

    run_transfer(request)
    return 0
