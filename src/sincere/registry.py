"""Look-up of names in registries: plain dicts from a name to "module:attribute".

The target is imported on first use, so help texts and "did you mean" start no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from sincere.checks import choice


def load(registry: Mapping[str, str], name: str, *, caller: str, argument: str) -> Any:
    """Return the object that `registry` holds under `name`.

    Raises:
        InputValueError: There is no such name; the message lists the names and the nearest one.

    Example:
        >>> load({"root": "math:sqrt"}, "root", caller="demo", argument="function")(9.0)
        3.0
    """
    choice(caller, argument, name, registry)
    module, attribute = registry[name].split(":")
    return getattr(import_module(module), attribute)
