"""The folder of a run: whether it may be written to, what it holds, and whether that is the requested run."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from sincere.errors import DataError, InputValueError
from sincere.models.embedding import SPEC, WEIGHTS
from sincere.records import search
from sincere.records.arrays import MAP, PER_IMAGE
from sincere.records.config import CONFIG, read_config, write_config
from sincere.records.files import EVALUATION_LOCK, LOCK, UNFINISHED, locked, read_json, write_json
from sincere.records.label_issues import LABEL_ISSUES, LABEL_LIST
from sincere.records.log import METRICS, MetricsLog
from sincere.records.manifest import MANIFEST, make_manifest, write_manifest
from sincere.records.reference import REFERENCE
from sincere.records.results import CSV, FIGURE_FORMATS, FIGURE_NAMES, FIGURES, REPORT, RESULTS
from sincere.settings.evaluation_requests import TRANSFER
from sincere.settings.requests import EARLIER, RunSettings, TrainRequest, differing
from sincere.training.checkpoints import BEST, DAMAGED, Checkpoints
from sincere.training.loggers import LOGGER_IDS, TENSORBOARD, WANDB

SUMMARY, CHECKPOINTS = "summary.json", "checkpoints"
SUMMARY_KINDS: dict[str, type | tuple[type, ...]] = {
    "epochs": int,
    "seconds": (int, float),
    "train_loss": dict,
    "knn1_test": (int, float),
    "data": str,
}
EMBEDDINGS = "embeddings.safetensors"
PROBES = {"linear": "linear.safetensors", "linear_paper": "linear_paper.safetensors"}  # classifiers, by their metric
MEASURED = {RESULTS, CSV, PER_IMAGE, MAP, EMBEDDINGS, *PROBES.values(), REPORT, FIGURES, EVALUATION_LOCK}
LOGGED = {LOGGER_IDS, TENSORBOARD, WANDB}
TRAINED = {CONFIG, MANIFEST, METRICS, CHECKPOINTS, SPEC, WEIGHTS, REFERENCE, SUMMARY, LOCK, *LOGGED}
NAMES = {*TRAINED, *MEASURED, TRANSFER, LABEL_ISSUES, LABEL_LIST}  # all that is written into a run
INSIDE = {  # what is written into its folders
    CHECKPOINTS: re.compile(rf"(step-\d+\.pt|{re.escape(BEST)})({re.escape(DAMAGED)})?"),
    TENSORBOARD: re.compile(r"events\.out\.tfevents\..*"),
    WANDB: re.compile(r"(offline-)?run-.*|latest-run|debug.*\.log|settings"),
    FIGURES: re.compile(rf"({'|'.join((*FIGURE_NAMES, *search.FIGURE_NAMES))})\.({'|'.join(FIGURE_FORMATS)})"),
}


@dataclass(frozen=True)
class RunFolder:
    """A run on disk: config.toml, manifest.json, metrics.jsonl, checkpoints/, the model and summary.json."""

    path: Path

    @property
    def checkpoints(self) -> Checkpoints:
        """Where the run saves itself."""
        return Checkpoints(self.path / CHECKPOINTS)

    @property
    def has_model(self) -> bool:
        """Whether the model of the finished run is there."""
        return (self.path / WEIGHTS).is_file()

    @property
    def log(self) -> MetricsLog:
        """Where the rows of its epochs are."""
        return MetricsLog(self.path / METRICS)

    def stored_settings(self) -> dict[str, Any]:
        """Return the settings of the run, empty if there is none."""
        return {**EARLIER, **read_config(self.path)} if (self.path / CONFIG).exists() else {}

    def check_free(self, request: TrainRequest) -> None:
        """Refuse a folder that holds a run or anything else, unless the request says what to do with it.

        Raises:
            DataError: The folder is taken, or holds no run to resume.
            InputValueError: The request contradicts itself.
        """
        if request.resume and request.overwrite:
            raise InputValueError("train: resume and overwrite exclude each other")
        if request.resume and not (self.path / CONFIG).exists():
            raise DataError(f"{self.path}: holds no run to resume; leave out --resume to start one")
        if request.resume or not self.path.exists():
            return
        if not self.path.is_dir():
            raise DataError(f"{self.path}: is a file; choose a folder with --out")
        check_run_only(self.path)
        if (self.path / CONFIG).exists() and not request.overwrite:  # without it, nothing has begun yet
            remedy = "pass --resume to resume it or --overwrite to replace it"
            raise DataError(f"{self.path}: holds a run already; {remedy}")

    def check_same(self, settings: RunSettings, remedy: str = "resume takes the run's settings") -> None:
        """Raise if the run in the folder has other settings; the message says which.

        Raises:
            DataError: They differ.
        """
        stored = RunSettings.make(**self.stored_settings())
        names = differing(stored, settings)
        if names:
            was, wanted = stored.flat()[names[0]], settings.flat()[names[0]]
            more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            raise DataError(f"{self.path}: its run has {names[0]} = {was!r}, not {wanted!r}{more}; {remedy}")

    def locked(self) -> AbstractContextManager[None]:
        """Keep other processes from training here.

        Raises:
            DataError: Another process does.
        """
        return locked(self.path)

    def begin(self, request: TrainRequest, settings: RunSettings, device: str) -> None:
        """Write what the run is, in place of an earlier run if the request says so.

        Raises:
            DataError: Another run came in between.
        """
        self.check_free(request)
        with locked(self.path, EVALUATION_LOCK) if request.overwrite else nullcontext():
            self.set_aside(NAMES - {LOCK, EVALUATION_LOCK})
        write_manifest(make_manifest(seed=settings.seed, device=device), self.path)
        write_config(settings.stored(), self.path)

    def set_aside(self, names: Iterable[str]) -> None:
        """Remove files and folders by name: all are renamed first, so that a failure loses none of them.

        What cannot be deleted then is left under a name that counts as unfinished, and tried again the next time.
        """
        for left in self.path.glob(f".*{UNFINISHED}"):
            _delete(left)
        aside = [(self.path / name, self.path / f".{name}.{uuid4().hex[:8]}{UNFINISHED}") for name in sorted(names)]
        renamed = []
        try:
            for path, hidden in aside:
                if path.exists() or path.is_symlink():
                    path.rename(hidden)
                    renamed.append((path, hidden))
        except OSError:
            for path, hidden in renamed:
                hidden.rename(path)
            raise
        for _, hidden in renamed:
            _delete(hidden)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files and folders by name, those that are there."""
        for name in sorted(names):
            path = self.path / name
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)

    def summary(self) -> dict[str, Any] | None:
        """Return the summary of a finished run; None if there is none.

        Raises:
            DataError: It is damaged or of another version.
        """
        remedy = f"remove it and resume the run with `sincere train --resume --out {shlex.quote(str(self.path))}`"
        try:
            summary = read_json(self.path / SUMMARY, remedy=remedy)
        except FileNotFoundError:
            return None
        sound = all(isinstance(summary.get(name), kind) for name, kind in SUMMARY_KINDS.items())
        if not sound or not all(isinstance(summary["train_loss"].get(end), float | int) for end in ("first", "last")):
            raise DataError(f"{self.path / SUMMARY}: is of another version; {remedy}")
        return summary

    def summary_or_note(self) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
        """Return the summary, None without one; where it is damaged, a note instead: resuming writes the same again.

        Raises:
            DataError: It is damaged and there is no checkpoint from which it could be written again.
        """
        try:
            return self.summary(), ()
        except DataError as error:
            if not self.checkpoints.paths():
                damage = str(error).partition(";")[0]
                raise DataError(f"{damage}; without a checkpoint only --overwrite makes it again") from error
            return None, (f"{str(error).partition(';')[0]}; the end of the run is repeated",)

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Mark the run as finished."""
        write_json(self.path / SUMMARY, summary)


def _delete(path: Path) -> None:
    """Delete a file or a folder, as far as that is allowed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(OSError):
        path.unlink()


