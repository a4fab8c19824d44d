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
    from sincere.losses.gradient_cache import cached_backward
    from sincere.losses.hierarchy import hierarchical_loss
    from sincere.losses.modules import EpsSupInfoNCELoss, InfoNCELoss, SINCERELoss, SupConLoss
    from sincere.losses.queue import MemoryQueue
    from sincere.losses.related import (
        debiased_loss,
        decoupled_loss,
        k_positives_loss,
        nearest_neighbours_loss,
        supcon_in_loss,
    )
    from sincere.losses.related_modules import (
        DebiasedLoss,
        DecoupledLoss,
        KPositivesLoss,
        NearestNeighboursLoss,
        SupConInLoss,
    )
    from sincere.losses.set_loss import SetSINCERELoss, set_sincere_loss
    from sincere.losses.targeted import TargetedLoss, targeted_loss
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
    "DebiasedLoss",
    "DecoupledLoss",
    "EpsSupInfoNCELoss",
    "InfoNCELoss",
    "KPositivesLoss",
    "MemoryQueue",
    "Model",
    "NearestNeighboursLoss",
    "SINCERELoss",
    "SetSINCERELoss",
    "SupConInLoss",
    "SupConLoss",
    "TargetedLoss",
    "cached_backward",
    "class_divergence_bounds",
    "compare",
    "debiased_loss",
    "decoupled_loss",
    "eps_supinfonce_loss",
    "evaluate",
    "hierarchical_loss",
    "info_nce_loss",
    "k_positives_loss",
    "load",
    "load_dataset",
    "nearest_neighbours_loss",
    "reproduce",
    "repulsion_meter",
    "search",
    "set_sincere_loss",
    "sincere_loss",
    "supcon_in_loss",
    "supcon_loss",
    "targeted_loss",
    "train",
    "transfer",
]

_HOME = {
    "ContrastiveClassifier": "sincere.integrations.scikit_learn",
    "ContrastiveEmbedder": "sincere.integrations.scikit_learn",
    "DebiasedLoss": "sincere.losses.related_modules",
    "DecoupledLoss": "sincere.losses.related_modules",
    "EpsSupInfoNCELoss": "sincere.losses.modules",
    "InfoNCELoss": "sincere.losses.modules",
    "KPositivesLoss": "sincere.losses.related_modules",
    "MemoryQueue": "sincere.losses.queue",
    "Model": "sincere.workflows.model",
    "NearestNeighboursLoss": "sincere.losses.related_modules",
    "SINCERELoss": "sincere.losses.modules",
    "SupConInLoss": "sincere.losses.related_modules",
    "SetSINCERELoss": "sincere.losses.set_loss",
    "SupConLoss": "sincere.losses.modules",
    "TargetedLoss": "sincere.losses.targeted",
    "cached_backward": "sincere.losses.gradient_cache",
    "class_divergence_bounds": "sincere.theory.divergence",
    "compare": "sincere.workflows.compare",
    "debiased_loss": "sincere.losses.related",
    "decoupled_loss": "sincere.losses.related",
    "eps_supinfonce_loss": "sincere.losses.functional",
    "evaluate": "sincere.workflows.evaluate",
    "hierarchical_loss": "sincere.losses.hierarchy",
    "info_nce_loss": "sincere.losses.functional",
    "k_positives_loss": "sincere.losses.related",
    "load": "sincere.workflows.model",
    "load_dataset": "sincere.data.catalog",
    "nearest_neighbours_loss": "sincere.losses.related",
    "reproduce": "sincere.workflows.reproduce",
    "repulsion_meter": "sincere.theory.coefficients",
    "search": "sincere.workflows.search",
    "set_sincere_loss": "sincere.losses.set_loss",
    "sincere_loss": "sincere.losses.functional",
    "supcon_in_loss": "sincere.losses.related",
    "supcon_loss": "sincere.losses.functional",
    "targeted_loss": "sincere.losses.targeted",
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
