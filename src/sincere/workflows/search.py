"""Search hyper-parameters: trials of each loss, the best of them, a report, and the final models."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack, cast

import optuna
from optuna.pruners import BasePruner
from optuna.storages import RDBStorage

from sincere.catalog import LOSSES, OPTIMIZERS, find_loss
from sincere.errors import DataError, InputValueError
from sincere.messages import Messages
from sincere.models.embedding import check_encoder
from sincere.records.comparison import stored_request
from sincere.records.files import LOCK, locked
from sincere.records.manifest import make_manifest, now, without_password
from sincere.records.results import FIGURES, REPORT
from sincere.records.search import FINAL, SEARCH, STUDY, TRIALS, WORKERS, Dimension, LossSearch, SearchResults, TrialRow
from sincere.report.search_page import write_search_report
from sincere.report.search_tables import show_search
from sincere.settings.keywords import SearchKeywords
from sincere.settings.machine import ClusterSettings
from sincere.settings.requests import CompareRequest
from sincere.settings.search_request import SearchRequest
from sincere.settings.search_space import default_space, loss_space, paper_space
from sincere.settings.signatures import with_signature
from sincere.training.interruption import InterruptedRunError
from sincere.tuning.storage import exclusive, open_storage, storage_errors
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
from sincere.tuning.winner import edge_note, find_winner
from sincere.tuning.workers import run_trials
from sincere.workflows.assembly import frozen_data
from sincere.workflows.compare import run_comparison
from sincere.workflows.defaults import resolve
from sincere.workflows.finished import finished_comparison
from sincere.workflows.launch import start_processes
from sincere.workflows.python_objects import named_objects
from sincere.workflows.run_folder import RunFolder, check_nothing_else
from sincere.workflows.search_progress import SearchProgress
from sincere.workflows.train import thread_number
from sincere.workflows.trained_model import load_data
from sincere.workflows.trial import TrainingObjective

# All that a search writes.
NAMES = {SEARCH, STUDY, f"{STUDY}-journal", f"{STUDY}.lock", TRIALS, WORKERS, FINAL, REPORT, FIGURES, LOCK}
PLACED = ("data_dir", "weights", "device", "threads", "storage", "study", "quiet")  # what a worker decides itself
READY_SECONDS = 60  # in which a study that is being made gets its trials


@with_signature(SearchRequest)
def search(*, objective: Objective | None = None, **settings: Unpack[SearchKeywords]) -> SearchResults | None:
    """Search with the settings of `sincere search`; objects may take the place of names, as in `train`.

    `objective` is called with a loss, settings by name, and a function that takes an epoch and a live value; it returns
    a value from 0 to 1, the higher the better. Without one, models are trained. A worker returns None.

    Raises:
        InputValueError: A setting is wrong.
        DataError: The data, the folder or the database are.

    Example:
        >>> import tempfile
        >>> found = search(
        ...     objective=lambda loss, settings, report: 1 - abs(settings["temperature"] - 0.1),
        ...     losses=["sincere"], trials=8, out=tempfile.mkdtemp(), quiet=True,
        ... )
        >>> len(found.trials), 0.02 <= found.best("sincere")["temperature"] <= 0.5
        (8, True)
    """
    with named_objects(settings) as named:
        return run_search(SearchRequest.make(**named), objective=objective)


def run_search(
    request: SearchRequest, messages: Messages | None = None, *, objective: Objective | None = None
) -> SearchResults | None:
    """Run the trials that are missing, write the results and the report, and show them.

    Raises:
        InterruptedRunError: SIGTERM or Ctrl-C; the trial has saved a checkpoint.
    """
    messages = messages or Messages(quiet=request.quiet)
    for loss in request.losses:
        find_loss(loss, caller=request.verb)
    if request.model.encoder is not None:
        check_encoder(request.model.encoder)
    if request.final and objective is not None:
        raise InputValueError("search: final models are trained; leave out final for an objective of your own")
    try:
        if request.worker:
            _help(request, messages, objective)
            return None
        results = _search(request, messages, objective)
    except InterruptedRunError as stopped:
        raise InterruptedRunError(f"{stopped}; the same command resumes it") from stopped
    if request.final:
        _final(request, results, messages)
    return results


def _search(request: SearchRequest, messages: Messages, objective: Objective | None) -> SearchResults:
    """Run the trials that are missing, and write and show the results."""
    folder = request.folder()
    _check(folder)
    for loss in request.losses:
        _space(request, loss, learning_rate=1.0)  # raises before anything is loaded or removed if nothing is searched
    storage = open_storage(request.storage) if request.storage is not None else None
    messages.say(f"search: {folder}")
    started = now()
    if objective is None:
        objective = _objective(request, messages)
    with locked(folder):
        if request.overwrite:
            RunFolder(folder).set_aside(NAMES - {LOCK})
        storage = storage or open_storage(folder / STUDY)
        with storage_errors(_shown(request)):
            studies = _studies(request, storage, objective)
            _check_stored(folder, studies)
            with SearchProgress(studies, messages) as progress:
                run_trials(studies, objective, folder / WORKERS, progress)
            studies = _with_other_losses(request, storage, studies)
            results = _results(request, studies, objective, started)
        results.write(folder)
        page = write_search_report(folder)
    show_search(results, page, messages)
    if results.digest:
        messages.say(f"compare the losses, each at its own best: sincere compare --tuned {shlex.quote(str(folder))}")
    return results


def _final(request: SearchRequest, results: SearchResults, messages: Messages) -> None:
    """Train each loss on all training images with its best settings, and evaluate it on the test part."""
    folder = request.folder()
    best = {loss: results.best(loss) for loss in request.losses}
    earlier = stored_request(folder / FINAL).get("request", {}).get("tuned")
    final = CompareRequest.make_tuned(
        tuned=folder,
        losses=request.losses,
        seeds=request.seeds[:1],
        out=folder / FINAL,
        overwrite=earlier not in (None, best),  # the search has found something better since
        device=request.machine.device,
        threads=request.machine.threads,
        checkpoint_minutes=request.checkpoint_minutes,
        quiet=request.quiet,
    )
    if finished_comparison(final, messages) is None:
        run_comparison(final, messages)


def _help(request: SearchRequest, messages: Messages, objective: Objective | None) -> None:
    """Run trials of a study that another process has made, with its settings."""
    path = request.folder() / STUDY
    if request.storage is None and not path.exists():
        raise DataError(f"{path}: no such study; start `sincere search` without --worker first")
    storage = open_storage(request.storage or path)
    name = request.common_name()
    with storage_errors(_shown(request)):
        stored = _ready_studies(storage, name)
        if not stored:
            remedy = "start it with `sincere search` without --worker first, and give its --study"
            raise DataError(f"search: {_shown(request)} holds no study {name!r}; {remedy}")
        first = next(iter(stored.values()))
        identity, about = first[IDENTITY], first[ABOUT]
        losses = [study[IDENTITY]["loss"] for study in stored.values()]
        settings = {key: value for key, value in identity.items() if key not in ("digest", "loss", "grid")}
        settings |= {key: about[key] for key in ("data", "pruner", "trials")}
        if "source" in request.data.model_fields_set:
            settings["data"] = request.data.source
        settings |= {key: value for key in PLACED if (value := request.flat()[key]) is not None}
        request = SearchRequest.make(**settings, losses=losses, out=request.folder(), worker=True)
        if objective is None:
            objective = _objective(request, messages)
        if _digest(objective) != identity["digest"]:
            raise DataError(f"search: the study {name!r} is for other data than {request.data.source} holds")
        pruner = _pruner(request)
        studies = [stored_study(storage, own, seed=request.seeds[0], pruner=pruner) for own in stored]
        with SearchProgress(studies, messages) as progress:
            run_trials(studies, objective, request.folder() / WORKERS, progress)
    messages.say("no trials are left; the process that started the search writes its results")


def _ready_studies(storage: RDBStorage, name: str) -> dict[str, dict[str, Any]]:
    """Return the studies that another process has made; if it is just making them, once they have their trials."""
    for _ in range(READY_SECONDS):
        stored = studies_called(storage, name)
        if all(ABOUT in study for study in stored.values()):
            return stored
        time.sleep(1)
    return {own: study for own, study in stored.items() if ABOUT in study}


def _check(folder: Path) -> None:
    """Raise for a folder that holds something else, before anything is loaded."""
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: is a file; choose a folder with --out")
    if folder.exists():
        check_nothing_else(folder, NAMES, "a search's")


def _objective(request: SearchRequest, messages: Messages) -> TrainingObjective:
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


def _digest(objective: Objective) -> str:
    return objective.data.digest if isinstance(objective, TrainingObjective) else ""


def _shown(request: SearchRequest) -> str:
    """Return the name of the database, without its password."""
    return without_password(request.storage) if request.storage else str(request.folder() / STUDY)


def _check_stored(folder: Path, studies: Sequence[LossStudy]) -> None:
    """Raise if the database lacks trials that search.json has, or has them with other values: it has no checksums.

    Raises:
        DataError: It is damaged, or another one.
    """
    try:
        stored = SearchResults.read(folder)
    except DataError:  # none yet, or damaged: it is written again
        return
    there = {(row.loss, row.number): row for study in studies for row in study.rows()}
    losses = {study.loss for study in studies}
    for trial in stored.trials:
        if trial.loss in losses and there.get((trial.loss, trial.number)) != trial:
            problem = (
                f"trial {trial.number} of {trial.loss} is not what {SEARCH} says: the study was damaged or replaced"
            )
            raise DataError(f"{folder}: {problem}; start over with --overwrite")


def _studies(request: SearchRequest, storage: RDBStorage, objective: Objective) -> list[LossStudy]:
    """Return the study of each loss, with all trials that it is to have."""
    learning_rate, pruner = _learning_rate(request, objective), _pruner(request)
    identity = {"digest": _digest(objective), **request.identity()}
    studies = []
    with exclusive(storage):
        if request.overwrite:
            for name in studies_called(storage, request.common_name()):
                optuna.delete_study(study_name=name, storage=storage)
        for loss in request.losses:
            space = _space(request, loss, learning_rate)
            about: dict[str, Any] = {"seed": request.seeds[0], "pruner": pruner}
            name = request.study_name(loss)
            studies.append(open_study(storage, name, loss, space, {"loss": loss, **identity}, **about))
        for study in studies:
            if request.grid is not None:
                study.enqueue_grid()
            else:
                study.enqueue(request.trials)
        for study in studies:  # last: a study with it is complete
            kept = {"data": _resolved(request.data.source), "pruner": _pruner_name(request), "trials": request.trials}
            study.study.set_user_attr(ABOUT, kept)
    return studies


def _with_other_losses(request: SearchRequest, storage: RDBStorage, studies: Sequence[LossStudy]) -> list[LossStudy]:
    """Return the studies with those of other losses that were searched before, with the same data and settings."""
    own = {study.loss: study.study.user_attrs[IDENTITY] for study in studies}
    expected = {**next(iter(own.values())), "loss": None}
    others = [
        stored_study(storage, name, seed=request.seeds[0], pruner=_pruner(request))
        for name, stored in studies_called(storage, request.common_name()).items()
        if ABOUT in stored and stored[IDENTITY]["loss"] not in own and {**stored[IDENTITY], "loss": None} == expected
    ]
    return [*studies, *(study for study in others if any(row.state == "complete" for row in study.rows()))]


def _space(request: SearchRequest, loss: str, learning_rate: float | None) -> tuple[Dimension, ...]:
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


def _pruner(request: SearchRequest) -> BasePruner:
    return make_pruner(_pruner_name(request), n_trials=request.trials)


def _resolved(source: str) -> str:
    """Return the data as they can be found from any folder."""
    return str(Path(source).resolve()) if Path(source).exists() else source


def _results(request: SearchRequest, studies: Sequence[LossStudy], objective: Objective, started: str) -> SearchResults:
    """Return the results of all trials."""
    n_train = n_validation = 0
    device, noun, digest, name = "cpu", "images", "", request.data.source
    if isinstance(objective, TrainingObjective):
        data = objective.data
        n_train, n_validation = map(len, data.validation_split(request.validation, seed=request.seeds[0]))
        device, noun, digest, name = str(objective.fabric.device), data.noun, data.digest, data.name
    least = {own.name: own.least for loss in LOSSES.values() for own in loss.hyper_parameters}
    found = [
        find_winner(
            study.loss,
            study.space,
            study.rows(),
            n_validation=n_validation,
            importance=study.importance(),
            least=least,
        )
        for study in studies
    ]
    trials = tuple(row for study in studies for row in study.rows())
    searched = {dimension.name for study in studies for dimension in study.space}
    settings = {name: value for name, value in request.shared_settings().items() if name not in searched}
    return SearchResults(
        data=name,
        digest=digest,
        n_train=n_train,
        n_validation=n_validation,
        noun=cast(Any, noun),
        grid=request.grid is not None,
        seeds=request.seeds,
        settings={**settings, "data": _resolved(request.data.source)},
        losses=tuple(found),
        trials=trials,
        notes=tuple(_notes(found, trials)),
        manifest=make_manifest(seed=request.seeds[0], device=device, started=started),
    )


def _notes(found: Sequence[LossSearch], trials: Sequence[TrialRow]) -> list[str]:
    """Return what a reader should know: edges, failed trials, unequal numbers of trials."""
    notes = [edge_note(of_loss, edge) for of_loss in found for edge in of_loss.edges]
    counts = {of_loss.loss: [trial for trial in trials if trial.loss == of_loss.loss] for of_loss in found}
    for loss, own in counts.items():
        failed = [trial for trial in own if trial.state == "failed"]
        if failed:
            notes.append(f"{len(failed)} of {len(own)} trials of {loss} failed, the first because: {failed[0].error}")
    if len({len(own) for own in counts.values()}) > 1:
        listed = ", ".join(f"{loss} {len(own)}" for loss, own in counts.items())
        notes.append(f"the losses had different numbers of trials: {listed}")
    return notes