def _is_unfinished(name: str) -> bool:
    """Tell whether a file of this name is one that a write left unfinished."""
    return name.startswith(".") and name.endswith(UNFINISHED)


def check_nothing_else(folder: Path, names: Collection[str], whose: str) -> None:
    """Raise if a folder holds files of other names, except those that a write left unfinished.

    Raises:
        DataError: With the first of them.
    """
    names_there = sorted(path.name for path in folder.iterdir())
    foreign = [name for name in names_there if name not in names and not _is_unfinished(name)]
    if not foreign:
        foreign = sorted(_foreign_inside(folder))
    if foreign:
        remedy = "choose another folder with --out"
        raise DataError(f"{folder}: holds files that are not {whose}, such as {foreign[0]}; {remedy}")


def check_run_only(folder: Path) -> None:
    """Raise if the folder of a run holds anything that is not the run's, also in its folders.

    Raises:
        DataError: With the first of it.
    """
    check_nothing_else(folder, NAMES, "a run's")
    if (folder / TRANSFER).is_dir():
        for inner in sorted((folder / TRANSFER).iterdir()):
            if not inner.is_dir():
                raise DataError(f"{inner}: is not a run's; choose another folder with --out")
            check_nothing_else(inner, MEASURED, "a transfer's")


def _foreign_inside(folder: Path) -> Iterator[str]:
    """Yield what stands in the folders of a run and was not written by it."""
    for name, own in INSIDE.items():
        if (folder / name).is_dir():
            for path in (folder / name).iterdir():
                is_own = own.fullmatch(path.name) or _is_unfinished(path.name)
                if not is_own or (path.is_dir() and name != WANDB):  # which has a folder for each run
                    yield f"{name}/{path.name}"
