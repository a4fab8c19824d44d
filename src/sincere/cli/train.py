"""`sincere train`: learn an embedding from labelled images."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from sincere.cli import INTERRUPTED
from sincere.cli.flags import parse_flags
from sincere.errors import InputValueError
from sincere.records.config import CONFIG, TrainRequest, read_settings


def main(arguments: list[str]) -> int:
    """Run the verb."""
    request = _request(arguments)
    from sincere.training.interruption import InterruptedRunError
    from sincere.workflows.train import run_training

    try:
        run_training(request)
    except InterruptedRunError as stopped:
        folder = shlex.quote(str(request.folder()))
        print(f"sincere: {stopped}; go on with: sincere train --resume --out {folder}", file=sys.stderr)
        return INTERRUPTED
    return 0


def _request(arguments: list[str]) -> TrainRequest:
    """Return what the flags ask for, over the settings of --config, or of the run that --resume goes on with."""
    defaults, flags = _config(arguments)
    request = _parsed(flags, defaults)
    stored = request.folder() / CONFIG
    if request.resume and stored.exists():
        request = _parsed(flags, read_settings(stored))
    return request


def _parsed(flags: list[str], defaults: dict[str, Any]) -> TrainRequest:
    known = {name: value for name, value in defaults.items() if name in TrainRequest.model_fields}
    return TrainRequest.make(**{**defaults, **parse_flags(TrainRequest, flags, verb="train", defaults=known)})


def _config(arguments: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the settings of --config, and the other arguments."""
    settings, rest, words = dict[str, Any](), list[str](), iter(arguments)
    for word in words:
        name, _, value = word.partition("=")
        if name != "--config":
            rest.append(word)
            continue
        value = value or next(words, "")
        if not value:
            raise InputValueError("train: --config needs the name of a TOML file")
        settings = read_settings(Path(value))
    return settings, rest
