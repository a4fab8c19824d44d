"""The request of a comparison, stored in its folder: comparison.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sincere.errors import DataError
from sincere.records.files import read_json, write_json
from sincere.records.results import REPORT, Results

REQUEST, RUNS = "comparison.json", "runs"


def stored_results(folder: Path, request: dict[str, Any], data: str | None) -> Results | None:
    """Return the results of a comparison if the same request has been done on the same data.

    Args:
        folder: Folder of the comparison.
        request: What decides its results.
        data: Content hash of its data.
    """
    if not (folder / REPORT).exists() or stored_request(folder) != _content(request, data, done=True):
        return None
    try:
        return Results.read(folder)
    except DataError:
        return None


def stored_request(folder: Path) -> dict[str, Any]:
    """Return the request of the comparison in a folder, empty if there is none or it is damaged."""
    try:
        return read_json(folder / REQUEST, remedy="")
    except (DataError, FileNotFoundError):
        return {}


def write_request(folder: Path, request: dict[str, Any], data: str | None, *, done: bool) -> None:
    """Write the request of a comparison, the content hash of its data, and whether it is finished."""
    write_json(folder / REQUEST, _content(request, data, done=done))


def _content(request: dict[str, Any], data: str | None, *, done: bool) -> dict[str, Any]:
    return {"request": request, "data": data, "done": done}
