"""Importing the drop-ins: the package is light, and a missing library is named with the command that installs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIBRARIES = {  # module of ours: the package it needs, and the extra that brings it
    "sentence_transformers": ("sentence_transformers", "sentence-transformers"),
    "transformers": ("transformers", "transformers"),
    "lightning": ("lightning", "lightning"),
    "metric_learning": ("pytorch_metric_learning", "metric-learning"),
}
WITHOUT_LIBRARIES = f"""
import sys
from importlib import import_module
from sincere.errors import MissingPackageError
libraries = {LIBRARIES!r}
for package, _ in libraries.values():
    sys.modules[package] = None  # as if it were not installed
for name in libraries:
    try:
        import_module(f"sincere.integrations.{{name}}")
    except MissingPackageError as error:
        print(error)
"""


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def messages() -> list[str]:
    return run(WITHOUT_LIBRARIES).splitlines()


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_missing_library_is_named_with_its_extra(name: str, messages: list[str]) -> None:
    package, extra = LIBRARIES[name]
    expected = f"needs {package}, which is not installed; install it with: pip install 'sincere[{extra}]'"
    assert f"sincere.integrations.{name} {expected}" in messages


def test_the_package_is_light() -> None:
    loaded = set(run("import sincere.integrations, sys\nprint(*{n.split('.')[0] for n in sys.modules})").split())
    assert "sincere" in loaded
    assert loaded.isdisjoint({"torch", "numpy", "sklearn", *(package for package, _ in LIBRARIES.values())})
