"""`sincere predict`: classify images with the model of a run."""

from __future__ import annotations

from sincere.cli.flags import parse_request
from sincere.settings.use_requests import PredictRequest


def main(arguments: list[str]) -> None:
    """Classify images with the model of a run."""
    request = parse_request(PredictRequest, arguments)
    from sincere.workflows.predict import run_prediction

    run_prediction(request)
