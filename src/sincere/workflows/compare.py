"""Compare losses: train each under the same conditions, evaluate, compare with paired statistics, write a report."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import count, islice
from pathlib import Path
from typing import Any, Literal, Unpack, cast

import torch
from lightning_fabric import Fabric

from sincere.catalog import PYTHON
from sincere.data.dataset import Dataset
from sincere.errors import DataError
from sincere.loss_catalog import LOSSES, RAW_FEATURES, loss_title
from sincere.messages import Messages
from sincere.models.embedding import check_encoder
from sincere.records.arrays import PER_IMAGE, PerImage
from sincere.records.comparison import REQUEST, RUNS, write_request
from sincere.records.config import CONFIG
from sincere.records.files import EVALUATION_LOCK, LOCK, locked, staged_folder
from sincere.records.manifest import make_manifest, now
from sincere.records.results import ABOUT_MODELS, CSV, FIGURES, REPORT, RESULTS, Baseline, Results
from sincere.records.search import SearchResults
from sincere.report.page import remove_report, write_report
from sincere.report.search_tables import tuned_note
from sincere.report.tables import show, write_csv
from sincere.settings.command_text import command_text
from sincere.settings.evaluation import EvaluationSettings
from sincere.settings.keywords import CompareKeywords
from sincere.settings.loss import chooses_denominator
from sincere.settings.requests import CompareRequest, RunSettings, run_name
from sincere.settings.signatures import OBJECTS, with_signature
from sincere.statistics.bootstrap import ENOUGH_SEEDS
from sincere.statistics.comparison import chance_note, compare_losses, few_seeds_note, scope_of
from sincere.training.interruption import InterruptedRunError
from sincere.training.loggers import LOGGER_IDS, TENSORBOARD, WANDB, check_loggers
from sincere.workflows.assembly import frozen_data, initial_model
from sincere.workflows.defaults import check_takes_labels, resolve
from sincere.workflows.embedded_data import EmbeddedData
from sincere.workflows.finished import finished_comparison, request_digest
from sincere.workflows.launch import in_turn, locked_by_first, report_lost_processes, speaker, start_processes
from sincere.workflows.length import epochs_that_fit
from sincere.workflows.measure import check_measurable
from sincere.workflows.python_objects import named_objects
from sincere.workflows.raw_features import evaluate_raw_features
from sincere.workflows.results import SEED, evaluate_run, is_same_data, log_results
from sincere.workflows.run_folder import RunFolder, check_nothing_else, check_run_only
from sincere.workflows.train import own_random_state, thread_number, train_run
from sincere.workflows.trained_model import load_data, stored_settings, with_unknown

NAMES = {
    REQUEST,
    RUNS,
    RESULTS,
    CSV,
    REPORT,
    FIGURES,
    LOCK,
    EVALUATION_LOCK,
    LOGGER_IDS,
    TENSORBOARD,
    WANDB,
}  # all that a comparison writes
State = Literal["new", "begun", "finished"]  # of a run
NOT_REPEATED = ("seeds", "overwrite", "quiet")  # settings that a suggested command leaves out
REMEDY = "choose another folder with --out, or start over with --overwrite"


@with_signature(CompareRequest)
def compare(**settings: Unpack[CompareKeywords]) -> Results:
    """Compare losses with the settings of `sincere compare`; objects may take the place of names, as in `train`.

    Raises:
        InputValueError: A setting is wrong.
        DataError: The data or the folder are.
    """
    with named_objects(settings, stores_run=True) as named:
        request = CompareRequest.make_complete(**named)
        messages = Messages(quiet=request.quiet)
        return finished_comparison(request, messages) or run_comparison(request, messages)


def run_comparison(request: CompareRequest, messages: Messages | None = None) -> Results:
    """Train, evaluate and compare what is not done yet; write the report and show the results.

    Where several processes share the batches and images, each comes here; the first one alone writes and speaks.

    Raises:
        InterruptedRunError: SIGTERM or Ctrl-C; a checkpoint was written.
    """
    check_loggers(request.log, caller=request.verb)
    _check(request)
    fabric = start_processes(request.machine, caller=request.verb, precision=request.machine.precision)
    messages = speaker(fabric, messages or Messages(quiet=request.quiet))
    with report_lost_processes(fabric, request.verb, "the same command resumes it"):
        return _compare(request, fabric, messages)


def _compare(request: CompareRequest, fabric: Fabric, messages: Messages) -> Results:
    folder, source, device = request.folder(), request.data, fabric.device
    messages.say(f"comparison: {folder}")
    started = now()
    digest = request_digest(request)
    with in_turn(fabric):
        data = load_data(source, request, device, messages)
        data = with_unknown(data, request.evaluation.unknown_data, source, request, device, messages)
    digest = digest or request_digest(request)  # it may have been downloaded
    check_measurable(request.evaluation, data, caller=request.verb)
    _check_tuned(request, data)
    for loss in request.losses:  # before the first one is trained
        check_takes_labels(loss, data, caller=request.verb)
    first = resolve(request.run(request.losses[0], request.seeds[0], resume=False).run_settings(), data, device)
    if not first.model.freeze:
        initial_model(first, data)  # raises before anything is written if the weights do not fit
    with thread_number(cast(int, first.machine.threads)):
        data = frozen_data(first, data, fabric, messages)
    with locked_by_first(fabric, folder):
        if request.overwrite and fabric.is_global_zero:
            _clear(request, digest)
        try:
            evaluated = _runs(request, digest, data, fabric, messages)
            raw = None
            if first.model.freeze:
                raw = evaluate_raw_features(
                    folder / RUNS, first, data, request.evaluation, fabric, messages, evaluated[0].baselines
                )
        except InterruptedRunError as stopped:
            raise InterruptedRunError(f"{stopped}; the same command resumes it") from stopped
        if not fabric.is_global_zero:
            fabric.barrier()
            return Results.read(folder)
        manifest = make_manifest(seed=SEED, device=str(device), started=started)
        results = _compared(request, evaluated, raw, manifest)
        with locked(folder, EVALUATION_LOCK):
            with staged_folder(folder, last=RESULTS) as work:
                results.write(work)
                write_csv(results, work)
                remove_report(folder)
            page = write_report(folder)
        write_request(folder, request.identity(), digest, done=True)
        log_results(results, folder, request.log, messages)
    fabric.barrier()
    show(results, page, messages)
    return results


def _check(request: CompareRequest) -> None:
    """Raise for a folder that holds something else, before anything is loaded."""
    if request.model.encoder is not None:
        check_encoder(request.model.encoder)
    folder = request.folder()
    if not folder.exists():
        return
    if not folder.is_dir():
        raise DataError(f"{folder}: is a file; choose a folder with --out")
    is_comparison = (folder / REQUEST).exists() or (folder / RUNS).exists()
    check_nothing_else(folder, NAMES if is_comparison else {LOCK}, "a comparison's")
    for run in _run_folders(folder):
        if not run.is_dir():
            raise DataError(f"{run}: is not a comparison's; choose another folder with --out")
        if request.overwrite:
            check_run_only(run)


def _check_tuned(request: CompareRequest, data: Dataset) -> None:
    """Raise if the losses were tuned on other data.

    Raises:
        DataError: They were.
    """
    if request.tuned is not None and SearchResults.read(request.tuned).digest != data.digest:
        raise DataError(f"{request.tuned}: is a search on other data than {request.data.source} holds")


def _run_folders(folder: Path) -> list[Path]:
    return sorted((folder / RUNS).iterdir()) if (folder / RUNS).is_dir() else []


def _clear(request: CompareRequest, digest: str | None) -> None:
    """Remove the runs and results of a comparison, so that a kill at any moment leaves one that can be started over."""
    folder = request.folder()
    with ExitStack() as locks:
        for run in _run_folders(folder):
            locks.enter_context(RunFolder(run).locked())
            locks.enter_context(locked(run, EVALUATION_LOCK))
        write_request(folder, request.identity(), digest, done=False)
        RunFolder(folder).set_aside(NAMES - {REQUEST, LOCK, EVALUATION_LOCK})


def _runs(
    request: CompareRequest, digest: str | None, data: Dataset, fabric: Fabric, messages: Messages
) -> list[Results]:
    """Train and evaluate every loss with every seed; what is there already is taken as it is."""
    keys = [(loss, seed) for seed in request.seeds for loss in request.losses]
    folders = {key: RunFolder(request.folder() / RUNS / run_name(*key)) for key in keys}
    states: dict[tuple[str, int], State] = {}
    epochs = _epochs(request, folders, data, fabric, messages)
    if fabric.is_global_zero:
        runs = {key: request.run(*key, resume=True, epochs=epochs).run_settings() for key in keys}
        states = {key: _state(runs[key], folder, data, fabric.device, messages) for key, folder in folders.items()}
        write_request(request.folder(), request.identity(), digest, done=False)
    states = fabric.broadcast(states)
    results = list[Results]()
    for number, ((loss, seed), folder) in enumerate(folders.items(), start=1):
        messages.say("")
        messages.say(f"[{number}/{len(keys)}] {loss}, seed {seed}")
        embedded = None
        if states[loss, seed] == "finished":
            messages.say(f"{folder.path}: is trained already")
        else:
            run = request.run(loss, seed, resume=states[loss, seed] == "begun", epochs=epochs)
            _, embedded = train_run(run, messages, data, fabric=fabric, for_evaluation=True)
        baselines = results[0].baselines if results else ()
        results.append(_evaluated(folder, request, data, fabric, messages, embedded, baselines))
        if messages.quiet:  # else they stand below the table
            messages.note(*results[-1].notes)
    return results


def _epochs(
    request: CompareRequest,
    folders: dict[tuple[str, int], RunFolder],
    data: Dataset,
    fabric: Fabric,
    messages: Messages,
) -> int | None:
    """Return how many epochs fit into the minutes of a request, or a run that was begun has; None without minutes."""
    if request.optimisation.minutes is None:
        return None
    begun = [folder.stored_settings().get("epochs") for folder in folders.values()] if fabric.is_global_zero else []
    if (known := fabric.broadcast(next((n for n in begun if n is not None), None))) is not None:
        return cast(int, known)
    key, folder = next(iter(folders.items()))
    settings = resolve(request.run(*key, resume=False).run_settings(), data, fabric.device)
    with own_random_state(), thread_number(cast(int, settings.machine.threads)):
        return epochs_that_fit(folder, settings, data, fabric, messages)


def _state(settings: RunSettings, folder: RunFolder, data: Dataset, device: torch.device, messages: Messages) -> State:
    """Return how far a run is; raise if its folder holds another one.

    Raises:
        DataError: The run there has other settings or other data.
    """
    begun = (folder.path / CONFIG).exists()
    if begun:
        folder.check_same(resolve(settings, data, device), REMEDY)
    summary, notes = folder.summary_or_note()
    messages.note(*notes)
    if summary is not None and summary["data"] != data.digest:
        raise DataError(f"{folder.path}: was trained on other data than {settings.data.source} holds now; {REMEDY}")
    return "finished" if summary is not None else "begun" if begun else "new"


def _evaluated(
    folder: RunFolder,
    request: CompareRequest,
    data: Dataset,
    fabric: Fabric,
    messages: Messages,
    embedded: EmbeddedData | None,
    baselines: tuple[Baseline, ...],
) -> Results:
    """Return the results of a run, from its folder if they are what is asked for."""
    evaluation = request.evaluation
    stored = fabric.broadcast(_stored(folder, evaluation, data) if fabric.is_global_zero else None)
    if stored is not None:
        return stored
    settings = stored_settings(folder)
    with locked_by_first(fabric, folder.path, EVALUATION_LOCK):
        return evaluate_run(
            folder,
            settings,
            data,
            evaluation,
            seed=SEED,
            fabric=fabric,
            messages=messages,
            embedded=embedded,
            baselines=baselines,
            check_labels=not data.train.are_features,  # by features, raw features are enough: those of all runs agree
        )


def _stored(folder: RunFolder, evaluation: EvaluationSettings, data: Dataset) -> Results | None:
    """Return the results in the folder of a run if they are intact and what is asked for."""
    try:
        stored = Results.read(folder.path)
        images = PerImage.read(folder.path, stored.rows[0].files.get(PER_IMAGE))
    except DataError:  # missing, damaged or of another version: measured again
        return None
    same = stored.measuring == evaluation.identity(SEED) and is_same_data(stored, data)
    intact = stored.rows[0].finished and images.values.keys() == stored.metrics.keys()
    return stored if same and intact and stored.kind == "evaluation" else None


def _compared(
    request: CompareRequest, evaluated: list[Results], raw: Results | None, manifest: dict[str, Any]
) -> Results:
    """Return the results of all runs, and of raw features, together, with the differences between the losses."""
    folder = request.folder()
    rows = {
        (row.loss, row.seed): row.model_copy(update={"folder": f"{RUNS}/{run_name(row.loss, row.seed)}"})
        for row in (results.rows[0] for results in evaluated)
    }
    if raw is not None:  # the same for every seed
        update = {"folder": f"{RUNS}/{RAW_FEATURES}"}
        rows |= {(RAW_FEATURES, s): raw.rows[0].model_copy(update={**update, "seed": s}) for s in request.seeds}
    images = {key: PerImage.read(folder / row.folder, row.files.get(PER_IMAGE)) for key, row in rows.items()}
    metrics, evaluation = evaluated[0].metrics, request.evaluation
    summaries, differences = compare_losses(images, metrics, n_resamples=evaluation.resamples, seed=SEED)
    notes = [note for results in evaluated for note in results.notes]
    if metrics.keys() & {"margin", "label_margin"}:
        notes += [note for loss in request.losses if (note := LOSSES[loss].margin_note) is not None]
    if request.loss.positives_in_denominator is False:
        changed = ", ".join(loss_title(loss) for loss in request.losses if chooses_denominator(loss))
        notes.append(f"{changed}: with SINCERE's denominator in place of their own (positives_in_denominator = false)")
    if request.tuned is not None:
        notes.append(tuned_note(SearchResults.read(request.tuned), request.losses))
    if raw is not None:
        notes.append(f"{RAW_FEATURES}: the features as they are, before any training")
    scope = scope_of(summaries)
    if scope == ABOUT_MODELS and differences:
        notes.append(few_seeds_note(command_with_seeds(request)))
    elif (note := chance_note(len(differences))) is not None:
        notes.append(note)
    return Results(
        kind="comparison",
        data=evaluated[0].data,
        metrics=metrics,
        rows=tuple(rows.values()),
        differences=tuple(differences),
        summaries=tuple(summaries),
        # With raw features there is a row that says the same of all test images.
        baselines=evaluated[0].baselines[: 1 if raw is not None else None],
        scope=scope,
        notes=tuple(dict.fromkeys(notes)),
        measuring=evaluation.identity(SEED),
        manifest=manifest,
    )


def command_with_seeds(request: CompareRequest) -> str:
    """Return the command that repeats a comparison with as many seeds as its losses need to be compared.

    Example:
        >>> command_with_seeds(CompareRequest.make(data="my photos", epochs=15))
        "sincere compare --data 'my photos' --epochs 15 --seeds 0 1 2"
    """
    free = (seed for seed in count() if seed not in request.seeds)
    seeds = (*request.seeds, *islice(free, max(0, ENOUGH_SEEDS - len(request.seeds))))
    if any(PYTHON in str(request.flat().get(name)) for name in OBJECTS):  # no command has the objects
        return f"sincere.compare(..., seeds={list(seeds)})"
    values, defaults = request.flat(), CompareRequest().flat()
    names = [setting.name for setting in CompareRequest.settings()]
    changed = [name for name in names if name not in NOT_REPEATED and values[name] != defaults[name]]
    changed.sort(key=lambda name: name not in CompareRequest.most_used)
    return command_text(["compare"], {**{name: values[name] for name in changed}, "seeds": list(seeds)})
