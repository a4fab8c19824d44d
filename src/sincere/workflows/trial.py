"""One trial of a search: train on most of the training images, measure 1-NN accuracy on the held-out rest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, cast

from lightning_fabric import Fabric

from sincere.data.dataset import Dataset
from sincere.evaluation.knn import accuracy_1nn
from sincere.messages import Messages
from sincere.models.embedding import EmbeddingModel
from sincere.records.config import CONFIG
from sincere.records.search import Value
from sincere.settings.requests import RunSettings, TrainRequest
from sincere.settings.search_request import CHECKS, SearchRequest
from sincere.training.fit import Fit
from sincere.training.interruption import InterruptedRunError
from sincere.tuning.study import Report
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
        name = trial_name(loss, settings)
        requests = [self.request.trial(loss, settings, seed, name=name) for seed in self.request.seeds]
        folders = [RunFolder(request.folder()) for request in requests]
        reports = [report, *(_ignore for _ in requests[1:])]
        keep = False
        try:
            return fmean(self._accuracy(*each) for each in zip(requests, folders, reports, strict=True))
        except (InterruptedRunError, KeyboardInterrupt, SystemExit):
            keep = True
            raise
        finally:
            for folder in folders if not keep else ():
                folder.remove({CHECKPOINTS})

    def _accuracy(self, request: TrainRequest, folder: RunFolder, report: Report) -> float:
        """Return the 1-NN accuracy of one run on the held-out images, with all others as neighbours."""
        settings = trial_settings(request.run_settings(), self.data, self.fabric)
        with own_random_state(), thread_number(cast(int, settings.machine.threads)), folder.locked():
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
            fit.reporter = LiveAccuracies(report)
            fit.run()
            return _held_out_accuracy(fit, settings, self.data)


def trial_name(loss: str, settings: Mapping[str, Value]) -> str:
    """Return the name of the folder of a trial: the same for the same settings."""
    digest = hashlib.sha256(json.dumps(dict(settings), sort_keys=True).encode()).hexdigest()
    return f"{loss.rpartition(':')[2]}-{digest[:12]}"


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

    def __init__(self, report: Report) -> None:
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


def _report(row: Mapping[str, Any], report: Report) -> None:
    if "knn1_validation" in row:
        report(row["epoch"], row["knn1_validation"])


def _ignore(epoch: int, accuracy: float) -> None:
    """Take the live accuracy of a run that decides nothing."""
