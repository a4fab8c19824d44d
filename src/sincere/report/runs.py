"""What a report is made of: the results, and of each run its log, map, settings and manifest."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import tomli_w

from sincere.errors import DataError
from sincere.records.arrays import EmbeddingMap
from sincere.records.config import CONFIG
from sincere.records.log import METRICS, MetricsLog
from sincere.records.manifest import MANIFEST
from sincere.records.results import Results, Row
from sincere.report.tables import TITLES


@dataclass(frozen=True, eq=False)
class Run:
    """A row of the results and what lies in its folder.

    Attributes:
        row: Of results.json.
        log: Rows of metrics.jsonl.
        map: None where it is missing or damaged; `map_missing` then says which.
        map_missing: Empty where there is a map.
        config: Text of config.toml, or the settings that the row tells.
        manifest: Empty where there is none.
    """

    row: Row
    log: list[dict[str, Any]]
    map: EmbeddingMap | None
    map_missing: str
    config: str
    manifest: dict[str, Any]

    @property
    def name(self) -> str:
        """Loss and seed."""
        return f"{titled(self.row.loss)}, seed {self.row.seed}"


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything that a report tells.

    Attributes:
        results: Of the folder.
        runs: In the order of the results' rows.
        files: Whether the figures are also written as files.
    """

    results: Results
    runs: list[Run]
    files: bool

    @cached_property
    def shown(self) -> list[Run]:
        """The first run of each loss: what cannot be averaged over seeds is shown of these."""
        first: dict[str, Run] = {}
        for run in self.runs:
            first.setdefault(run.row.loss, run)
        return list(first.values())


def titled(loss: str) -> str:
    """Return the name of a loss as people write it."""
    return TITLES.get(loss, loss)


def read_evidence(folder: Path, *, files: bool) -> Evidence:
    """Return what a folder with results.json holds; other files that are missing leave gaps.

    Raises:
        DataError: There is no results.json, or it is damaged.
    """
    results = Results.read(folder)
    return Evidence(results, [_read(folder / row.folder, row) for row in results.rows], files)


def _read(folder: Path, row: Row) -> Run:
    try:
        embedding_map, missing = EmbeddingMap.read(folder), ""
    except DataError as error:
        embedding_map, missing = None, str(error)
    try:
        config = (folder / CONFIG).read_text(encoding="utf-8")
    except OSError:
        config = tomli_w.dumps({name: value for name, value in row.settings.items() if value is not None})
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        manifest = {}
    return Run(row, MetricsLog(folder / METRICS).rows(), embedding_map, missing, config, manifest)
