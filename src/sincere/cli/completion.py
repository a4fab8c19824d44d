"""`sincere completion`: print a script that completes verbs, flags, names and paths in a shell."""

from __future__ import annotations

from cyclopts import App

from sincere.cli import VERBS
from sincere.cli.flags import add_command, parse_request
from sincere.settings.listing_requests import CompletionRequest
from sincere.settings.verbs import REQUESTS


def main(arguments: list[str]) -> None:
    """Print a completion script."""
    request = parse_request(CompletionRequest, arguments)
    print(_all_verbs().generate_completion(shell=request.shell))


def complete(words: list[str]) -> None:
    """Print the candidates for an unfinished command line; the scripts call this as `sincere __complete WORDS`."""
    _all_verbs()(words)


def _all_verbs() -> App:
    app = App(name="sincere", version_flags=[])
    for verb, about in VERBS.items():
        add_command(app, REQUESTS[verb], about=about)
    return app
