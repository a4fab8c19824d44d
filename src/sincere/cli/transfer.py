"""`sincere transfer`: evaluate the model of a run on another data set."""

from __future__ import annotations

from sincere.cli.flags import given_settings
from sincere.settings.evaluation_requests import TransferRequest


def main(arguments: list[str]) -> None:
    """Evaluate a run on another data set."""
    request = TransferRequest.make_complete(**given_settings(TransferRequest, arguments))
    from sincere.workflows.transfer import run_transfer

    run_transfer(request)
