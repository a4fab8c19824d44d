"""The settings as Python keywords: real signatures, for editors and for `help`.

`python -m sincere.settings.signatures` writes keywords.py from the records; a test holds it fresh.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

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


def with_signature(record: type[Request]) -> Callable[[F], F]:
    """Show the settings of a record in the signature and the help of a function that takes them as keywords."""

    def decorate(function: F) -> F:
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
        return function

    return decorate


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
