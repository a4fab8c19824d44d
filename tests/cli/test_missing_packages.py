"""A verb whose packages are not installed says in one line what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(("package", "extra"), [("optuna", "search"), ("lightning_fabric", "all")])
def test_search(package: str, extra: str) -> None:
    code = f"import sys; sys.modules['{package}'] = None; from sincere.cli import main; sys.exit(main(['search']))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    expected = f"search needs {package}, which is not installed; install it with: pip install 'sincere[{extra}]'"
    assert (result.returncode, result.stderr) == (2, f"sincere: {expected}\n")
