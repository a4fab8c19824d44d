"""`sincere nearest`: show the training images that are nearest to images."""

from __future__ import annotations

from sincere.cli.flags import parse_request
from sincere.settings.use_requests import NearestRequest


def main(arguments: list[str]) -> None:
    """Show the training images that are nearest to images."""
    request = parse_request(NearestRequest, arguments)
    from sincere.workflows.nearest import run_nearest

    run_nearest(request)
