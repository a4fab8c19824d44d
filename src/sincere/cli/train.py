"""`sincere train`: learn an embedding from labelled images."""

from __future__ import annotations

import shlex
import sys

from sincere.checks import printable
from sincere.cli import INTERRUPTED
from sincere.cli.flags import request_from, split_config
from sincere.records.config import CONFIG, TrainRequest, read_config


def main(arguments: list[str]) -> int:
    """Run the verb."""
    request = _request(arguments)
    from sincere.training.interruption import InterruptedRunError
    from sincere.workflows.train import run_training

    try:
        run_training(request)
    except InterruptedRunError as stopped:
        folder = shlex.quote(str(request.folder()))
        print(printable(f"sincere: {stopped}; resume it with: sincere train --resume --out {folder}"), file=sys.stderr)
        return INTERRUPTED
    return 0


def _request(arguments: list[str]) -> TrainRequest:
    """Return what the flags ask for, over the settings of --config, or of the run that --resume goes on with."""
    defaults, flags = split_config(arguments, verb="train")
    request = request_from(TrainRequest, flags, defaults, verb="train")
    stored = request.folder() / CONFIG
    if request.resume and stored.exists():
        request = request_from(TrainRequest, flags, read_config(request.folder()), verb="train")
    return request
