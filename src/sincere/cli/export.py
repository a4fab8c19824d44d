"""`sincere export`: write the model of a run for use elsewhere."""

from __future__ import annotations

from sincere.cli.flags import parse_request
from sincere.settings.use_requests import ExportRequest


def main(arguments: list[str]) -> None:
    """Write the model of a run as ONNX, or as a folder with a model card."""
    request = parse_request(ExportRequest, arguments)
    from sincere.workflows.export import run_export

    run_export(request)
