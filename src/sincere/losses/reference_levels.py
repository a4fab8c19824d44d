"""Chance level and floor of each loss for a batch: what its value is to be read against."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sincere.catalog import LOSSES
from sincere.losses.inputs import check_formula


@dataclass(frozen=True)
class Levels:
    """The loss of a batch when all similarities are equal, and when the classes are perfectly apart."""

    chance: float
    floor: float


def loss_levels(loss: str, labels: Tensor, *, n_views: int = 1, **hyper_parameters: float) -> Levels:
    """Return the levels of a loss for the labels (n,) of a batch; unlabelled images (-1) are classes of their own.

    With |P| positives and |N| negatives of an anchor, means over the anchors that have a positive: SINCERE
    log(1 + |N|) and 0; eps-SupInfoNCE log(e^-eps + |N|) and -eps; SupCon, with all other items in the denominator,
    log(n - 1) and log |P|. Where the image itself is the label (InfoNCE), each image is a class of its own. No anchor
    with a positive: 0 and 0.

    Args:
        loss: A name in `sincere.catalog.LOSSES`.
        labels: (n,), integers.
        n_views: Number of views of each image.
        **hyper_parameters: Those of the loss, such as `epsilon`, in place of its defaults.

    Example:
        >>> levels = loss_levels("sincere", torch.tensor([0, 0, 1, 1]))
        >>> round(levels.chance, 4), levels.floor
        (1.0986, 0.0)
    """
    formula = check_formula("loss_levels", loss, hyper_parameters)
    if LOSSES[loss].needs_labels:
        labelled = labels[labels >= 0]
        _, inverse, counts = torch.unique(labelled, return_inverse=True, return_counts=True)
        sizes = torch.cat([counts[inverse], counts.new_ones(len(labels) - len(labelled))]).double()
    else:
        sizes = torch.ones(len(labels), dtype=torch.float64)
    sizes = sizes.cpu() * n_views
    n = len(labels) * n_views
    sizes = sizes[sizes > 1]
    if len(sizes) == 0:
        return Levels(0.0, 0.0)
    n_negatives, n_positives = n - sizes, sizes - 1
    if formula.positives_in_denominator:
        return Levels(math.log(n - 1), float(n_positives.log().mean()))
    if formula.epsilon == 0:
        return Levels(float(n_negatives.log1p().mean()), 0.0)
    return Levels(float((math.exp(-formula.epsilon) + n_negatives).log().mean()), -formula.epsilon)
