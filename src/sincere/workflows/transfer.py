"""Transfer: measure the model of a run on another data set, with the image preparation of the run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from sincere.errors import DataError
from sincere.records.config import TrainSettings, source_name
from sincere.records.files import EVALUATION_LOCK, locked
from sincere.records.measuring import TransferRequest
from sincere.records.results import Results
from sincere.workflows.evaluate import finish, quiet_or, show_notes, store, write_results
from sincere.workflows.hardware import choose_device
from sincere.workflows.measure import check_metrics, measure
from sincere.workflows.run_folder import MEASURED, TRANSFER, RunFolder, check_nothing_else
from sincere.workflows.trained_model import load_data, load_trained, stored_settings


def transfer(run: str | Path, to: str | Path, **settings: Any) -> Results:
    """Measure the model of a run on another data set with the settings of `sincere transfer`.

    Raises:
        InputValueError: A setting is wrong.
        DataError: The folder holds no run, or the other data are wrong.
    """
    return run_transfer(TransferRequest.make(run=Path(run), to=str(to), **settings))


def run_transfer(request: TransferRequest, console: Console | None = None) -> Results:
    """Measure, write what was found into the run's transfer/<data>, and say it."""
    console = console or Console()
    say = quiet_or(request.quiet, console)
    check_metrics(request)
    run = RunFolder(request.run)
    settings = stored_settings(run)
    device = choose_device(request.device)
    folder = _free_folder(request)
    trained = load_trained(run)
    other = TrainSettings.make(
        data=request.to,
        classes=request.classes,
        data_dir=request.data_dir or settings.data_dir,
        size=trained.model.spec.size,
        skip_bad_images=request.skip_bad_images,
    )
    data = load_data(other, device, None if request.quiet else console)
    show_notes(data.notes, console)
    with locked(folder, EVALUATION_LOCK):
        measured = measure(trained.model, data, request, device=device, temperature=settings.temperature, say=say)
        write = partial(write_results, measured=measured, trained=trained, settings=settings, request=request)
        results = store(RunFolder(folder), partial(write, kind="transfer", device=device))
        finish(results, folder, request, console)
    return results


def _free_folder(request: TransferRequest) -> Path:
    """Return where to write, if it holds nothing but an earlier transfer.

    Raises:
        DataError: It holds something else, or is a file.
    """
    name = "-".join([source_name(request.to), *(request.classes or ())]).replace("/", "-")
    folder = request.out or request.run / TRANSFER / name
    if not folder.exists():
        return folder
    if not folder.is_dir():
        raise DataError(f"{folder}: is a file; choose a folder with --out")
    check_nothing_else(folder, MEASURED, "a transfer's")
    try:
        other = Results.read(folder).kind != "transfer"
    except DataError:  # none, or damaged: replaced
        other = False
    if other:
        raise DataError(f"{folder}: holds other results; choose another folder with --out")
    return folder
