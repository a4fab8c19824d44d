"""Settings as flags: names, types, help texts and defaults come from the record; values are checked by it alone."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
from collections.abc import Mapping
from inspect import cleandoc
from typing import Annotated, Any, TypeVar, get_args, get_origin

import tyro
from pydantic import BaseModel

from sincere.errors import InputValueError

Record = TypeVar("Record", bound=BaseModel)
_FRAME = "│─╭╮╰╯ \n"


def parse_flags(
    record: type[Record], arguments: list[str], *, verb: str, defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the settings that the flags and the defaults give, unchecked.

    Raises:
        InputValueError: A flag is unknown or its value is of the wrong kind, in one line.
    """
    fields: list[tuple[str, Any, Any]] = []
    for name, field in record.model_fields.items():
        default = defaults.get(name, field.default)
        default = tuple(default) if isinstance(default, list) else default
        hint = "" if default is None else f"(default: {default})"
        shown = tyro.conf.arg(help=field.description, help_behavior_hint=hint, metavar=_metavar(field.annotation))
        fields.append((name, _annotated(field.annotation, shown), dataclasses.field(default=default)))
    flags: Any = dataclasses.make_dataclass("Flags", fields)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            options: Any = tyro.cli(
                flags, prog=f"sincere {verb}", description=cleandoc(record.__doc__ or ""), args=arguments
            )
    except SystemExit as stop:
        if not stop.code:  # --help
            raise
        raise InputValueError(f"{verb}: {_one_line(said.getvalue())}") from None
    return {name: getattr(options, name) for name in record.model_fields}


def _annotated(annotation: Any, shown: Any) -> Any:
    return Annotated[annotation, shown]


def _metavar(annotation: Any) -> str | None:
    """Return what stands for an optional value in the help: its kind without the None; None is tyro's own choice."""
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
    if len(kinds) != 1 or len(get_args(annotation)) != 2:
        return None
    return "NAME [NAME ...]" if get_origin(kinds[0]) is tuple else str(kinds[0].__name__).upper()


def _one_line(box: str) -> str:
    """Return what stands in tyro's framed message, without its title and its reference to the help."""
    lines = [line.strip(_FRAME) for line in box.splitlines()]
    kept = [line for line in lines[1:] if line.strip("-") and not line.startswith("For full")]
    text = re.sub(r"\s+", " ", " ".join(kept))
    text = re.split(r" (?:Got errors|Argument helptext):", text)[0]
    text = re.sub(
        r"no type matching \{None\}\|(\w+) could be instantiated from \['(.*)'\]", r"must be \1; got '\2'", text
    )
    return re.sub(r" Perhaps you meant: (--[\w-]+).*", r". Did you mean \1?", text)
