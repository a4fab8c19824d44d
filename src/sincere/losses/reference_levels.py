"""Chance level and floor of each loss for a batch: what its value is to be read against."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sincere import checks
from sincere.catalog import LOSSES


@dataclass(frozen=True)
class Levels:
    """The loss of a batch when all similarities are equal, and when the classes are perfectly apart."""

    chance: float
    floor: float


def loss_levels(loss: str, labels: Tensor, *, n_views: int = 1, epsilon: float = 0.25) -> Levels:
    """Return the levels of a loss for the labels (n,) of a batch; unlabelled images (-1) are classes of their own.

    With |N| noise items and |P| partners of an anchor, means over the anchors that have a partner:
    SINCERE log(1 + |N|) and 0; SupCon log(n - 1) and log |P|; eps-SupInfoNCE log(e^-eps + |N|) and -eps; InfoNCE as
    SINCERE with each image a class of its own. No anchor with a partner: 0 and 0.

    Example:
        >>> levels = loss_levels("sincere", torch.tensor([0, 0, 1, 1]))
        >>> round(levels.chance, 4), levels.floor
        (1.0986, 0.0)
    """
    checks.choice("loss_levels", "loss", loss, LOSSES)
    if loss == "infonce":
        sizes = torch.ones(len(labels), dtype=torch.float64)
    else:
        labelled = labels[labels >= 0]
        _, inverse, counts = torch.unique(labelled, return_inverse=True, return_counts=True)
        sizes = torch.cat([counts[inverse], counts.new_ones(len(labels) - len(labelled))]).double()
    sizes = sizes.cpu() * n_views
    n = len(labels) * n_views
    sizes = sizes[sizes > 1]
    if len(sizes) == 0:
        return Levels(0.0, 0.0)
    n_noise, n_partners = n - sizes, sizes - 1
    if loss == "supcon":
        return Levels(math.log(n - 1), float(n_partners.log().mean()))
    if loss == "eps-supinfonce":
        return Levels(float((math.exp(-epsilon) + n_noise).log().mean()), -epsilon)
    return Levels(float(n_noise.log1p().mean()), 0.0)
