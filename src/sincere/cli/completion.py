"""`sincere completion`: print a script that completes verbs, flags and names in a shell."""

from __future__ import annotations

import argparse
from typing import Any

import shtab

from sincere.catalog import ENCODERS, HEADS, LOSSES, METRICS
from sincere.cli import VERBS
from sincere.data.catalog import DATASETS
from sincere.records.comparing import ONE_EACH, CompareRequest
from sincere.records.config import Settings, TrainRequest
from sincere.records.measuring import EvaluateRequest, TransferRequest

SHELLS = ("bash", "zsh", "tcsh")
RECORDS: dict[str, type[Settings]] = {
    "compare": CompareRequest,
    "train": TrainRequest,
    "evaluate": EvaluateRequest,
    "transfer": TransferRequest,
}
NAMES: dict[str, list[str]] = {
    "data": list(DATASETS),
    "to": list(DATASETS),
    "loss": list(LOSSES),
    "losses": list(LOSSES),
    "encoder": list(ENCODERS),
    "head": list(HEADS),
    "metrics": list(METRICS),
    "probe": ["fast", "paper", "both"],
    "device": ["auto", "cpu", "cuda", "mps"],
}
FOLDERS = {"run", "out", "data_dir"}
USAGE = """usage: sincere completion {bash,zsh,tcsh}

Print a script that completes verbs, flags and names in a shell:

  bash   sincere completion bash > ~/.local/share/bash-completion/completions/sincere
  zsh    sincere completion zsh > "${fpath[1]}/_sincere"
  tcsh   sincere completion tcsh >> ~/.cshrc"""


def main(arguments: list[str]) -> int:
    """Run the verb."""
    if arguments in ([], ["-h"], ["--help"]):
        print(USAGE)
        return 0
    from sincere import checks

    shell = checks.choice("completion", "shell", " ".join(arguments), SHELLS)
    print(shtab.complete(parser(), shell))
    return 0


def parser() -> argparse.ArgumentParser:
    """Return all verbs and flags as argparse knows them, for the completion scripts only."""
    whole = argparse.ArgumentParser(prog="sincere")
    whole.add_argument("--version", action="store_true", help="print the version")
    verbs = whole.add_subparsers()
    for verb, (_, about) in VERBS.items():
        part = verbs.add_parser(verb, help=about)
        if verb in RECORDS:
            _add_flags(part, RECORDS[verb], hidden={*ONE_EACH, "devices", "nodes"} if verb == "compare" else set())
        elif verb == "report":
            _add(part, "run", "folder of a run or a comparison")
        elif verb == "completion":
            part.add_argument("shell", choices=SHELLS)
    return whole


def _add_flags(part: argparse.ArgumentParser, record: type[Settings], *, hidden: set[str]) -> None:
    _add(part, "--config", "TOML file with any of these settings")
    for name, field in record.model_fields.items():
        if name not in hidden:
            about = (field.description or "").split(". ")[0]
            _add(
                part, "run" if name == "run" else f"--{name.replace('_', '-')}", about, switch=field.annotation is bool
            )


def _add(part: argparse.ArgumentParser, flag: str, about: str, *, switch: bool = False) -> None:
    name = flag.strip("-").replace("-", "_")
    options: dict[str, Any] = {"help": about.replace("%", "%%")}
    if switch:
        options["action"] = "store_true"
    elif name in NAMES:
        options["choices"] = NAMES[name]
    action = part.add_argument(flag, **options)
    if name in FOLDERS:
        action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    elif name == "config":
        action.complete = shtab.FILE  # type: ignore[attr-defined]
