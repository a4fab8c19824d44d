"""`sincere evaluate`: measure the model of a run."""

from __future__ import annotations

from sincere.cli.flags import parse_request
from sincere.records.measuring import EvaluateRequest


def main(arguments: list[str]) -> int:
    """Run the verb."""
    request = parse_request(EvaluateRequest, arguments, verb="evaluate")
    from sincere.workflows.evaluate import run_evaluation

    run_evaluation(request)
    return 0
