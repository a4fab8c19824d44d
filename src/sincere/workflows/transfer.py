"""Transfer: evaluate the model of a run on another data set, with the image preparation of the run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Unpack

from torch import nn

from sincere.errors import DataError
from sincere.messages import Messages
from sincere.records.files import EVALUATION_LOCK
from sincere.records.results import Results
from sincere.settings.evaluation_requests import TransferRequest
from sincere.settings.keywords import TransferKeywords
from sincere.settings.signatures import with_signature
from sincere.workflows.launch import in_turn, locked_by_first, report_lost_processes, speaker, start_processes
from sincere.workflows.python_objects import given_encoder, named_objects
from sincere.workflows.results import Trainee, finish, measure_and_store
from sincere.workflows.run_folder import MEASURED, RunFolder, check_nothing_else
from sincere.workflows.trained_model import check_input, load_data, load_trained, stored_settings, with_unknown


@with_signature(TransferRequest)
def transfer(
    run: str | Path, to: object | None = None, *, encoder: nn.Module | None = None, **settings: Unpack[TransferKeywords]
) -> Results:
    """Evaluate the model of a run on another data set with the settings of `sincere transfer`.

    `to` may be an object, as the data in `train`; a recipe has its own. `encoder` is a module like the one that the run
    was given in Python.

    Raises:
        InputValueError: A setting is wrong.
        DataError: The folder holds no run, or the other data are wrong.
    """
    other = {} if to is None else {"to": to}
    with named_objects({**other, **settings}) as named, given_encoder(Path(run), encoder):
        return run_transfer(TransferRequest.make_complete(run=Path(run), **named))


def run_transfer(request: TransferRequest, messages: Messages | None = None) -> Results:
    """Measure, write the results into the run's transfer/<data>, and show them; processes as in `run_evaluation`."""
    run = RunFolder(request.run)
    settings = stored_settings(run)
    folder = _free_folder(request)
    trained = load_trained(run)
    if request.size is not None:
        trained = replace(trained, model=trained.model.at_size(request.size))
    source = request.data(size=trained.model.spec.size, data_dir=settings.data.data_dir)
    fabric = start_processes(request.machine, caller=request.verb)
    messages = speaker(fabric, messages or Messages(quiet=request.quiet))
    with report_lost_processes(fabric, request.verb, "run the same command again"), in_turn(fabric):
        data = load_data(source, settings, fabric.device, messages)
        data = with_unknown(data, request.evaluation.unknown_data, source, settings, fabric.device, messages)
    check_input(trained.model.spec, data, request.run)
    with (
        report_lost_processes(fabric, request.verb, "run the same command again"),
        locked_by_first(fabric, folder, EVALUATION_LOCK),
    ):
        results = measure_and_store(
            RunFolder(folder),
            trained,
            Trainee.of_run(settings),
            data,
            request.evaluation,
            kind="transfer",
            seed=request.seed,
            fabric=fabric,
            messages=messages,
        )
        if fabric.is_global_zero:
            finish(results, folder, messages, report=request.report)
    return results


def _free_folder(request: TransferRequest) -> Path:
    """Return where to write, if it holds nothing but an earlier transfer.

    Raises:
        DataError: It holds something else, or is a file.
    """
    folder = request.folder()
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
