"""How long the runs of a comparison take on this device, and how much memory a step needs."""

from __future__ import annotations

from typing import cast

from sincere.messages import Messages
from sincere.report.tables import duration
from sincere.settings.requests import CompareRequest
from sincere.workflows.assembly import frozen_data, initial_model, prepare, step_memory
from sincere.workflows.defaults import resolve
from sincere.workflows.launch import start_processes
from sincere.workflows.run_folder import RunFolder
from sincere.workflows.train import own_random_state, thread_number
from sincere.workflows.trained_model import load_data


def estimate_comparison(request: CompareRequest, messages: Messages) -> str:
    """Time the first steps of a comparison's first run; return what all of its runs take, in one line.

    Raises:
        InputValueError: A step needs more memory than there is; the message has a batch size that fits.
    """
    fabric = start_processes(request.machine, caller=request.verb, precision=request.machine.precision)
    data = load_data(request.data, request, fabric.device, messages)
    first = request.run(request.losses[0], request.seeds[0], resume=False)
    settings = resolve(first.run_settings(), data, fabric.device)
    with own_random_state(), thread_number(cast(int, settings.machine.threads)):
        data = frozen_data(settings, data, fabric, messages)
        with fabric.autocast():
            model = initial_model(settings, data).to(fabric.device)
            needed = step_memory(settings, model, data.train, fabric.device)
        silent = Messages(silent=True)
        fit = prepare(RunFolder(first.folder()), settings, data, fabric, silent, checkpoint_seconds=float("inf"))
        seconds = fit.epoch_seconds() * cast(int, settings.optimisation.epochs)
    n_runs = len(request.losses) * len(request.seeds)
    return (
        f"estimate: {duration(seconds)} a run on {fabric.device.type}, {duration(n_runs * seconds)} for {n_runs} runs "
        f"from their start, and {needed / 1e9:.2g} GB for a step"
    )
