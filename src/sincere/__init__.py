"""Supervised contrastive learning: see what a loss does to your embeddings, with honest statistics.

The public names are loaded on first use, so that importing the package, and later `sincere --help`, starts no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sincere.losses.functional import eps_supinfonce_loss, info_nce_loss, sincere_loss, supcon_loss
    from sincere.losses.modules import EpsSupInfoNCELoss, InfoNCELoss, SINCERELoss, SupConLoss
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
    "compare",
    "eps_supinfonce_loss",
    "evaluate",
    "info_nce_loss",
    "load",
    "sincere_loss",
    "supcon_loss",
    "train",
    "transfer",
]

_FUNCTIONS, _MODULES = "sincere.losses.functional", "sincere.losses.modules"
_HOME = {name: _FUNCTIONS if name.islower() else _MODULES for name in __all__}
_HOME |= {name: f"sincere.workflows.{name}" for name in ("compare", "evaluate", "train", "transfer")}
_HOME["load"] = "sincere.workflows.train"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
