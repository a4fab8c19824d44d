"""Experiment loggers: TensorBoard, Weights & Biases, MLflow, or any logger of Lightning, beside the files of a run.

A logger that fails while a run is under way is left out from then on: the run itself has its metrics on disk.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from sincere import checks
from sincere.catalog import LOGGERS
from sincere.errors import DataError, InputTypeError, MissingPackageError, first_line, missing_package
from sincere.messages import Messages
from sincere.records.files import read_json, write_json
from sincere.training.progress import Reporter

TENSORBOARD, WANDB = "tensorboard", "wandb"  # folders that they make in that of a run
LOGGER_IDS = "loggers.json"  # names of the loggers of a run, with its id in each, so that they can be resumed
MLFLOW_STORE = "sqlite:///mlflow.db"  # where no server is named; MLflow's own default in version 3.17
PROJECT = "sincere"  # name of the project or experiment
PACKAGES = {"tensorboard": ("tensorboard",), "wandb": ("lightning", "wandb"), "mlflow": ("lightning", "mlflow")}


class Logger(Protocol):
    """A logger of Lightning or Lightning Fabric: two packages, whose classes have no common base."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Log numbers."""

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        """Log settings."""

    def finalize(self, status: str) -> None:
        """End logging."""


def check_loggers(names: Iterable[str], objects: Sequence[Any] = (), *, caller: str = "train") -> None:
    """Check that the packages of named loggers are installed, and that given ones are loggers.

    Raises:
        MissingPackageError: A package is missing; the message has the command that installs it.
        InputTypeError: An object is not a logger of Lightning.
    """
    for name in names:
        for package in PACKAGES[checks.choice(caller, "log", name, LOGGERS)]:
            if find_spec(package) is None:
                missing = ModuleNotFoundError(name=package)
                raise MissingPackageError(missing_package(f"{caller}: the logger {name}", missing, extra=name))
    if not isinstance(objects, list | tuple):
        requirement = "loggers must be a list of loggers of Lightning or Lightning Fabric"
        raise InputTypeError(checks.wording(caller, requirement, type(objects).__name__))
    for logger in objects:
        if not all(callable(getattr(logger, name, None)) for name in ("log_metrics", "log_hyperparams", "finalize")):
            requirement = "loggers must be loggers of Lightning or Lightning Fabric"
            raise InputTypeError(checks.wording(caller, requirement, type(logger).__name__))


def stored_loggers(folder: Path) -> dict[str, str]:
    """Return the id of a run in each logger that it was started with, by the name of the logger."""
    try:
        found = read_json(folder / LOGGER_IDS, remedy="remove it: the loggers then start anew")
    except FileNotFoundError:
        return {}
    return {str(name): str(found[name]) for name in found if name in LOGGERS}


def open_loggers(
    names: Iterable[str], folder: Path, messages: Messages, *, objects: Sequence[Logger] = (), first_step: int = 0
) -> RunLoggers:
    """Return the loggers of a run: those that are named, where it is resumed with the same id, and given ones.

    Args:
        names: Loggers of `LOGGERS`.
        folder: Folder of the run; its name is that of the run.
        messages: Receives a note if a logger fails.
        objects: Loggers that a caller has made.
        first_step: Number of steps that were taken already; TensorBoard drops what it has of later ones.

    Raises:
        DataError: A logger cannot be started.
    """
    ids, loggers = stored_loggers(folder), dict[str, Logger]()
    for name in names:
        make, new_id = _MAKERS[name], uuid4().hex[:12]
        try:
            loggers[name], ids[name] = make(folder, ids.get(name), new_id, first_step)
        except Exception as error:
            raise DataError(f"{name}: the logger cannot be started ({first_line(error)})") from error
    if loggers:
        write_json(folder / LOGGER_IDS, ids)
    given = {f"{type(each).__name__} ({number})": each for number, each in enumerate(objects, start=1)}
    return RunLoggers(messages, {**loggers, **given})


def _tensorboard(folder: Path, old_id: str | None, new_id: str, first_step: int) -> tuple[Logger, str]:
    from lightning_fabric.loggers.tensorboard import TensorBoardLogger

    _silence_writer_threads()
    logger = TensorBoardLogger(folder, name=TENSORBOARD, version="", purge_step=first_step + 1)
    return logger, old_id or new_id


