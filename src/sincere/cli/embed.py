"""`sincere embed`: write the embeddings of images to a file."""

from __future__ import annotations

from sincere.cli.flags import parse_request
from sincere.settings.use_requests import EmbedRequest


def main(arguments: list[str]) -> None:
    """Write the embeddings of images to a file."""
    request = parse_request(EmbedRequest, arguments)
    from sincere.workflows.embed import run_embedding

    run_embedding(request)
