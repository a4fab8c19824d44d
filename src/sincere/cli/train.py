"""`sincere train`: learn an embedding from labelled images."""

from __future__ import annotations

from sincere.cli.flags import given_settings
from sincere.settings.requests import TrainRequest


def main(arguments: list[str]) -> None:
    """Train a model; a resumed run keeps its own settings, except those given explicitly."""
    request = TrainRequest.make_or_resume(**given_settings(TrainRequest, arguments))
    from sincere.workflows.train import run_training

    run_training(request)
