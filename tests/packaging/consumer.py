"""A program that uses the installed package, for a type checker: .ci/run checks it with mypy --strict.

It is not a test of pytest. The last lines are wrong on purpose: mypy must notice that the ignored errors exist.
"""

from __future__ import annotations

import torch

import sincere
from sincere import SINCERELoss, sincere_loss

loss: torch.Tensor = SINCERELoss(temperature=0.1)(torch.randn(4, 8), torch.tensor([0, 0, 1, 1]))
same: torch.Tensor = sincere_loss(torch.randn(4, 8), torch.tensor([0, 0, 1, 1]), reduction="mean")
version: str = sincere.__version__

wrong: str = sincere_loss(torch.randn(4, 8), torch.tensor([0, 0, 1, 1]))  # type: ignore[assignment]
sincere.no_such_name  # type: ignore[attr-defined]  # noqa: B018
