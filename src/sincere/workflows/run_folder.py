"""The folder of a run: whether it may be written to, what is in it, and whether it is the run that was asked for."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sincere.errors import DataError, InputValueError
from sincere.models.embedding import SPEC, WEIGHTS
from sincere.records.arrays import MAP, PER_IMAGE
from sincere.records.config import CONFIG, TrainRequest, TrainSettings, differing, read_settings, write_config
from sincere.records.files import write_atomic
from sincere.records.log import METRICS, MetricsLog
from sincere.records.manifest import MANIFEST, make_manifest, write_manifest
from sincere.records.results import CSV, FIGURES, REPORT, RESULTS
from sincere.training.board import BOARD
from sincere.training.checkpoints import Checkpoints

SUMMARY, CHECKPOINTS, LOCK = "summary.json", "checkpoints", ".lock"
SUMMARY_KEYS = {"epochs", "seconds", "train_loss", "knn1_test", "data"}
EMBEDDINGS, TRANSFER = "embeddings.safetensors", "transfer"
PROBES = {"linear": "linear.safetensors", "linear_paper": "linear_paper.safetensors"}  # classifiers, by their metric
MEASURED = {RESULTS, CSV, PER_IMAGE, MAP, EMBEDDINGS, *PROBES.values(), REPORT, FIGURES}  # what an evaluation writes
TRAINED = {CONFIG, MANIFEST, METRICS, CHECKPOINTS, BOARD, SPEC, WEIGHTS, SUMMARY}
NAMES = {*TRAINED, *MEASURED, TRANSFER, LOCK}  # all that is written into a run


@dataclass(frozen=True)
class RunFolder:
    """A run on disk: config.toml, manifest.json, metrics.jsonl, checkpoints/, the model and summary.json."""

    path: Path

    @property
    def checkpoints(self) -> Checkpoints:
        """Where the run saves itself."""
        return Checkpoints(self.path / CHECKPOINTS)

    @property
    def log(self) -> MetricsLog:
        """Where the rows of its epochs are."""
        return MetricsLog(self.path / METRICS)

    def stored_settings(self) -> dict[str, Any]:
        """Return the settings of the run, empty if there is none."""
        return read_settings(self.path / CONFIG) if (self.path / CONFIG).exists() else {}

    def check_free(self, request: TrainRequest) -> None:
        """Refuse a folder that holds a run or anything else, unless told what to do with it.

        Raises:
            DataError: The folder is taken, or holds no run to resume.
            InputValueError: The request contradicts itself.
        """
        if request.resume and request.overwrite:
            raise InputValueError("train: resume and overwrite exclude each other")
        if request.resume and not (self.path / CONFIG).exists():
            raise DataError(f"{self.path}: holds no run to resume; leave out --resume to begin one")
        if request.resume or not self.path.exists():
            return
        if not self.path.is_dir():
            raise DataError(f"{self.path}: is a file; choose a folder with --out")
        names = {path.name for path in self.path.iterdir()} - {LOCK}
        check_nothing_else(self.path, NAMES, "a run's")
        if names and not request.overwrite:
            remedy = "pass --resume to go on with it or --overwrite to replace it"
            raise DataError(f"{self.path}: holds a run already; {remedy}")

    def check_same(self, settings: TrainSettings, remedy: str = "resume takes the run's settings") -> None:
        """Raise if the run in the folder has other settings; the message says which.

        Raises:
            DataError: They differ.
        """
        stored = TrainSettings.make(**self.stored_settings())
        names = differing(stored, settings)
        if names:
            was, asked = getattr(stored, names[0]), getattr(settings, names[0])
            more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            raise DataError(f"{self.path}: its run has {names[0]} = {was!r}, not {asked!r}{more}; {remedy}")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out while this one trains here; a kill lets go of the folder, too.

        Raises:
            DataError: Another process is in it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        if sys.platform == "win32":
            yield
            return
        import fcntl

        with (self.path / LOCK).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise DataError(f"{self.path}: another process is training in it") from error
            yield

    def begin(self, request: TrainRequest, settings: TrainSettings, device: str) -> None:
        """Write what the run is, in place of an earlier run if the request says so.

        Raises:
            DataError: Another run came in between.
        """
        self.check_free(request)
        self.remove(NAMES - {LOCK})
        write_manifest(make_manifest(seed=settings.seed, device=device), self.path)
        write_config(settings, self.path)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files and folders by name, those that are there."""
        for name in sorted(names):
            path = self.path / name
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)

    def summary(self) -> dict[str, Any] | None:
        """Return the summary of a finished run; None if there is none, or it is damaged or of another version."""
        try:
            found = json.loads((self.path / SUMMARY).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) and found.keys() >= SUMMARY_KEYS else None

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Mark the run as finished."""
        write_atomic(self.path / SUMMARY, json.dumps(summary, indent=1) + "\n")


def check_nothing_else(folder: Path, names: Collection[str], whose: str) -> None:
    """Raise if a folder holds files of other names, but for those that a write left unfinished.

    Raises:
        DataError: With the first of them.
    """
    found = sorted(path.name for path in folder.iterdir())
    foreign = [name for name in found if name not in names and not name.endswith(".unfinished")]
    if foreign:
        remedy = "choose another folder with --out"
        raise DataError(f"{folder}: holds files that are not {whose}, such as {foreign[0]}; {remedy}")
