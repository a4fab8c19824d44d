"""A command of `sincere` as text, for messages that suggest one."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def command_text(words: Iterable[str], settings: Mapping[str, Any]) -> str:
    """Return a command of `sincere` with these settings as flags.

    Example:
        >>> command_text(["compare"], {"data": "my photos", "freeze": False, "seeds": [0, 1]})
        "sincere compare --data 'my photos' --no-freeze --seeds 0 1"
    """
    flags = [word for name, value in settings.items() for word in _words(f"--{name.replace('_', '-')}", value)]
    return shlex.join(["sincere", *words, *flags])


def _words(flag: str, value: Any) -> Iterator[str]:
    if isinstance(value, bool):
        yield flag if value else f"--no-{flag.removeprefix('--')}"
        return
    yield flag
    yield from map(str, value) if isinstance(value, list) else [str(value)]
