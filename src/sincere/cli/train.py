"""`sincere train`: learn an embedding from labelled images."""

from __future__ import annotations

from sincere.cli.flags import given_settings
from sincere.records.config import CONFIG, read_config
from sincere.settings.requests import TrainRequest


def main(arguments: list[str]) -> None:
    """Run the verb; a resumed run keeps its own settings, but for those that are given."""
    given = given_settings(TrainRequest, arguments)
    request = TrainRequest.make(**given)
    if request.resume and (request.folder() / CONFIG).exists():
        request = TrainRequest.make(**{**read_config(request.folder()), **given})
    from sincere.workflows.train import run_training

    run_training(request)
