"""The Python functions show every setting, to editors and to `help`."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import get_type_hints

import pytest

import sincere
from sincere.settings import keywords, signatures
from sincere.settings.requests import REQUESTS

FUNCTIONS = ("train", "compare", "evaluate", "transfer")


def test_the_generated_keywords_are_fresh() -> None:
    assert Path(keywords.__file__).read_text() == signatures.keywords_source()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_signatures_show_every_setting_with_its_default(name: str) -> None:
    shown = inspect.signature(getattr(sincere, name)).parameters
    settings = {setting.name: setting for setting in REQUESTS[name].settings()}
    assert shown.keys() == settings.keys()
    for key, parameter in shown.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            assert parameter.default == settings[key].default


@pytest.mark.parametrize("name", FUNCTIONS)
def test_typed_keywords_are_those_of_the_signature(name: str) -> None:
    typed = get_type_hints(getattr(keywords, f"{name.capitalize()}Keywords"))
    shown = inspect.signature(getattr(sincere, name)).parameters
    assert typed.keys() == {key for key, p in shown.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}
