"""One trial of a search: train on most of the training images, measure 1-NN accuracy on the held-out rest."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import fmean
from typing import Any, cast

from lightning_fabric import Fabric

from sincere.data.dataset import Dataset
from sincere.errors import InputValueError, LockedError
from sincere.evaluation.knn import accuracy_1nn
from sincere.messages import Messages
from sincere.models.embedding import EmbeddingModel
from sincere.records.config import CONFIG
from sincere.records.search import Value
from sincere.settings.requests import RunSettings, TrainRequest
from sincere.settings.search_request import CHECKS, SearchRequest
from sincere.training.fit import Fit, TrainingError
from sincere.tuning.study import FailedTrialError, PrunedError, Report
from sincere.workflows.assembly import prepare
from sincere.workflows.defaults import resolve
from sincere.workflows.launch import embed_shared
from sincere.workflows.run_folder import CHECKPOINTS, RunFolder
from sincere.workflows.train import own_random_state, thread_number


@dataclass
class TrainingObjective:
    """The objective of a search: the 1-NN accuracy that a loss reaches with some settings.

    Attributes:
        request: The search.
        data: The data; the test part is not used.
        fabric: The device.
        messages: Receives notes.
    """

    request: SearchRequest
    data: Dataset
    fabric: Fabric
    messages: Messages

    def __call__(self, loss: str, settings: Mapping[str, Value], report: Report) -> float:
        """Return the mean over the seeds; the first one reports its live accuracies.

        A trial that was stopped resumes from its checkpoints, if they are on this machine. Those of a trial that has
        ended are removed.
        """
        folders: list[RunFolder] = []
        try:
            requests = [self.request.trial(loss, settings, seed, name=report.name) for seed in self.request.seeds]
            folders = [RunFolder(request.folder()) for request in requests]
            reports = [report, *(None for _ in requests[1:])]
            value = fmean(self._accuracy(*each) for each in zip(requests, folders, reports, strict=True))
        except (TrainingError, InputValueError) as error:
            _remove_checkpoints(folders)
            raise FailedTrialError(str(error)) from error
        except PrunedError:
            _remove_checkpoints(folders)
            raise
        _remove_checkpoints(folders)
        return value

    def _accuracy(self, request: TrainRequest, folder: RunFolder, report: Report | None) -> float:
        """Return the 1-NN accuracy of one run on the held-out images, with all others as neighbours."""
        settings = trial_settings(request.run_settings(), self.data, self.fabric)
        with own_random_state(), thread_number(cast(int, settings.machine.threads)), _when_free(folder):
            fit = prepare(
                folder,
                settings,
                self.data,
                self.fabric,
                self.messages,
                checkpoint_seconds=request.checkpoint_minutes * 60,
            )
            if (folder.path / CONFIG).exists() and folder.checkpoints.paths():
                self.messages.note(*fit.resume())
            else:
                folder.begin(request.model_copy(update={"overwrite": True}), settings, str(self.fabric.device))
            for row in fit.rows:
                _report(row, report)
            fit.reporter = LiveAccuracies(report)  # in place of lines on epochs
            fit.run()
            return _held_out_accuracy(fit, settings, self.data)


def trial_settings(settings: RunSettings, data: Dataset, fabric: Fabric) -> RunSettings:
    """Return the settings of a trial with every choice made; `validate_every` unless it was given."""
    resolved = resolve(settings, data, fabric.device)
    if "every" in settings.validation.model_fields_set:
        return resolved
    return resolved.replaced(validate_every=max(1, cast(int, resolved.optimisation.epochs) // CHECKS))


def _held_out_accuracy(fit: Fit, settings: RunSettings, data: Dataset) -> float:
    """Return the 1-NN accuracy of the last weights: the final model will have those of its last epoch, too."""
    model = cast(EmbeddingModel, fit.model.module).eval()
    parts = data.validation_split(settings.validation.fraction, seed=settings.seed)
    known, queries = (embed_shared(model.embed, part, fit.fabric, width=model.spec.dim) for part in parts)
    return accuracy_1nn(queries.embeddings, queries.labels, known.embeddings, known.labels)


class LiveAccuracies:
    """Passes the live accuracies of a run on, which may end it."""

    def __init__(self, report: Report | None) -> None:
        self.report = report

    def start(self, step: int, n_steps: int) -> None:
        """Do nothing."""

    def step(self, step: int) -> None:
        """Do nothing."""

    def epoch(self, row: Mapping[str, Any]) -> None:
        """Report the accuracy of an epoch, if it was validated."""
        _report(row, self.report)

    def stop(self) -> None:
        """Do nothing."""


def _report(row: Mapping[str, Any], report: Report | None) -> None:
    accuracy = next((row[name] for name in row if name.endswith("_validation")), None)
    if report is None or accuracy is None:
        return
    is_last = row["epoch"] == row["n_epochs"]  # stopping it would save nothing
    (report.store if is_last else report)(row["epoch"], accuracy)


@contextmanager
def _when_free(folder: RunFolder) -> Iterator[None]:
    """Hold the lock of a folder; a worker that was silent for too long, and lost its trial, may still hold it."""
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(folder.locked())
                break
            except LockedError:
                time.sleep(1)
        yield


def _remove_checkpoints(folders: Sequence[RunFolder]) -> None:
    for folder in folders:
        folder.remove({CHECKPOINTS})
