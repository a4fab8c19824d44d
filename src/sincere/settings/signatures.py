"""The settings as Python keywords: real signatures, for editors and for `help`.

`python -m sincere.settings.signatures` writes keywords.py from the records; a test holds it fresh.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

from sincere.errors import SincereError
from sincere.settings.evaluation_requests import EvaluateRequest, TransferRequest
from sincere.settings.record import Request, Setting, Settings
from sincere.settings.reproduce_request import ReproduceRequest
from sincere.settings.requests import CompareRequest, TrainRequest
from sincere.settings.search_request import SearchRequest

F = TypeVar("F", bound=Callable[..., Any])
# Settings for which Python takes objects as well.
OBJECTS = ("data", "encoder", "loss", "losses", "augmentation", "unknown_data")
POSITIONAL = ("run", "to", "item")  # arguments that the functions take by position
HEADER = '''"""Keywords of the Python functions, for type checkers and editors.

Generated from the records by `python -m sincere.settings.signatures`: change those.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypedDict
'''


# A command, which stays as it is, or a flag, perhaps with its keyword in brackets, and the word after it.
_COMMAND_OR_FLAG = re.compile(
    r"`[^`]*`|\bsincere [a-z]+ .*"
    r"|--(?P<no>no-)?(?P<name>[a-z][a-z-]*)(?: \([^)]*in Python[^)]*\))?(?: (?P<next>\w[\w.-]*\w|\w))?"
)
_NUMBER = re.compile(r"\d+(\.\d+)?")


def with_signature(record: type[Request]) -> Callable[[F], F]:
    """Show the settings of a record in the signature, help and errors of a function that takes them as keywords."""

    def decorate(inner: F) -> F:
        @functools.wraps(inner)
        def function(*args: Any, **keywords: Any) -> Any:
            try:
                return inner(*args, **keywords)
            except SincereError as error:
                error.args = (with_keywords(str(error), record),)
                raise

        own = inspect.signature(function)
        named = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        keywords = [
            inspect.Parameter(
                setting.name, inspect.Parameter.KEYWORD_ONLY, default=setting.default, annotation=_source(setting)
            )
            for setting in record.settings()
            if setting.name not in own.parameters
        ]
        function.__signature__ = own.replace(parameters=[*named, *keywords])  # type: ignore[attr-defined]
        if function.__doc__:  # python -OO has none
            entries = [f"    {s.name}: {' '.join(s.help.split())}" for s in record.settings()]
            head, raises, tail = inspect.cleandoc(function.__doc__).partition("\nRaises:")
            function.__doc__ = "\n".join([head, "Args:", *entries, raises + tail])
        return cast(F, function)

    return decorate


def with_keywords(text: str, record: type[Request]) -> str:
    """Return a message with the keywords of a record in place of its flags; commands stay as they are.

    Example:
        >>> with_keywords("start over with --overwrite, --clip-norm 1 or --encoder resnet18", TrainRequest)
        'start over with overwrite=True, clip_norm=1 or encoder="resnet18"'
    """
    settings = {setting.name: setting for setting in record.settings()}

    def keyword(match: re.Match[str]) -> str:
        name = (match["name"] or "").replace("-", "_")
        if name not in settings:
            return match[0]
        setting, following = settings[name], match["next"] or ""
        rest = f" {following}" if following else ""
        if _written(setting.annotation).startswith("bool"):
            return f"{name}={not match['no']}{rest}"
        if _NUMBER.fullmatch(following):
            return f"{name}={following}"
        if setting.choices is not None and following in setting.choices.names:
            return f"{name}={_quoted(following)}"
        return f"{name}{rest}"

    return _COMMAND_OR_FLAG.sub(keyword, text)


def keywords_source() -> str:
    """Return the text of keywords.py."""
    parts, known = [HEADER], set[str]()
    for record in (
        TrainRequest,
        CompareRequest,
        SearchRequest,
        EvaluateRequest,
        TransferRequest,
        ReproduceRequest,
    ):
        bases = []
        for concern in record.concerns().values():
            name = concern.__name__.replace("Settings", "Keywords")
            bases.append(name)
            if name not in known:
                known.add(name)
                parts.append(_typed_dict(name, "TypedDict, total=False", concern, list(concern.settings())))
        nested = {setting.name for concern in record.concerns().values() for setting in concern.settings()}
        own = [s for s in record.settings() if s.name not in nested and s.name not in POSITIONAL]
        name = record.__name__.replace("Request", "Keywords")
        parts.append(_typed_dict(name, f"{', '.join(bases)}, total=False", record, own))
    return "\n\n".join(parts)


def _typed_dict(name: str, bases: str, record: type[Settings], settings: list[Setting]) -> str:
    about = (record.__doc__ or "").splitlines()[0]
    head = f"class {name}({bases}):"
    if len(head) > 120:  # as ruff formats it
        head = f"class {name}(\n    " + bases.replace(", ", ",\n    ") + ",\n):"
    lines = "\n".join(f"    {setting.name}: {_source(setting)}" for setting in settings)
    return f'{head}\n    """{about}"""\n\n{lines}\n'


def _source(setting: Setting) -> str:
    """Return the type of a setting as it is written in source code."""
    kind = _written(setting.annotation)
    if setting.name in OBJECTS:
        return kind.replace("str", "str | object", 1)
    return kind.replace("str", "str | Path") if setting.choices is not None and setting.choices.paths else kind


def _written(kind: Any) -> str:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _written(arguments[0])
    if origin in (Union, UnionType):
        return " | ".join(_written(part) for part in arguments)
    if origin is tuple:
        return f"Sequence[{_written(arguments[0])}]"
    if origin is Literal:
        return f"Literal[{', '.join(map(_quoted, arguments))}]"
    return "None" if kind is NoneType else "str | Path" if kind is Path else str(kind.__name__)


def _quoted(text: str) -> str:
    return f'"{text}"'


if __name__ == "__main__":
    Path(__file__).with_name("keywords.py").write_text(keywords_source())
