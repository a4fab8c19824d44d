"""The `sincere` command: one small file per verb, loaded when its verb is called."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from types import FrameType
from typing import NoReturn

from sincere import __version__
from sincere.checks import printable
from sincere.errors import InputValueError, SincereError, missing_package

VERBS: dict[str, str] = {  # each has a module of its name, and a request in sincere.settings.verbs
    "compare": "train several losses on the same data, compare them, write a report",
    "train": "learn an embedding from labelled images",
    "search": "find the best hyper-parameters of each loss on held-out images",
    "evaluate": "evaluate the model of a run, with confidence intervals",
    "transfer": "evaluate the model of a run on another data set",
    "reproduce": "the paper's tables and figures, with our values beside the paper's",
    "predict": "classify new images with the model of a run",
    "embed": "write the embeddings of images to a file",
    "nearest": "show the training images nearest to an image",
    "labels": "list images whose label may be wrong",
    "export": "write the model of a run as ONNX, or as a folder with a model card",
    "report": "write the report of stored results again",
    "datasets": "list the data sets known by name",
    "bench": "measure losses, views, a training step and the neighbour search on this machine",
    "completion": "print a script that completes commands in a shell",
}
USAGE_ERROR, INTERRUPTED, BROKEN_PIPE = 2, 130, 141
COMPLETE = "__complete"  # what the completion scripts call
LONGEST = 1000  # characters of a message
RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "JSM_NAMESPACE_RANK")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a verb; return the exit code: 0, 2 for wrong input, 130 when interrupted, 141 if nobody reads its output.

    Without arguments it is the whole process, as its script calls it: the first Ctrl-C stops the verb, and no further
    one disturbs the end of the process.
    """
    is_process = arguments is None and threading.current_thread() is threading.main_thread()
    try:
        if is_process and signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where it is ignored
            signal.signal(signal.SIGINT, _interrupt_once)
        code = _call(list(sys.argv[1:] if arguments is None else arguments))
        if is_process:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return code
    except KeyboardInterrupt:
        print("sincere: interrupted", file=sys.stderr)
        return INTERRUPTED


def _interrupt_once(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _call(words: list[str]) -> int:
    """Run the verb that is the first word, or print the help or the version."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character must not end the run
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    if words[0] in ("-V", "--version"):
        print(f"sincere {__version__}")
        return 0
    verb, rest = words[0], words[1:]
    if verb not in VERBS and verb != COMPLETE:
        near = get_close_matches(verb, VERBS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"the commands are {', '.join(VERBS)}"
        return _fail(f"{verb!r} is not a command; {hint}")
    return _run(verb, rest)


def _run(verb: str, rest: list[str]) -> int:
    """Run a verb; report an error in one line."""
    # Large photos are read; those that are twice as large are an error.
    warnings.filterwarnings("ignore", message="Image size .* exceeds limit", module="PIL")
    try:
        _check_ranks()
        if verb == COMPLETE:
            import_module("sincere.cli.completion").complete([verb, *rest])
        else:
            import_module(f"sincere.cli.{verb}").main(rest)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where it is noticed that nobody reads it
        return 0
    except SincereError as error:
        return _fail(str(error), error.exit_code)
    except ModuleNotFoundError as error:
        return _fail(missing_package(verb, error))
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # the reader of our output went away, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return BROKEN_PIPE
        where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        return _fail(f"{where}{error.strerror or error}")
    except SystemExit as stop:
        if not isinstance(stop.code, int | None):
            return _fail(str(stop.code))
        return BROKEN_PIPE if stop.code == 1 else stop.code or 0  # rich ends so when nobody reads its output
    except MemoryError:
        return _fail(f"{verb}: out of memory")


def _check_ranks() -> None:
    """Raise for what would keep libraries from being imported: they take these variables for numbers."""
    for name in RANKS:
        if not os.environ.get(name, "0").isdecimal():
            raise InputValueError(f"${name} must be a whole number; got {os.environ[name]!r}")


def _help() -> str:
    verbs = "\n".join(f"  {verb:10s} {about}" for verb, about in VERBS.items())
    return (
        "sincere: supervised contrastive learning\n\n"
        f"usage: sincere COMMAND [options]\n\n{verbs}\n\n"
        "`sincere COMMAND --help` explains a command; `sincere --version` prints the version."
    )


def _fail(message: str, code: int = USAGE_ERROR) -> int:
    rank = os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))  # of a process that shares a run
    text = printable(" ".join(message.splitlines()))
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
    print(f"sincere: {'' if rank == '0' else f'rank {printable(rank)}: '}{text}", file=sys.stderr)
    return code
