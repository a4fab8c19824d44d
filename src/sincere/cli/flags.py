"""The command line of a request: flags, grouped help, errors and completion, all from its settings.

Cyclopts parses; values are checked by the request alone, so that flags, TOML files and Python share one wording.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from glob import escape
from pathlib import Path
from types import GenericAlias, NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from cyclopts import (
    App,
    CycloptsError,
    Group,
    MissingArgumentError,
    Parameter,
    Token,
    UnknownOptionError,
    UnusedCliTokensError,
)
from cyclopts.completion import CompletionContext
from pydantic import SkipValidation

from sincere.data.catalog import DATASETS
from sincere.errors import InputValueError
from sincere.records.config import read_settings
from sincere.settings.record import Request, Setting

R = TypeVar("R", bound=Request)
MOST_USED, CONFIG = "Most used", "config"
CONFIG_HELP = "TOML file with any of these settings; flags win over it."


def parse_request(record: type[R], arguments: Sequence[str]) -> R:
    """Return what the flags ask for, over the settings of --config.

    Raises:
        InputValueError: A flag is unknown or a value is wrong, in one line.
        DataError: The file of --config is missing or no TOML.
    """
    return record.make(**given_settings(record, arguments))


def given_settings(record: type[Request], arguments: Sequence[str]) -> dict[str, Any]:
    """Return the settings that were given, by flags or in the file of --config, unchecked.

    Raises:
        InputValueError: A flag is unknown or lacks its value.
        DataError: The file of --config is missing or no TOML.
        SystemExit: After printing the help.
    """
    app = App(
        name=f"sincere {record.verb}",
        help=_paragraphs(record),
        help_epilogue=_examples(record),
        help_format="plaintext",
        help_flags=[],
        version_flags=[],
    )
    app.default(_command(record))
    if any(word in ("--help", "-h") for word in arguments):
        app.help_print([])
        raise SystemExit(0)
    try:
        _, bound, _ = app.parse_args(list(arguments), exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise InputValueError(f"{record.verb}: {_one_line(error, arguments, record)}") from None
    flags = dict(bound.arguments)
    for name, value in flags.items():
        if value == ():
            raise InputValueError(f"{record.verb}: --{name.replace('_', '-')} needs a value")
    config = flags.pop(CONFIG, None)
    return {**(read_settings(Path(config)) if config is not None else {}), **flags}


def add_command(app: App, record: type[Request], *, about: str) -> None:
    """Add a verb with all its flags to an app."""
    app.command(_command(record), name=record.verb, help=about)


def _command(record: type[Request]) -> Any:
    """Return a function whose signature has a parameter for each setting."""

    def command(**settings: Any) -> None:
        """Take the settings; only its signature is used."""

    settings = sorted(record.settings(), key=lambda setting: _rank(record, setting))
    titles = [MOST_USED, *dict.fromkeys(setting.concern for setting in record.settings())]
    groups = {title: Group(title, sort_key=number) for number, title in enumerate(titles, start=1)}
    parameters = [_parameter(setting, groups.get(_title(record, setting))) for setting in settings]
    if record.takes_config:
        config = Parameter(help=CONFIG_HELP, group=groups[record.title], converter=_as_given, completer=_paths)
        parameters.append(_keyword(CONFIG, Annotated[Path | None, config], None))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def _paragraphs(record: type[Request]) -> str:
    """Return what the record says of itself, each paragraph as one line, which is wrapped to the terminal."""
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(record.__doc__ or "").split("\n\n"))


def _examples(record: type[Request]) -> str:
    """Return the examples of a request: each command, and below it what it does."""
    lines = (f"  {command}\n      {about}" for command, about in record.examples)
    return "Examples:\n" + "\n".join(lines) if record.examples else ""


def _title(record: type[Request], setting: Setting) -> str:
    """Return the title of a flag's group in the help; positional arguments have cyclopts' own."""
    if setting.positional:
        return ""
    return MOST_USED if setting.name in record.most_used else setting.concern


def _rank(record: type[Request], setting: Setting) -> tuple[bool, int]:
    """Return the position of a flag in the help: positional arguments, then the most used, then the rest."""
    used = record.most_used
    return not setting.positional, used.index(setting.name) if setting.name in used else len(used)


def _parameter(setting: Setting, group: Group | None) -> inspect.Parameter:
    kind = _kind(setting)
    shown = " ".join(map(str, setting.default)) if isinstance(setting.default, tuple) else setting.default
    placed: dict[str, Any] = {} if group is None else {"group": group}
    parameter = Parameter(
        **placed,
        help=" ".join(setting.help.split()),
        show_default=(lambda value: shown) if shown is not None and shown is not False else False,
        converter=None if kind is bool else _as_given,
        completer=_completer(setting, kind),
        consume_multiple=get_origin(kind) is tuple,
        allow_repeating=True,  # the last one counts
        negative_iterable=(),
    )
    optional = setting.default is None and not setting.required
    annotation: Any = Annotated[kind | None if optional else kind, parameter, SkipValidation]  # the record checks
    if setting.positional:
        return inspect.Parameter(setting.name, inspect.Parameter.POSITIONAL_ONLY, annotation=annotation)
    return _keyword(setting.name, annotation, inspect.Parameter.empty if setting.required else setting.default)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _kind(setting: Setting) -> Any:
    """Return the type of a value as help and completion show it: names to choose from, paths, numbers, text."""
    kind = setting.annotation
    kinds = [part for part in get_args(kind) if part is not NoneType]
    if NoneType in get_args(kind) and len(kinds) == 1:
        kind = kinds[0]
    several = get_origin(kind) is tuple
    if several:
        item = get_args(kind)[0]
        kind = get_args(item)[0] if get_origin(item) is Annotated else item
    if setting.choices is not None:
        kind = Literal[tuple(setting.choices.names)] if setting.choices.names else Path
    return GenericAlias(tuple, (kind, ...)) if several else kind


def _completer(setting: Setting, kind: Any) -> Callable[[CompletionContext], list[str]] | None:
    """Return what completes values that are not in a fixed list of names."""
    if setting.choices is not None and setting.choices.paths:
        return _data_sources
    return _paths if kind is Path else None


def _data_sources(context: CompletionContext) -> list[str]:
    """Return what may stand for data: names of data sets, folders and files."""
    return [*(name for name in DATASETS if name.startswith(context.incomplete)), *_paths(context)]


def _paths(context: CompletionContext) -> list[str]:
    """Return the files and folders that an unfinished path may mean; folders end with a slash."""
    folder, _, start = context.incomplete.rpartition("/")
    where = Path(folder + "/" if context.incomplete.startswith("/") else folder or ".").expanduser()
    matches = sorted(path for path in where.glob(f"{escape(start)}*") if start or not path.name.startswith("."))
    prefix = f"{folder}/" if "/" in context.incomplete else ""
    return [f"{prefix}{path.name}{'/' if path.is_dir() else ''}" for path in matches]


def _one_line(error: CycloptsError, arguments: Sequence[str], record: type[Request]) -> str:
    """Return what is wrong with the command line."""
    if isinstance(error, UnknownOptionError) and (meant := _abbreviated(error.token.keyword or "", record)):
        return f"unknown option: {error.token.keyword}. Did you mean {' or '.join(meant)}?"
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        name = error.argument.name
        if name in arguments:
            return f"{name} needs a value"
        where = "; --help explains it" if name.startswith("--") else "; put it before the options"
        return f"{name} is missing{where}"
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        remedy = "--help lists the options, and names with spaces need quotes"
        return f"unexpected argument {error.unused_tokens[0]!r}; {remedy}"
    message = " ".join(str(error).split()).removesuffix(".")
    return f"{message[:1].lower()}{message[1:]}"


def _abbreviated(option: str, record: type[Request]) -> list[str]:
    """Return the options whose words begin with the letters of one: --learning-rate for --lr."""
    letters = option.removeprefix("--")
    names = [setting.name for setting in record.settings() if not setting.positional]
    return [f"--{name.replace('_', '-')}" for name in names if "".join(word[0] for word in name.split("_")) == letters]


def _as_given(kind: Any, tokens: Sequence[Token]) -> Any:
    """Return values as they were typed: the record checks names and numbers, and a path keeps its form."""
    values = [token.value for token in tokens]
    return tuple(values) if get_origin(kind) is tuple else values[0]
