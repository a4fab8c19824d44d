"""`sincere train`: learn an embedding from labelled images."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from sincere.cli import INTERRUPTED
from sincere.cli.flags import parse_flags
from sincere.records.config import CONFIG, TrainRequest, read_settings


def main(arguments: list[str]) -> int:
    """Run the verb."""
    defaults, arguments = _defaults(arguments)
    known = {name: value for name, value in defaults.items() if name in TrainRequest.model_fields}
    flags = parse_flags(TrainRequest, arguments, verb="train", defaults=known)
    request = TrainRequest.make(**{**defaults, **flags})
    from sincere.training.interruption import InterruptedRunError
    from sincere.workflows.train import run_training

    try:
        run_training(request)
    except InterruptedRunError as stopped:
        print(f"sincere: {stopped}; go on with: sincere train --resume --out {request.folder()}", file=sys.stderr)
        return INTERRUPTED
    return 0


def _defaults(arguments: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Return settings from --config, or from the run that --resume goes on with; and the other arguments."""
    words, rest = iter(arguments), list[str]()
    given: dict[str, Path] = {}
    for word in words:
        name, _, value = word.partition("=")
        if name in ("--config", "--out"):
            value = value or next(words, "")
            given[name] = Path(value)
        if name != "--config":
            rest += [name, value] if name == "--out" else [word]
    if "--config" in given:
        return read_settings(given["--config"]), rest
    if "--resume" in rest and "--out" in given and (given["--out"] / CONFIG).exists():
        return read_settings(given["--out"] / CONFIG), rest
    return {}, rest
