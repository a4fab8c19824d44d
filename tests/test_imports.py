"""Importing the package is light, and its public names are what they say."""

from __future__ import annotations

import subprocess
import sys

import pytest

import sincere

HEAVY = ["kornia", "lightning", "lightning_fabric", "plotly", "optuna", "torchvision", "altair", "sklearn", "scipy"]


def loaded_after(statement: str) -> set[str]:
    """Top-level packages in a fresh interpreter after a statement."""
    code = f"{statement}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


def test_import_starts_no_torch() -> None:
    assert loaded_after("import sincere").isdisjoint([*HEAVY, "torch", "numpy"])


def test_registries_start_no_torch() -> None:
    assert "torch" not in loaded_after("from sincere.catalog import LOSSES\nfrom sincere.data.catalog import DATASETS")


def test_using_a_loss_loads_torch_and_nothing_else_heavy() -> None:
    loaded = loaded_after("from sincere import sincere_loss")
    assert "torch" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_the_test_above_can_fail() -> None:
    assert "scipy" in loaded_after("from sincere import sincere_loss\nimport scipy")


@pytest.mark.parametrize("name", sincere.__all__)
def test_public_names(name: str) -> None:
    assert getattr(sincere, name).__name__ == name
    assert name in dir(sincere)


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="module 'sincere' has no attribute 'sincer_loss'"):
        sincere.sincer_loss  # noqa: B018
