"""Compare losses: train each under the same conditions, evaluate, compare with paired statistics, write a report."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from sincere.data.dataset import Dataset
from sincere.data.identity import source_digest
from sincere.errors import DataError
from sincere.records.arrays import PER_IMAGE, PerImage
from sincere.records.comparing import (
    REQUEST,
    RUNS,
    CompareRequest,
    stored_results,
    write_request,
)
from sincere.records.config import CONFIG
from sincere.records.files import EVALUATION_LOCK, LOCK, locked, staged
from sincere.records.manifest import make_manifest
from sincere.records.results import ABOUT_MODELS, CSV, FIGURES, REPORT, RESULTS, Results
from sincere.report.page import remove_report, write_report
from sincere.report.tables import show, write_csv
from sincere.statistics.bootstrap import ENOUGH_SEEDS
from sincere.statistics.comparison import chance_note, compare_losses, few_seeds_note, scope_of
from sincere.workflows.evaluate import evaluate_run, quiet_or, show_notes
from sincere.workflows.hardware import choose_device
from sincere.workflows.measure import check_measurable, check_metrics
from sincere.workflows.run_folder import RunFolder, check_nothing_else, check_run_only
from sincere.workflows.train import run_training
from sincere.workflows.trained_model import load_data, stored_settings
from sincere.workflows.training_setup import check_names, resolve

NAMES = {REQUEST, RUNS, RESULTS, CSV, REPORT, FIGURES, LOCK, EVALUATION_LOCK}  # all that a comparison writes
NOT_REPEATED = ("seeds", "overwrite", "quiet")  # settings that a suggested command leaves out
REMEDY = "choose another folder with --out, or start over with --overwrite"
EPSILON_NOTE = "the paper does not compare margins of eps-SupInfoNCE: its epsilon asks for a margin of its own"


def compare(**settings: Any) -> Results:
    """Compare losses with the settings of `sincere compare`.

    Raises:
        InputValueError: A setting is wrong.
        DataError: The data or the folder are.
    """
    request = CompareRequest.make(**settings)
    return stored_results(request, source_digest(request.data, request.data_dir)) or run_comparison(request)


def run_comparison(request: CompareRequest, console: Console | None = None) -> Results:
    """Train, evaluate and compare what is not done yet; write the report and say what was found."""
    console = console or Console()
    say = quiet_or(request.quiet, console)
    folder = request.folder()
    _check(request)
    say(f"comparison: {folder}")
    device = choose_device(request.device)
    identity = source_digest(request.data, request.data_dir)
    data = load_data(request, device, None if request.quiet else console)
    identity = identity or source_digest(request.data, request.data_dir)  # it may have been downloaded
    show_notes(data.notes, console)
    check_measurable(request, data)
    with locked(folder):
        if request.overwrite:
            _clear(request, identity)
        found = _runs(request, identity, data, device, console, say)
        results = _compared(request, found, device)
        with locked(folder, EVALUATION_LOCK):
            with staged(folder, last=RESULTS) as work:
                results.write(work)
                write_csv(results, work)
                remove_report(folder)
            page = write_report(folder)
        write_request(request, identity, done=True)
    if request.quiet:
        show_notes(results.notes, console)
    else:
        show(results, page, console)
    return results


def _check(request: CompareRequest) -> None:
    """Raise for names that do not exist and for a folder that holds something else, before anything is loaded."""
    for loss in request.losses:
        check_names(request.run(loss, request.seeds[0], resume=False))
    check_metrics(request)
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


def _run_folders(folder: Path) -> list[Path]:
    return sorted((folder / RUNS).iterdir()) if (folder / RUNS).is_dir() else []


def _clear(request: CompareRequest, identity: str | None) -> None:
    """Remove the runs and results of a comparison, so that a kill at any moment leaves one that can be started over."""
    folder = request.folder()
    with ExitStack() as locks:
        for run in _run_folders(folder):
            locks.enter_context(RunFolder(run).locked())
            locks.enter_context(locked(run, EVALUATION_LOCK))
        write_request(request, identity, done=False)
        RunFolder(folder).set_aside(NAMES - {REQUEST, LOCK, EVALUATION_LOCK})


def _runs(
    request: CompareRequest,
    identity: str | None,
    data: Dataset,
    device: torch.device,
    console: Console,
    say: Callable[[str], None],
) -> list[Results]:
    """Train and evaluate every loss with every seed; what is there already is taken as it is."""
    asked = [(loss, seed) for seed in request.seeds for loss in request.losses]
    folders = {key: RunFolder(request.folder() / RUNS / f"{key[0]}-{key[1]}") for key in asked}
    for (loss, seed), folder in folders.items():
        if (folder.path / CONFIG).exists():
            wanted = resolve(request.run(loss, seed, resume=True).settings(), data, device)
            folder.check_same(wanted, REMEDY)
        summary, notes = folder.summary_or_note()
        show_notes(notes, console)
        if summary is not None and summary["data"] != data.digest:
            raise DataError(f"{folder.path}: was trained on other data than {request.data} holds now; {REMEDY}")
    write_request(request, identity, done=False)
    found = []
    for number, ((loss, seed), folder) in enumerate(folders.items(), start=1):
        say("")
        say(f"[{number}/{len(asked)}] {loss}, seed {seed}")
        if folder.summary_or_note()[0] is None:
            run_training(request.run(loss, seed, resume=(folder.path / CONFIG).exists()), console, data)
        else:
            say(f"{folder.path}: is trained already")
        found.append(_evaluated(folder, request, data, device, say))
    return found


def _evaluated(
    folder: RunFolder,
    request: CompareRequest,
    data: Dataset,
    device: torch.device,
    say: Callable[[str], None],
) -> Results:
    """Return the results of a run, from its folder if they are what is asked for."""
    measuring = request.measuring()
    try:
        stored = Results.read(folder.path)
        images = PerImage.read(folder.path, stored.rows[0].files.get(PER_IMAGE))
        same = stored.measuring == measuring.choices() and stored.data.digest == data.digest
        whole = stored.rows[0].finished and images.values.keys() == stored.metrics.keys()
        if same and whole and stored.kind == "evaluation":
            return stored
    except DataError:  # missing, damaged or of another version: measured anew
        pass
    with locked(folder.path, EVALUATION_LOCK):
        return evaluate_run(folder, stored_settings(folder), data, measuring, device=device, say=say)


def _compared(request: CompareRequest, found: list[Results], device: torch.device) -> Results:
    """Return the results of all runs together, with the differences between the losses."""
    folder = request.folder()
    rows = {
        (row.loss, row.seed): row.model_copy(update={"folder": f"{RUNS}/{row.loss}-{row.seed}"})
        for row in (results.rows[0] for results in found)
    }
    images = {key: PerImage.read(folder / row.folder, row.files.get(PER_IMAGE)) for key, row in rows.items()}
    metrics = found[0].metrics
    measuring = request.measuring()
    summaries, differences = compare_losses(images, list(metrics), n_resamples=request.resamples, seed=measuring.seed)
    notes = [note for results in found for note in results.notes]
    if "eps-supinfonce" in request.losses and "margin" in metrics:
        notes.append(EPSILON_NOTE)
    scope = scope_of(summaries)
    if scope == ABOUT_MODELS and differences:
        notes.append(few_seeds_note(command_with_seeds(request)))
    elif (note := chance_note(len(differences))) is not None:
        notes.append(note)
    return Results(
        kind="comparison",
        data=found[0].data,
        metrics=metrics,
        rows=tuple(rows.values()),
        differences=tuple(differences),
        summaries=tuple(summaries),
        scope=scope,
        notes=tuple(dict.fromkeys(notes)),
        measuring=measuring.choices(),
        manifest=make_manifest(seed=measuring.seed, device=str(device)),
    )


def command_with_seeds(request: CompareRequest) -> str:
    """Return the command that repeats a comparison with as many seeds as its losses need to be compared.

    Example:
        >>> command_with_seeds(CompareRequest(data="my photos", epochs=15))
        "sincere compare --data 'my photos' --epochs 15 --seeds 0 1 2"
    """
    free = (seed for seed in count() if seed not in request.seeds)
    seeds = (*request.seeds, *islice(free, max(0, ENOUGH_SEEDS - len(request.seeds))))
    return shlex.join(["sincere", "compare", *_flags(request), "--seeds", *map(str, seeds)])


def _flags(request: CompareRequest) -> Iterator[str]:
    """Give the flags of the settings that were chosen and are not the defaults."""
    for name, field in CompareRequest.model_fields.items():
        value = getattr(request, name)
        if name in NOT_REPEATED or name not in request.model_fields_set or value == field.default:
            continue
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            yield flag if value else f"--no-{flag.removeprefix('--')}"
            continue
        yield flag
        yield from map(str, value) if isinstance(value, tuple) else [str(value)]
