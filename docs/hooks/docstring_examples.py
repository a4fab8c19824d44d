"""Extension of griffe: docstrings name the section of a single example "Example", griffe knows "Examples" only."""

from __future__ import annotations

import re
from typing import Any

import griffe


class DocstringExamples(griffe.Extension):
    """Rename the section before it is parsed, so that prompts and results are shown as code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename the section in the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
