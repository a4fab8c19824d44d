"""Evaluate a run: from its folder to results.json."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console

from sincere.checks import printable
from sincere.data.dataset import Dataset
from sincere.errors import DataError
from sincere.records.config import TrainSettings
from sincere.records.files import EVALUATION_LOCK, locked, staged
from sincere.records.manifest import make_manifest
from sincere.records.measuring import EvaluateRequest, MeasureSettings
from sincere.records.results import FIGURES, RESULTS, DataAbout, MetricAbout, Results, Row, TrainLoss
from sincere.report.page import remove_report, write_report
from sincere.report.tables import show, write_csv
from sincere.statistics.comparison import compare_losses, few_note
from sincere.workflows.hardware import choose_device
from sincere.workflows.measure import Measured, Say, check_metrics, measure
from sincere.workflows.run_folder import MEASURED, RunFolder
from sincere.workflows.trained_model import Trained, load_data, load_trained, stored_settings


def evaluate(run: str | Path, **settings: Any) -> Results:
    """Measure the model of a run with the settings of `sincere evaluate`.

    Raises:
        InputValueError: A setting is wrong.
        DataError: The folder holds no run, or its data are wrong.
    """
    return run_evaluation(EvaluateRequest.make(run=Path(run), **settings))


def run_evaluation(request: EvaluateRequest, console: Console | None = None) -> Results:
    """Evaluate a run, write what was found into it, and say it."""
    console = console or Console()
    say = quiet_or(request.quiet, console)
    check_metrics(request)
    folder = RunFolder(request.run)
    settings = stored_settings(folder)
    changes = {"data": request.data, "data_dir": request.data_dir}
    moved = settings.model_copy(update={name: value for name, value in changes.items() if value is not None})
    device = choose_device(request.device)
    with locked(folder.path, EVALUATION_LOCK):
        data = load_data(moved, device, None if request.quiet else console)
        show_notes(data.notes, console)
        results = evaluate_run(folder, settings, data, request, device=device, say=say)
        finish(results, folder.path, request, console)
    return results


def evaluate_run(
    folder: RunFolder,
    settings: TrainSettings,
    data: Dataset,
    request: MeasureSettings,
    *,
    device: torch.device,
    say: Say,
) -> Results:
    """Measure a run on its data and write the arrays and results.json into it."""
    trained = load_trained(folder)
    if trained.model.spec.class_names != data.class_names:
        names = ", ".join(data.class_names[:3])
        remedy = "`sincere transfer` measures a run on other data"
        raise DataError(
            f"{folder.path}: was trained on other classes than those of {data.name} ({names}, ...); {remedy}"
        )
    measured = measure(trained.model, data, request, device=device, temperature=settings.temperature, say=say)
    write = partial(write_results, measured=measured, trained=trained, settings=settings, request=request)
    return store(folder, partial(write, kind="evaluation", device=device))


def store(folder: RunFolder, write: Callable[[Path], Results]) -> Results:
    """Let `write` put what was measured into a folder of its own, then move it into the run.

    What an earlier time left there stays until all of the new is written.
    """
    with staged(folder.path, last=RESULTS) as work:
        results = write(work)
        written = {path.name for path in work.iterdir()}
        remove_report(folder.path)
    folder.remove(MEASURED - written - {FIGURES, EVALUATION_LOCK})
    return results


def write_results(
    folder: Path,
    measured: Measured,
    trained: Trained,
    settings: TrainSettings,
    request: MeasureSettings,
    *,
    kind: Literal["evaluation", "transfer"],
    device: torch.device,
) -> Results:
    """Write what was measured of one run into a folder: arrays, results.json and results.csv."""
    files = measured.save(folder)
    one = {(settings.loss, settings.seed): measured.per_image()}
    summaries, _ = compare_losses(one, list(measured.measures), n_resamples=request.resamples, seed=request.seed)
    row = Row(
        loss=settings.loss,
        seed=settings.seed,
        metrics=summaries[0].metrics,
        train_loss=TrainLoss(**trained.train_loss) if trained.train_loss is not None else None,
        seconds=trained.seconds,
        epochs=trained.epochs,
        finished=trained.finished,
        folder=".",
        margin=measured.margin,
        classes=measured.classes,
        confusion=measured.confusion(),
        settings=settings.model_dump(mode="json", exclude_none=True),
        files=files,
    )
    data = measured.data
    metrics = {name: MetricAbout(title=m.title, share=m.share) for name, m in measured.measures.items()}
    about = DataAbout(
        name=data.name,
        class_names=data.class_names,
        n_train=len(data.train),
        n_test=len(data.test),
        digest=data.digest,
    )
    notes = [*trained.notes, *measured.notes]
    if kind == "evaluation" and about.digest != trained.data:
        notes.append("these are not the images that the run was trained and tested on: same classes, other data")
    if (few := few_note(len(data.test))) is not None:
        notes.append(few)
    results = Results(
        kind=kind,
        data=about,
        metrics=metrics,
        rows=(row,),
        summaries=tuple(summaries),
        notes=tuple(notes),
        measuring=request.choices(),
        manifest=make_manifest(seed=request.seed, device=str(device)),
    )
    results.write(folder)
    write_csv(results, folder)
    return results


def finish(results: Results, folder: Path, request: MeasureSettings, console: Console) -> None:
    """Write the report, if it is asked for, and say what was found."""
    page = write_report(folder) if request.report else None
    if not request.quiet:
        show(results, page, console)
        return
    show_notes(results.notes, console)


def show_notes(notes: Iterable[str], console: Console) -> None:
    """Print what a user should know, also where little is printed."""
    for note in notes:
        console.print(printable(f"note: {note}"), soft_wrap=True, highlight=False, markup=False)


def quiet_or(quiet: bool, console: Console) -> Say:
    """Return what takes a line: the console's, or nothing."""

    def say(text: str) -> None:
        if not quiet:
            console.print(printable(text), soft_wrap=True, highlight=False, markup=False)

    return say
