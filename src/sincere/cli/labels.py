"""`sincere labels`: list images whose label may be wrong."""

from __future__ import annotations

from sincere.cli.flags import parse_request
from sincere.settings.use_requests import LabelsRequest


def main(arguments: list[str]) -> None:
    """List images whose label may be wrong."""
    request = parse_request(LabelsRequest, arguments)
    from sincere.workflows.labels import run_labels

    run_labels(request)
