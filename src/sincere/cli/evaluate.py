"""`sincere evaluate`: evaluate the model of a run."""

from __future__ import annotations

from sincere.cli.flags import parse_request
from sincere.settings.evaluation_requests import EvaluateRequest


def main(arguments: list[str]) -> None:
    """Evaluate a run."""
    request = parse_request(EvaluateRequest, arguments)
    from sincere.workflows.evaluate import run_evaluation

    run_evaluation(request)
