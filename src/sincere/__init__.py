"""Supervised contrastive learning: learn an embedding, see what a loss does to it with honest statistics, use it.

The public names are loaded on first use, so that importing the package, and `sincere --help`, starts no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sincere.errors import MissingPackageError, missing_package

if TYPE_CHECKING:
    from sincere.data.catalog import load_dataset
    from sincere.losses.functional import eps_supinfonce_loss, info_nce_loss, sincere_loss, supcon_loss
    from sincere.losses.modules import EpsSupInfoNCELoss, InfoNCELoss, SINCERELoss, SupConLoss
    from sincere.theory.coefficients import repulsion_meter
    from sincere.theory.divergence import class_divergence_bounds
    from sincere.workflows.compare import compare
    from sincere.workflows.evaluate import evaluate
    from sincere.workflows.train import load, train
    from sincere.workflows.transfer import transfer

__version__ = "0.1.0"

__all__ = [
    "EpsSupInfoNCELoss",
    "InfoNCELoss",
    "SINCERELoss",
    "SupConLoss",
    "class_divergence_bounds",
    "compare",
    "eps_supinfonce_loss",
    "evaluate",
    "info_nce_loss",
    "load",
    "load_dataset",
    "repulsion_meter",
    "sincere_loss",
    "supcon_loss",
    "train",
    "transfer",
]

_HOME = {
    "EpsSupInfoNCELoss": "sincere.losses.modules",
    "InfoNCELoss": "sincere.losses.modules",
    "SINCERELoss": "sincere.losses.modules",
    "SupConLoss": "sincere.losses.modules",
    "class_divergence_bounds": "sincere.theory.divergence",
    "compare": "sincere.workflows.compare",
    "eps_supinfonce_loss": "sincere.losses.functional",
    "evaluate": "sincere.workflows.evaluate",
    "info_nce_loss": "sincere.losses.functional",
    "load": "sincere.workflows.train",
    "load_dataset": "sincere.data.catalog",
    "repulsion_meter": "sincere.theory.coefficients",
    "sincere_loss": "sincere.losses.functional",
    "supcon_loss": "sincere.losses.functional",
    "train": "sincere.workflows.train",
    "transfer": "sincere.workflows.transfer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        raise MissingPackageError(missing_package(f"sincere.{name}", error)) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
