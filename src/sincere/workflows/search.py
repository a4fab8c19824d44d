"""Search hyper-parameters: trials of each loss, the best of them, a report, and the final models."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Any, Unpack

from optuna.storages import RDBStorage

from sincere.errors import DataError, InputValueError
from sincere.loss_catalog import find_loss
from sincere.messages import Messages
from sincere.models.embedding import check_encoder
from sincere.records.comparison import stored_request
from sincere.records.files import LOCK, locked
from sincere.records.manifest import now, without_password
from sincere.records.results import FIGURES, REPORT
from sincere.records.search import FINAL, SEARCH, STUDY, TRIALS, WORKERS, SearchResults
from sincere.report.search_page import write_search_report
from sincere.report.search_tables import show_search
from sincere.settings.keywords import SearchKeywords
from sincere.settings.requests import CompareRequest
from sincere.settings.search_request import SearchRequest
from sincere.settings.signatures import with_signature
from sincere.training.interruption import InterruptedRunError
from sincere.tuning.storage import open_storage, storage_errors
from sincere.tuning.study import (
    ABOUT,
    IDENTITY,
    Objective,
    stored_study,
    studies_called,
)
from sincere.tuning.workers import run_trials
from sincere.workflows.compare import run_comparison
from sincere.workflows.finished import finished_comparison
from sincere.workflows.python_objects import named_objects
from sincere.workflows.run_folder import RunFolder, check_nothing_else
from sincere.workflows.search_progress import SearchProgress
from sincere.workflows.search_results import check_stored, search_results
from sincere.workflows.search_studies import (
    digest_of,
    make_studies,
    pruner_of,
    space_of,
    training_objective,
    with_other_losses,
)

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
            _run_worker(request, messages, objective)
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
        space_of(request, loss, learning_rate=1.0)  # raises before anything is loaded or removed if nothing is searched
    storage = open_storage(request.storage) if request.storage is not None else None
    messages.say(f"search: {folder}")
    started = now()
    if objective is None:
        objective = training_objective(request, messages)
    with locked(folder):
        if request.overwrite:
            RunFolder(folder).set_aside(NAMES - {LOCK})
        storage = storage or open_storage(folder / STUDY)
        with storage_errors(_shown(request)):
            studies = make_studies(request, storage, objective)
            check_stored(folder, studies)
            with SearchProgress(studies, messages) as progress:
                run_trials(studies, objective, folder / WORKERS, progress)
            studies = with_other_losses(request, storage, studies)
            results = search_results(request, studies, objective, started)
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
    final = CompareRequest.make_complete(
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


def _run_worker(request: SearchRequest, messages: Messages, objective: Objective | None) -> None:
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
            objective = training_objective(request, messages)
        if digest_of(objective) != identity["digest"]:
            raise DataError(f"search: the study {name!r} is for other data than {request.data.source} holds")
        pruner = pruner_of(request)
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


def _shown(request: SearchRequest) -> str:
    """Return the name of the database, without its password."""
    return without_password(request.storage) if request.storage else str(request.folder() / STUDY)
