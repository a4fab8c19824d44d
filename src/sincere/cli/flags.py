"""Settings as flags: names, types, help texts and defaults come from the record; values are checked by it alone."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
from collections.abc import Iterable, Mapping
from inspect import cleandoc
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import tyro

from sincere.errors import InputValueError
from sincere.records.config import Settings, read_settings

Record = TypeVar("Record", bound=Settings)
_FRAME = "│─╭╮╰╯ \n"


def parse_request(record: type[Record], arguments: list[str], *, verb: str, hidden: Iterable[str] = ()) -> Record:
    """Return what the flags ask for, over the settings of --config.

    Raises:
        InputValueError: A flag is unknown or a value is wrong, in one line.
    """
    defaults, flags = split_config(arguments, verb=verb)
    return request_from(record, flags, defaults, verb=verb, hidden=hidden)


def request_from(
    record: type[Record], flags: list[str], defaults: Mapping[str, Any], *, verb: str, hidden: Iterable[str] = ()
) -> Record:
    """Return what the flags ask for, over these settings; `hidden` fields have no flag.

    Raises:
        InputValueError: A flag is unknown or a value is wrong, in one line.
    """
    return record.make(**{**defaults, **_parsed(record, flags, verb=verb, defaults=defaults, hidden=set(hidden))})


def split_config(arguments: list[str], *, verb: str) -> tuple[dict[str, Any], list[str]]:
    """Return the settings of --config, and the other arguments.

    Raises:
        InputValueError: There is no name after it.
        DataError: There is no such file, or it is no TOML.
    """
    settings, rest, words = dict[str, Any](), list[str](), iter(arguments)
    for word in words:
        name, _, value = word.partition("=")
        if name != "--config":
            rest.append(word)
            continue
        value = value or next(words, "")
        if not value:
            raise InputValueError(f"{verb}: --config needs the name of a TOML file")
        settings = read_settings(Path(value))
    return settings, rest


def _parsed(
    record: type[Record], arguments: list[str], *, verb: str, defaults: Mapping[str, Any], hidden: set[str]
) -> dict[str, Any]:
    """Return the settings that the flags and the defaults give, unchecked."""
    fields: list[tuple[str, Any, Any]] = []
    ordered = sorted(record.model_fields, key=lambda name: _rank(record, name))
    for name in (name for name in ordered if name not in hidden):
        field = record.model_fields[name]
        default = defaults.get(name, dataclasses.MISSING if field.is_required() else field.default)
        default = tuple(default) if isinstance(default, list) else default
        told = " ".join(map(str, default)) if isinstance(default, tuple) else default
        hint = "(required)" if field.is_required() else "" if default is None else f"(default: {told})"
        extra = field.json_schema_extra
        positional = isinstance(extra, dict) and bool(extra.get("positional"))
        metavar = name.upper() if positional else _metavar(field.annotation)
        shown = tyro.conf.arg(help=field.description, help_behavior_hint=hint, metavar=metavar)
        marks = (tyro.conf.Positional,) if positional else ()
        fields.append((name, _annotated(field.annotation, shown, *marks), dataclasses.field(default=default)))
    told = tyro.conf.arg(
        help="TOML file with any of these settings; flags win over it.", help_behavior_hint="", metavar="FILE"
    )
    config = ("config", _annotated(Path | None, told), dataclasses.field(default=None))  # read by `split_config`
    flags: Any = dataclasses.make_dataclass("Flags", [*fields, config], kw_only=True)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            options: Any = tyro.cli(flags, prog=f"sincere {verb}", description=_paragraphs(record), args=arguments)
    except SystemExit as stop:
        if not stop.code:  # --help
            raise
        raise InputValueError(f"{verb}: {_one_line(said.getvalue())}") from None
    return {name: getattr(options, name) for name, _, _ in fields}


def _annotated(annotation: Any, *marks: Any) -> Any:
    return Annotated[annotation, *marks]


def _paragraphs(record: type[Settings]) -> str:
    """Return what the record says of itself, each paragraph as one line."""
    paragraphs = cleandoc(record.__doc__ or "").split("\n\n")
    return "\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _rank(record: type[Settings], name: str) -> int:
    """Return where a flag stands in the help: what is asked for most comes first."""
    return record.leading.index(name) if name in record.leading else len(record.leading)


def _metavar(annotation: Any) -> str | None:
    """Return what stands for a value in the help: its kind without the None; None is tyro's own choice."""
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
    kind = annotation
    if get_origin(annotation) in (Union, UnionType) and len(kinds) == 1:
        kind = kinds[0]
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        word = "N" if item is int or get_args(item)[:1] == (int,) else "NAME"
        return f"{word} [{word} ...]"
    return str(kind.__name__).upper() if kind is not annotation else None


def _one_line(box: str) -> str:
    """Return what stands in tyro's framed message, without its title and its reference to the help."""
    lines = [line.strip(_FRAME) for line in box.splitlines()]
    kept = [line for line in lines[1:] if line.strip("-") and not line.startswith("For full")]
    text = re.sub(r"\s+", " ", " ".join(kept))
    text = re.split(r" (?:Got errors|Argument helptext):", text)[0]
    if missing := re.match(r"Missing from sincere \w+: (--[\w-]+|\w+)", text):
        return f"{missing[1]} is missing; --help explains it"
    text = re.sub(
        r"no type matching \{None\}\|(\w+) could be instantiated from \['(.*)'\]", r"must be \1; got '\2'", text
    )
    return re.sub(r" Perhaps you meant: (--[\w-]+).*", r". Did you mean \1?", text)
