"""`sincere bench`: measure losses, views, a training step and the neighbour search on this machine."""

from __future__ import annotations

from sincere.cli.flags import parse_request
from sincere.settings.bench_request import BenchRequest


def main(arguments: list[str]) -> None:
    """Measure, show a table and write a file."""
    request = parse_request(BenchRequest, arguments)
    from sincere.workflows.bench import run_bench

    run_bench(request)
