"""Importing the package is light, and its public names are what they say."""

from __future__ import annotations

import subprocess
import sys

import pytest

import sincere

HEAVY = ["kornia", "lightning", "lightning_fabric", "plotly", "optuna", "torchvision", "altair", "sklearn", "scipy"]
HEAVY.append("triton")  # which torch brings on Linux

# Refuses every import from site-packages but that of torch and numpy, and of what torch itself needs.
ONLY_TORCH_AND_NUMPY = """
import sys
from importlib.abc import MetaPathFinder
from importlib.metadata import packages_distributions, requires
import re
import torch, numpy
needed, todo = set(), ["torch", "numpy"]
while todo:
    name = todo.pop()
    if name not in needed:
        needed.add(name)
        try:
            lines = [line for line in requires(name) or [] if "extra ==" not in line]
        except Exception:
            continue
        todo += [re.match(r"[A-Za-z0-9._-]+", line)[0].lower().replace("_", "-") for line in lines]
allowed = {
    module for module, names in packages_distributions().items()
    if any(name.lower().replace("_", "-") in needed | {"sincere"} for name in names)
}
class Blocker(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if top not in allowed | {"sincere"} and top not in sys.stdlib_module_names and top not in sys.modules:
            raise ModuleNotFoundError(f"blocked: {top}", name=top)
sys.meta_path.insert(0, Blocker())
"""
EVERY_LOSS = """
from sincere import EpsSupInfoNCELoss, InfoNCELoss, SetSINCERELoss, SINCERELoss, SupConLoss, TargetedLoss
from sincere.losses import equations
from sincere.losses.reference_levels import loss_levels
z, labels = torch.randn(8, 2, 3, requires_grad=True), torch.arange(8) % 2
for loss in (SINCERELoss, SupConLoss, EpsSupInfoNCELoss):
    loss(group="world", exchange="ring")(z, labels).backward()
    loss(kernel="tiled")(z, labels).backward()
InfoNCELoss(group="world")(z).backward()
SetSINCERELoss(group="world")(z, labels).backward()
TargetedLoss(n_classes=5, dim=3, group="world")(z, labels).backward()
loss_levels("supcon", labels)
"""
EVERY_THEORY = """
from importlib import import_module
from pathlib import Path
import sincere.theory
for path in Path(sincere.theory.__file__).parent.glob("*.py"):
    import_module(f"sincere.theory.{path.stem}")
from sincere.theory.coefficients import repulsion_meter
from sincere.theory.divergence import class_divergence_bounds
z, labels = torch.randn(40, 3), torch.arange(40) % 2
repulsion_meter(z, labels)
class_divergence_bounds(z, labels)
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)


def loaded_after(statement: str) -> set[str]:
    """Top-level packages in a fresh interpreter after a statement."""
    code = f"{statement}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


def test_import_starts_no_torch() -> None:
    assert loaded_after("import sincere").isdisjoint([*HEAVY, "torch", "numpy"])


def test_registries_start_no_torch() -> None:
    assert "torch" not in loaded_after(
        "from sincere.loss_catalog import LOSSES\nfrom sincere.data.catalog import DATASETS"
    )


def test_using_a_loss_loads_torch_and_nothing_else_heavy() -> None:
    loaded = loaded_after("from sincere import sincere_loss")
    assert "torch" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_the_test_above_can_fail() -> None:
    assert "scipy" in loaded_after("from sincere import sincere_loss\nimport scipy")


@pytest.mark.parametrize("code", [EVERY_LOSS, EVERY_THEORY], ids=["losses", "theory"])
def test_losses_and_theory_need_torch_and_numpy_only(code: str) -> None:
    """Also jaxtyping, whose shapes are checked in the tests alone."""
    finished = run(ONLY_TORCH_AND_NUMPY + code)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize("package", ["jaxtyping", "scipy", "pydantic"])
def test_the_blocker_blocks(package: str) -> None:
    """Else the test above could not fail."""
    finished = run(f"{ONLY_TORCH_AND_NUMPY}import {package}")
    assert f"blocked: {package}" in finished.stderr


@pytest.mark.parametrize("name", sincere.__all__)
def test_public_names(name: str) -> None:
    assert getattr(sincere, name).__name__ == name
    assert name in dir(sincere)


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="module 'sincere' has no attribute 'sincer_loss'"):
        sincere.sincer_loss  # noqa: B018
