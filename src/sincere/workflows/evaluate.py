"""Evaluate a run on the test part of its data."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

from torch import nn

from sincere.messages import Messages
from sincere.records.files import EVALUATION_LOCK
from sincere.records.results import Results
from sincere.settings.evaluation_requests import EvaluateRequest
from sincere.settings.keywords import EvaluateKeywords
from sincere.settings.signatures import with_signature
from sincere.training.loggers import check_loggers
from sincere.workflows.launch import in_turn, locked_by_first, report_lost_processes, speaker, start_processes
from sincere.workflows.python_objects import given_encoder, named_objects
from sincere.workflows.results import evaluate_run, finish, log_results
from sincere.workflows.run_folder import RunFolder
from sincere.workflows.trained_model import load_data, stored_settings, with_unknown


@with_signature(EvaluateRequest)
def evaluate(run: str | Path, *, encoder: nn.Module | None = None, **settings: Unpack[EvaluateKeywords]) -> Results:
    """Evaluate the model of a run with the settings of `sincere evaluate`.

    `data` and `unknown_data` may be objects, as in `train`. `encoder` is a module like the one that the run was
    given in Python, if any.

    Raises:
        InputValueError: A setting is wrong.
        DataError: The folder holds no run, or its data are wrong.
    """
    with named_objects(settings) as named, given_encoder(Path(run), encoder):
        return run_evaluation(EvaluateRequest.make(run=Path(run), **named))


def run_evaluation(request: EvaluateRequest, messages: Messages | None = None) -> Results:
    """Evaluate a run, write the results into its folder, and show them.

    Where several processes share the images, each comes here; the first one alone measures, writes and speaks.
    """
    check_loggers(request.log, caller=request.verb)
    folder = RunFolder(request.run)
    settings = stored_settings(folder)
    moved: dict[str, Any] = {"source": request.data, "data_dir": request.data_dir}
    moved |= {"skip_bad_images": request.skip_bad_images or None}
    where = settings.data.model_copy(update={name: value for name, value in moved.items() if value is not None})
    fabric = start_processes(request.machine, caller=request.verb)
    messages = speaker(fabric, messages or Messages(quiet=request.quiet))
    with (
        report_lost_processes(fabric, request.verb, "run the same command again"),
        locked_by_first(fabric, folder.path, EVALUATION_LOCK),
    ):
        with in_turn(fabric):
            data = load_data(where, settings, fabric.device, messages)
            data = with_unknown(data, request.evaluation.unknown_data, where, settings, fabric.device, messages)
        results = evaluate_run(
            folder, settings, data, request.evaluation, seed=request.seed, fabric=fabric, messages=messages
        )
        if fabric.is_global_zero:
            finish(results, folder.path, messages, report=request.report)
            log_results(results, folder.path, request.log, messages)
    return results
