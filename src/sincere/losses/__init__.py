"""Supervised contrastive losses. Import them from `sincere`; this file holds only their registry.

To add a loss: its formula in `equations.py`, a function in `functional.py`, a shell in `modules.py`, one entry
here. The tests parametrise over this registry.
"""

from __future__ import annotations

LOSSES: dict[str, str] = {
    "sincere": "sincere.losses.modules:SINCERELoss",
    "supcon": "sincere.losses.modules:SupConLoss",
    "eps-supinfonce": "sincere.losses.modules:EpsSupInfoNCELoss",
    "infonce": "sincere.losses.modules:InfoNCELoss",
}
