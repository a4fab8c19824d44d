"""The studies of a search: what is searched for each loss, on which data, and the trials that each is to have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import optuna
from optuna.pruners import BasePruner
from optuna.storages import RDBStorage

from sincere.catalog import OPTIMIZERS
from sincere.errors import InputValueError
from sincere.messages import Messages
from sincere.records.search import Dimension
from sincere.settings.machine import ClusterSettings
from sincere.settings.search_request import SearchRequest
from sincere.settings.search_space import default_space, loss_space, paper_space
from sincere.tuning.storage import exclusive
from sincere.tuning.study import (
    ABOUT,
    IDENTITY,
    LossStudy,
    Objective,
    make_pruner,
    open_study,
    stored_study,
    studies_called,
)
from sincere.workflows.assembly import frozen_data
from sincere.workflows.defaults import resolve
from sincere.workflows.launch import start_processes
from sincere.workflows.train import thread_number
from sincere.workflows.trained_model import load_data
from sincere.workflows.trial import TrainingObjective


def training_objective(request: SearchRequest, messages: Messages) -> TrainingObjective:
    """Load the data, and compute the features of a frozen encoder once for all trials."""
    machine = ClusterSettings(**request.machine.flat())
    fabric = start_processes(machine, caller=request.verb, precision=machine.precision)
    first = request.trial(request.losses[0], {}, request.seeds[0], name="first").run_settings()
    data = load_data(request.data, first, fabric.device, messages)
    resolved = resolve(first, data, fabric.device)
    if request.grid == "paper" and resolved.optimisation.optimizer != "sgd":
        requirement = "optimizer must be sgd for the paper's grid, whose learning rates are for it"
        raise InputValueError(f"search: {requirement}; got {resolved.optimisation.optimizer}; add --optimizer sgd")
    with thread_number(cast(int, resolved.machine.threads)):
        data = frozen_data(resolved, data, fabric, messages)
    n_train, n_held_out = map(len, data.validation_split(request.validation, seed=request.seeds[0]))
    messages.say(f"{n_train:,} training {data.noun}, {n_held_out:,} held out; the test part is not used")
    return TrainingObjective(request, data, fabric, Messages(quiet=True, silent=True))


def digest_of(objective: Objective) -> str:
    """Return the content hash of the data of an objective; empty for one of the caller's own."""
    return objective.data.digest if isinstance(objective, TrainingObjective) else ""


def make_studies(request: SearchRequest, storage: RDBStorage, objective: Objective) -> list[LossStudy]:
    """Return the study of each loss, with all trials that it is to have."""
    learning_rate, pruner = _learning_rate(request, objective), pruner_of(request)
    identity = {"digest": digest_of(objective), **request.identity()}
    studies = []
    with exclusive(storage):
        if request.overwrite:
            for name in studies_called(storage, request.common_name()):
                optuna.delete_study(study_name=name, storage=storage)
        for loss in request.losses:
            space = space_of(request, loss, learning_rate)
            about: dict[str, Any] = {"seed": request.seeds[0], "pruner": pruner}
            name = request.study_name(loss)
            studies.append(open_study(storage, name, loss, space, {"loss": loss, **identity}, **about))
        for study in studies:
            if request.grid is not None:
                study.enqueue_grid()
            else:
                study.enqueue(request.trials)
        for study in studies:  # last: a study with it is complete
            kept = {
                "data": resolved_source(request.data.source),
                "pruner": _pruner_name(request),
                "trials": request.trials,
            }
            study.study.set_user_attr(ABOUT, kept)
    return studies


def with_other_losses(request: SearchRequest, storage: RDBStorage, studies: Sequence[LossStudy]) -> list[LossStudy]:
    """Return the studies with those of other losses that were searched before, with the same data and settings."""
    own = {study.loss: study.study.user_attrs[IDENTITY] for study in studies}
    expected = {**next(iter(own.values())), "loss": None}
    others = [
        stored_study(storage, name, seed=request.seeds[0], pruner=pruner_of(request))
        for name, stored in studies_called(storage, request.common_name()).items()
        if ABOUT in stored and stored[IDENTITY]["loss"] not in own and {**stored[IDENTITY], "loss": None} == expected
    ]
    return [*studies, *(study for study in others if any(row.state == "complete" for row in study.rows()))]


def space_of(request: SearchRequest, loss: str, learning_rate: float | None) -> tuple[Dimension, ...]:
    """Return what is searched for a loss.

    Raises:
        InputValueError: Nothing is.
    """
    usual: tuple[Dimension, ...] = ()
    if request.grid != "space":
        usual = paper_space(loss, request.data.source) if request.grid else default_space(loss, learning_rate)
    space = loss_space(loss, usual, request.asked_space(), request.fixed())
    if not space:
        raise InputValueError(f"search: nothing is left to be searched for {loss}; see --space")
    return space


def _learning_rate(request: SearchRequest, objective: Objective) -> float | None:
    """Return the learning rate that training would have by default; None where one is given."""
    if request.optimisation.learning_rate is not None:
        return None
    if isinstance(objective, TrainingObjective):
        first = request.trial(request.losses[0], {}, request.seeds[0], name="first").run_settings()
        return cast(float, resolve(first, objective.data, objective.fabric.device).optimisation.learning_rate)
    return OPTIMIZERS[request.optimisation.optimizer or "sgd"].learning_rate


def _pruner_name(request: SearchRequest) -> str:
    return request.pruner or ("median" if request.grid is None else "none")


def pruner_of(request: SearchRequest) -> BasePruner:
    """Return what stops trials early."""
    return make_pruner(_pruner_name(request), n_trials=request.trials)


def resolved_source(source: str) -> str:
    """Return the data as they can be found from any folder."""
    return str(Path(source).resolve()) if Path(source).exists() else source
