"""Input of a report: the results, and the log, map, settings and manifest of each run."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sincere.checks import printable
from sincere.errors import DataError
from sincere.loss_catalog import loss_title
from sincere.records.arrays import MAP, EmbeddingMap
from sincere.records.config import CONFIG, read_config
from sincere.records.files import read_bytes, read_json
from sincere.records.label_issues import LABEL_LIST, LabelList
from sincere.records.log import METRICS, MetricsLog
from sincere.records.manifest import MANIFEST
from sincere.records.results import DataAbout, Results, Row

PLOTTED = ("loss", "chance", "floor", "repulsion_share")  # keys of metrics.jsonl, besides those of live accuracies
LARGEST = 1e100  # value that a chart can show


@dataclass(frozen=True, eq=False)
class Run:
    """A row of the results with the files in its folder.

    Attributes:
        row: Row of results.json.
        log: Rows of metrics.jsonl that can be plotted.
        map: Map of the test embeddings; None with label sets, and where it is missing or damaged.
        config: Text of config.toml, or the settings in the row where there is none.
        manifest: Content of manifest.json; empty where there is none.
        problems: Messages on missing or damaged files, by file name.
        labels: Samples whose label may be wrong; None where they were not looked for.
    """

    row: Row
    log: list[dict[str, Any]]
    map: EmbeddingMap | None
    config: str
    manifest: dict[str, Any]
    problems: dict[str, str]
    labels: LabelList | None

    @property
    def name(self) -> str:
        """Loss and seed."""
        return f"{loss_title(self.row.loss)}, seed {self.row.seed}"


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything that a report shows.

    Attributes:
        results: Content of results.json.
        runs: Runs in the order of the rows of the results.
        files: Whether the figures are also written as files.
    """

    results: Results
    runs: list[Run]
    files: bool

    @cached_property
    def problems(self) -> list[str]:
        """Messages on missing or damaged files, with the run of each."""
        return [f"{run.name}: {text}" for run in self.runs for text in run.problems.values()]

    @cached_property
    def shown(self) -> list[Run]:
        """The first run of each loss, shown where nothing can be averaged over seeds."""
        first: dict[str, Run] = {}
        for run in self.runs:
            first.setdefault(run.row.loss, run)
        return list(first.values())


def read_evidence(folder: Path, *, files: bool) -> Evidence:
    """Read a folder with results.json; other files may be missing or damaged.

    Raises:
        DataError: results.json is missing or damaged.
    """
    results = Results.read(folder)
    n_classes = len(results.data.class_names)
    return Evidence(results, [_read(folder / row.folder, row, n_classes, results.data) for row in results.rows], files)


def _read(folder: Path, row: Row, n_classes: int, data: DataAbout) -> Run:
    problems: dict[str, str] = {}
    embedding_map = None
    try:
        embedding_map = None if data.label_sets else _map(folder, row, n_classes)
    except DataError as error:
        problems[MAP] = printable(str(error))
    log, n_damaged = _log(folder)
    if n_damaged:
        problems[METRICS] = f"{METRICS}: {n_damaged} damaged lines are left out"
    elif len(log) < row.epochs and (folder / METRICS).exists():
        problems[METRICS] = f"{METRICS}: is truncated: it has {len(log)} of {row.epochs} epochs"
    config = _config(folder, row, problems)
    labels = _labels(folder, row, n_classes, data.digest, problems)
    return Run(row, log, embedding_map, config, _manifest(folder, problems), problems, labels)


def _labels(folder: Path, row: Row, n_classes: int, digest: str, problems: dict[str, str]) -> LabelList | None:
    try:
        found = LabelList.read(folder, n_classes)
    except FileNotFoundError:  # nobody has looked for them
        return None
    except DataError as error:
        problems[LABEL_LIST] = printable(str(error))
        return None
    return found if (found.data, found.epochs) == (digest, row.epochs) else None


def _map(folder: Path, row: Row, n_classes: int) -> EmbeddingMap:
    embedding_map = EmbeddingMap.read(folder, row.files.get(MAP))
    labels = (embedding_map.labels, embedding_map.predictions, embedding_map.train_labels)
    if max(array.max(initial=0) for array in labels) >= n_classes:
        raise DataError(f"{folder / MAP}: has labels beyond the {n_classes} classes; evaluate the run again")
    return embedding_map


def _log(folder: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of metrics.jsonl that can be plotted, and the number of lines that cannot."""
    log = MetricsLog(folder / METRICS)
    try:
        rows, damaged = log.rows(), log.damaged()
    except (OSError, ValueError, RecursionError, DataError):
        return [], 1
    drawable = [row for row in rows if is_drawable(row)]
    return drawable, len(damaged) + len(rows) - len(drawable)


def is_drawable(row: Any) -> bool:
    """Return whether a row of metrics.jsonl has an epoch, and its other plotted values are numbers or missing."""
    if not isinstance(row, dict) or not is_number(row.get("epoch")):
        return False
    return all(value is None or is_number(value) or _is_nan(value) for name, value in row.items() if _is_plotted(name))


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number that a chart can show."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)  # of a diverged run: a gap in the curve


def _is_plotted(name: str) -> bool:
    return name in PLOTTED or name.startswith("knn1_")


def _config(folder: Path, row: Row, problems: dict[str, str]) -> str:
    """Return the text of config.toml, or the settings in the row where it is missing or damaged."""
    try:
        read_config(folder)
        text = read_bytes(folder / CONFIG).decode("utf-8", "replace")
    except (FileNotFoundError, DataError) as error:
        if (folder / CONFIG).exists():
            problems[CONFIG] = printable(
                f"{str(error).partition(';')[0]}; the settings in results.json are shown instead"
            )
        text = "\n".join(f"{name} = {json.dumps(value)}" for name, value in row.settings.items() if value is not None)
    return "\n".join(map(printable, text.splitlines()))


def _manifest(folder: Path, problems: dict[str, str]) -> dict[str, Any]:
    try:
        return read_json(folder / MANIFEST, remedy="it is left out")
    except FileNotFoundError:
        return {}
    except DataError as error:
        problems[MANIFEST] = printable(str(error))
        return {}


def command_of(manifest: dict[str, Any]) -> list[str]:
    """Return the arguments of the command in a manifest; empty where it has none."""
    command = manifest.get("command")
    return [printable(str(word)) for word in command] if isinstance(command, list) else []


def facts_of(manifest: dict[str, Any]) -> dict[str, str]:
    """Return the other entries of a manifest as text, including versions."""
    versions = manifest.get("versions")
    plain = {name: value for name, value in manifest.items() if name not in ("versions", "command")}
    facts = {**plain, **(versions if isinstance(versions, dict) else {})}
    return {printable(name): "-" if value is None else printable(str(value)) for name, value in facts.items()}
