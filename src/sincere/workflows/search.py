"""Search hyper-parameters: trials of each loss, the best of them, a report, and the final models."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Unpack, cast

import optuna
from optuna.pruners import BasePruner
from optuna.storages import RDBStorage

from sincere.catalog import LOSSES, OPTIMIZERS, find_loss
from sincere.errors import DataError, InputValueError
from sincere.messages import Messages
from sincere.models.embedding import check_encoder
from sincere.records.files import LOCK, locked
from sincere.records.manifest import make_manifest, now, without_password
from sincere.records.results import FIGURES, REPORT
from sincere.records.search import FINAL, SEARCH, STUDY, TRIALS, WORKERS, Dimension, LossSearch, SearchResults
from sincere.report.search_page import write_search_report
from sincere.report.search_tables import show_search
from sincere.settings.keywords import SearchKeywords
from sincere.settings.machine import ClusterSettings
from sincere.settings.requests import CompareRequest
from sincere.settings.search_request import SearchRequest
from sincere.settings.search_space import default_space, loss_space, paper_space
from sincere.settings.signatures import with_signature
from sincere.tuning.storage import file_address, open_storage, storage_errors
from sincere.tuning.study import IDENTITY, SPACE, LossStudy, Objective, make_pruner, open_study, stored_study
from sincere.tuning.winner import edge_note, find_winner
from sincere.tuning.workers import run_trials
from sincere.workflows.assembly import frozen_data
from sincere.workflows.compare import run_comparison
from sincere.workflows.defaults import resolve
from sincere.workflows.launch import start_processes
from sincere.workflows.python_objects import named_objects
from sincere.workflows.run_folder import RunFolder, check_nothing_else
from sincere.workflows.search_progress import SearchProgress
from sincere.workflows.train import thread_number
from sincere.workflows.trained_model import load_data
from sincere.workflows.trial import TrainingObjective

NAMES = {SEARCH, STUDY, f"{STUDY}-journal", TRIALS, WORKERS, FINAL, REPORT, FIGURES, LOCK}  # all that a search writes
SOURCE = "source"  # attribute of a study: where its data were
PLACED = ("data", "data_dir", "weights", "device", "threads", "out", "storage", "study", "quiet", "worker")


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
    if request.worker:
        _help(request, messages, objective)
        return None
    folder = request.folder()
    _check(folder)
    messages.say(f"search: {folder}")
    started = now()
    with ExitStack() as until_the_end:
        if objective is None:
            objective = _objective(request, messages)
        until_the_end.enter_context(locked(folder))
        if request.overwrite:
            RunFolder(folder).set_aside(NAMES - {LOCK})
        storage = _storage(request)
        until_the_end.enter_context(storage_errors(_shown(request)))
        if request.overwrite:
            _delete_studies(request, storage)
        studies = _studies(request, storage, objective)
        _check_stored(folder, studies)
        _run(studies, request, objective, messages)
        results = _results(request, studies, objective, started)
        results.write(folder)
        page = write_search_report(folder)
    show_search(results, page, messages)
    messages.say(f"compare the losses, each at its own best: sincere compare --tuned {shlex.quote(str(folder))}")
    if request.final:
        losses = [found.loss for found in results.losses]
        final = CompareRequest.make_tuned(
            tuned=folder, losses=losses, seeds=request.seeds[:1], out=folder / FINAL, quiet=request.quiet
        )
        run_comparison(final, messages)
    return results


def _help(request: SearchRequest, messages: Messages, objective: Objective | None) -> None:
    """Run trials of a study that another process has made, with its settings."""
    folder = request.folder()
    storage = _storage(request, create=False)
    with storage_errors(_shown(request)):
        prefix = request.study_name("")
        names = [name for name in optuna.get_all_study_names(storage) if name.startswith(prefix)]
        stored = {name: optuna.load_study(storage=storage, study_name=name).user_attrs for name in names}
        made = {name: about for name, about in stored.items() if SPACE in about}
        if not made:
            remedy = "start it with `sincere search` without --worker first, and give its --study"
            raise DataError(f"search: {_shown(request)} holds no study {prefix.rstrip('/')!r}; {remedy}")
        about = dict(next(iter(made.values()))[IDENTITY])
        given = {name: request.flat()[name] for name in PLACED if request.flat()[name] is not None}
        if "source" not in request.data.model_fields_set:
            given["data"] = next(iter(made.values())).get(SOURCE, request.data.source)
        losses = [name.removeprefix(prefix) for name in made]
        settings = {name: value for name, value in about.items() if name not in ("digest", "loss")}
        request = SearchRequest.make(**settings | given | {"losses": losses, "out": folder})
        if objective is None:
            objective = _objective(request, messages)
        if (digest := _digest(objective)) != about["digest"]:
            raise DataError(
                f"search: the study {prefix.rstrip('/')!r} is for other data than {request.data.source} holds"
            )
        pruner = _pruner(request)
        found = [
            stored_study(storage, f"{prefix}{loss}", loss, seed=request.seeds[0], pruner=pruner) for loss in losses
        ]
        _run([study for study in found if study is not None], request, objective, messages)
    messages.say(f"no trials are left; the search in the other process has the results ({digest or 'no data'})")


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


def _storage(request: SearchRequest, *, create: bool = True) -> RDBStorage:
    """Connect to the database.

    Raises:
        DataError: It cannot be reached.
    """
    path = request.folder() / STUDY
    if request.storage is None and not create and not path.exists():
        raise DataError(f"{path}: no such study; start `sincere search` without --worker first")
    return open_storage(request.storage or file_address(path))


def _shown(request: SearchRequest) -> str:
    """Return the name of the database, without its password."""
    return without_password(request.storage) if request.storage else str(request.folder() / STUDY)


def _delete_studies(request: SearchRequest, storage: RDBStorage) -> None:
    """Remove the studies of an earlier search."""
    prefix = request.study_name("")
    for name in optuna.get_all_study_names(storage):
        if name.startswith(prefix):
            optuna.delete_study(study_name=name, storage=storage)


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
    learning_rate = _learning_rate(request, objective)
    studies = []
    for loss in request.losses:
        space = _space(request, loss, learning_rate)
        if not space:
            raise InputValueError("search: nothing is left to be searched: every setting is given a value; see --space")
        identity = {"loss": loss, "digest": _digest(objective), **request.identity()}
        study = open_study(
            storage,
            request.study_name(loss),
            loss,
            space,
            identity,
            seed=request.seeds[0],
            pruner=_pruner(request),
        )
        study.study.set_user_attr(SOURCE, request.data.source)
        if request.grid is not None:
            study.enqueue_grid()
        else:
            study.enqueue(request.trials)
        studies.append(study)
    return studies


def _space(request: SearchRequest, loss: str, learning_rate: float | None) -> tuple[Dimension, ...]:
    fixed, asked = request.fixed(), request.asked_space()
    if request.grid == "space":
        return loss_space(loss, (), asked, fixed)
    usual = paper_space(loss, request.data.source) if request.grid else default_space(loss, learning_rate)
    return loss_space(loss, usual, asked, fixed)


def _learning_rate(request: SearchRequest, objective: Objective) -> float | None:
    """Return the learning rate that training would have by default; None where one is given."""
    if request.optimisation.learning_rate is not None:
        return None
    if isinstance(objective, TrainingObjective):
        first = request.trial(request.losses[0], {}, request.seeds[0], name="first").run_settings()
        return cast(float, resolve(first, objective.data, objective.fabric.device).optimisation.learning_rate)
    return OPTIMIZERS[request.optimisation.optimizer or "sgd"].learning_rate


def _pruner(request: SearchRequest) -> BasePruner:
    name = request.pruner or ("median" if request.grid is None else "none")
    return make_pruner(name, n_trials=request.trials)


def _run(studies: Sequence[LossStudy], request: SearchRequest, objective: Objective, messages: Messages) -> None:
    with SearchProgress(studies, messages) as progress:
        run_trials(
            studies,
            progress.watched(objective),
            request.folder() / WORKERS,
            started=progress.started,
            ended=progress.ended,
            waiting=progress.waiting,
        )


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
    return SearchResults(
        data=name,
        digest=digest,
        n_train=n_train,
        n_validation=n_validation,
        noun=cast(Any, noun),
        grid=request.grid is not None,
        seeds=request.seeds,
        settings={name: value for name, value in request.shared_settings().items() if name not in searched},
        losses=tuple(found),
        trials=trials,
        notes=tuple(_notes(found, [len(study.rows()) for study in studies])),
        manifest=make_manifest(seed=request.seeds[0], device=device, started=started),
    )


def _notes(found: Sequence[LossSearch], n_trials: Sequence[int]) -> list[str]:
    """Return what a reader should know: edges, unequal numbers of trials."""
    notes = [edge_note(of_loss, edge) for of_loss in found for edge in of_loss.edges]
    if len(set(n_trials)) > 1:
        counts = ", ".join(f"{of_loss.loss} {n}" for of_loss, n in zip(found, n_trials, strict=True))
        notes.append(f"the losses had different numbers of trials: {counts}")
    return notes
