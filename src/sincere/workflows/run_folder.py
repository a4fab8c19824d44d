"""The folder of a run: whether it may be written to, what is in it, and whether it is the run that was asked for."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sincere.errors import DataError, InputValueError
from sincere.records.config import CONFIG, TrainRequest, TrainSettings, differing, read_settings, write_config
from sincere.records.manifest import make_manifest, write_manifest
from sincere.training.checkpoints import Checkpoints
from sincere.training.log import METRICS, MetricsLog

SUMMARY, CHECKPOINTS = "summary.json", "checkpoints"


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
        is_run = (self.path / CONFIG).exists()
        if request.resume and not is_run:
            raise DataError(f"{self.path}: holds no run to resume; leave out --resume to begin one")
        if request.resume or not self.path.exists():
            return
        if not self.path.is_dir():
            raise DataError(f"{self.path}: is a file; choose a folder with --out")
        if not is_run and any(self.path.iterdir()):
            raise DataError(f"{self.path}: holds files that are not a run; choose another folder with --out")
        if is_run and not request.overwrite:
            remedy = "pass --resume to go on with it or --overwrite to replace it"
            raise DataError(f"{self.path}: holds a run already; {remedy}")

    def check_same(self, settings: TrainSettings) -> None:
        """Raise if the run in the folder has other settings; the message says which.

        Raises:
            DataError: They differ.
        """
        stored = TrainSettings.make(**self.stored_settings())
        names = differing(stored, settings)
        if names:
            was, asked = getattr(stored, names[0]), getattr(settings, names[0])
            more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            remedy = "resume takes the run's settings"
            raise DataError(f"{self.path}: its run has {names[0]} = {was!r}, not {asked!r}{more}; {remedy}")

    def begin(self, settings: TrainSettings, device: str) -> None:
        """Write what the run is, in place of any earlier run."""
        if (self.path / CONFIG).exists():
            shutil.rmtree(self.path)
        self.path.mkdir(parents=True, exist_ok=True)
        write_manifest(make_manifest(seed=settings.seed, command=sys.argv, device=device), self.path)
        write_config(settings, self.path)

    def summary(self) -> dict[str, Any] | None:
        """Return the summary of a finished run, or None."""
        path = self.path / SUMMARY
        return json.loads(path.read_text()) if path.exists() else None

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Mark the run as finished."""
        aside = self.path / f".{SUMMARY}.unfinished"
        aside.write_text(json.dumps(summary, indent=1) + "\n")
        aside.replace(self.path / SUMMARY)