def _silence_writer_threads() -> None:
    """Let threads of TensorBoard that fail print nothing: it raises the same error again where something is logged."""
    before = threading.excepthook
    if getattr(before, "silences_tensorboard", False):
        return

    def hook(args: threading.ExceptHookArgs) -> None:
        if not type(args.thread).__module__.startswith("tensorboard."):
            before(args)

    hook.silences_tensorboard = True  # type: ignore[attr-defined]
    threading.excepthook = hook


def _wandb(folder: Path, old_id: str | None, new_id: str, first_step: int) -> tuple[Logger, str]:
    from lightning.pytorch.loggers import WandbLogger

    name, own_id = folder.resolve().name, old_id or new_id
    logger = WandbLogger(name=name, project=PROJECT, save_dir=folder, id=own_id, resume="allow")
    _ = logger.experiment  # connects
    return logger, own_id


def _mlflow(folder: Path, old_id: str | None, new_id: str, first_step: int) -> tuple[Logger, str]:
    from lightning.pytorch.loggers import MLFlowLogger

    uri = os.environ.get("MLFLOW_TRACKING_URI") or MLFLOW_STORE
    logger = MLFlowLogger(PROJECT, run_name=folder.resolve().name, run_id=old_id, tracking_uri=uri)
    return logger, str(logger.run_id)


_MAKERS: dict[str, Callable[[Path, str | None, str, int], tuple[Logger, str]]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
}


@dataclass(eq=False)
class RunLoggers:
    """The loggers of one run.

    Attributes:
        messages: Receives a note if one of them fails.
        loggers: The loggers, by name.
    """

    messages: Messages
    loggers: dict[str, Logger]

    def settings(self, settings: Mapping[str, Any]) -> None:
        """Log the settings of the run."""
        self._each(lambda logger: logger.log_hyperparams(dict(settings)))

    def metrics(self, values: Mapping[str, Any], step: int) -> None:
        """Log the numbers among some metrics."""
        numbers = {name: float(value) for name, value in values.items() if isinstance(value, float)}
        self._each(lambda logger: logger.log_metrics(numbers, step))

    def files(self, paths: Iterable[Path]) -> None:
        """Store files with the run as artefacts; TensorBoard and loggers of other kinds cannot."""
        found = [path for path in paths if path.is_file()]
        self._each(lambda logger: _store(logger, found))

    def finish(self, *, failed: bool = False) -> None:
        """End logging."""
        self._each(lambda logger: logger.finalize("failed" if failed else "success"))
        opened = self.loggers.get("wandb")  # by its name, not given: Lightning leaves its run open
        self._each(lambda logger: _close_wandb(logger, failed=failed) if logger is opened else None)

    def _each(self, call: Callable[[Logger], None]) -> None:
        for name, logger in list(self.loggers.items()):
            try:
                call(logger)
            except NotImplementedError:  # not every logger takes everything
                continue
            except Exception as error:  # whatever a server or a network may raise
                del self.loggers[name]
                reason = first_line(error.__cause__ or error)
                problem = f"the logger {name} failed ({reason}) and is left out from here on"
                self.messages.note(f"{problem}; all metrics are in the folder of the run")


def _close_wandb(logger: Logger, *, failed: bool) -> None:
    logger.experiment.finish(exit_code=int(failed))  # type: ignore[attr-defined]


def _store(logger: Logger, paths: Sequence[Path]) -> None:
    kind = type(logger).__name__
    if kind == "MLFlowLogger":
        for path in paths:
            logger.experiment.log_artifact(logger.run_id, str(path))  # type: ignore[attr-defined]
    elif kind == "WandbLogger" and paths:
        import wandb

        artifact = wandb.Artifact(f"results-{logger.version}", type="results")  # type: ignore[attr-defined]
        for path in paths:
            artifact.add_file(str(path))
        logger.experiment.log_artifact(artifact)  # type: ignore[attr-defined]


class LoggedReporter:
    """Forwards all calls to another reporter, and logs the metrics of each epoch."""

    def __init__(self, reporter: Reporter, loggers: RunLoggers) -> None:
        self.reporter, self.loggers = reporter, loggers

    def start(self, step: int, n_steps: int) -> None:
        """Forward the call."""
        self.reporter.start(step, n_steps)

    def step(self, step: int) -> None:
        """Forward the call."""
        self.reporter.step(step)

    def epoch(self, row: Mapping[str, Any]) -> None:
        """Forward the call and log the metrics."""
        self.reporter.epoch(row)
        self.loggers.metrics(row, row["step"])

    def stop(self) -> None:
        """Forward the call."""
        self.reporter.stop()
