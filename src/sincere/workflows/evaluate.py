"""Evaluate a run on the test part of its data."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from torch import nn

from sincere.messages import Messages
from sincere.records.files import EVALUATION_LOCK, locked
from sincere.records.results import Results
from sincere.settings.keywords import EvaluateKeywords
from sincere.settings.requests import EvaluateRequest
from sincere.settings.signatures import with_signature
from sincere.workflows.hardware import choose_device
from sincere.workflows.python_objects import given_encoder, named_objects
from sincere.workflows.results import evaluate_run, finish
from sincere.workflows.run_folder import RunFolder
from sincere.workflows.trained_model import load_data, stored_settings


@with_signature(EvaluateRequest)
def evaluate(run: str | Path, *, encoder: nn.Module | None = None, **settings: Unpack[EvaluateKeywords]) -> Results:
    """Evaluate the model of a run with the settings of `sincere evaluate`.

    `data` may be an object, as in `train`. `encoder` is a module like the one that the run was given in Python, if any.

    Raises:
        InputValueError: A setting is wrong.
        DataError: The folder holds no run, or its data are wrong.
    """
    with named_objects(settings) as named, given_encoder(Path(run), encoder):
        return run_evaluation(EvaluateRequest.make(run=Path(run), **named))


def run_evaluation(request: EvaluateRequest, messages: Messages | None = None) -> Results:
    """Evaluate a run, write the results into its folder, and show them."""
    messages = messages or Messages(quiet=request.quiet)
    folder = RunFolder(request.run)
    settings = stored_settings(folder)
    moved = {"source": request.data, "data_dir": request.data_dir}
    where = settings.data.model_copy(update={name: value for name, value in moved.items() if value is not None})
    device = choose_device(request.machine.device, caller=request.verb)
    with locked(folder.path, EVALUATION_LOCK):
        data = load_data(where, settings, device, messages)
        results = evaluate_run(
            folder, settings, data, request.evaluation, seed=request.seed, device=device, messages=messages
        )
        finish(results, folder.path, messages, report=request.report)
    return results
