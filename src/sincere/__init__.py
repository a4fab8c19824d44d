"""Supervised contrastive learning: learn an embedding, see what a loss does to it with honest statistics, use it.

The public names are loaded on first use, so that importing the package, and `sincere --help`, starts no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sincere.errors import MissingPackageError, missing_package

if TYPE_CHECKING:
    from sincere.data.catalog import load_dataset
    from sincere.integrations.scikit_learn import ContrastiveClassifier, ContrastiveEmbedder
    from sincere.losses.functional import eps_supinfonce_loss, info_nce_loss, sincere_loss, supcon_loss
    from sincere.losses.modules import EpsSupInfoNCELoss, InfoNCELoss, SINCERELoss, SupConLoss
    from sincere.theory.coefficients import repulsion_meter
    from sincere.theory.divergence import class_divergence_bounds
    from sincere.workflows.compare import compare
    from sincere.workflows.evaluate import evaluate
    from sincere.workflows.model import Model, load
    from sincere.workflows.reproduce import reproduce
    from sincere.workflows.search import search
    from sincere.workflows.train import train
    from sincere.workflows.transfer import transfer

__version__ = "0.1.0"

__all__ = [
    "ContrastiveClassifier",
    "ContrastiveEmbedder",
    "EpsSupInfoNCELoss",
    "InfoNCELoss",
    "Model",
    "SINCERELoss",
    "SupConLoss",
    "class_divergence_bounds",
    "compare",
    "eps_supinfonce_loss",
    "evaluate",
    "info_nce_loss",
    "load",
    "load_dataset",
    "reproduce",
    "repulsion_meter",
    "search",
    "sincere_loss",
    "supcon_loss",
    "train",
    "transfer",
]

_HOME = {
    "ContrastiveClassifier": "sincere.integrations.scikit_learn",
    "ContrastiveEmbedder": "sincere.integrations.scikit_learn",
    "EpsSupInfoNCELoss": "sincere.losses.modules",
    "InfoNCELoss": "sincere.losses.modules",
    "Model": "sincere.workflows.model",
    "SINCERELoss": "sincere.losses.modules",
    "SupConLoss": "sincere.losses.modules",
    "class_divergence_bounds": "sincere.theory.divergence",
    "compare": "sincere.workflows.compare",
    "eps_supinfonce_loss": "sincere.losses.functional",
    "evaluate": "sincere.workflows.evaluate",
    "info_nce_loss": "sincere.losses.functional",
    "load": "sincere.workflows.model",
    "load_dataset": "sincere.data.catalog",
    "repulsion_meter": "sincere.theory.coefficients",
    "reproduce": "sincere.workflows.reproduce",
    "search": "sincere.workflows.search",
    "sincere_loss": "sincere.losses.functional",
    "supcon_loss": "sincere.losses.functional",
    "train": "sincere.workflows.train",
    "transfer": "sincere.workflows.transfer",
}


if not TYPE_CHECKING:  # a type checker should notice names that do not exist

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(_HOME[name]), name)
        except ModuleNotFoundError as error:
            return _missing(missing_package(f"sincere.{name}", error))
        globals()[name] = value
        return value


def _missing(message: str) -> Callable[..., Any]:
    """Return what stands for a function whose packages are not installed."""

    def missing(*arguments: Any, **keywords: Any) -> Any:
        raise MissingPackageError(message)

    missing.__doc__ = message
    return missing


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
