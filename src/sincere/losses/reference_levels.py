"""Chance level and floor of each loss for a batch: what its value is to be read against."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sincere.loss_catalog import find_loss
from sincere.loss_entry import Formula
from sincere.losses.inputs import check_formula


@dataclass(frozen=True)
class Levels:
    """The loss of a batch when all similarities are equal, and when the classes are perfectly apart."""

    chance: float
    floor: float


def loss_levels(
    loss: str, labels: Tensor, *, n_views: int = 1, key_labels: Tensor | None = None, **hyper_parameters: float
) -> Levels:
    """Return the levels of a loss for the labels (n,) of a batch; unlabelled images (-1) are classes of their own.

    With |P| positives and |N| negatives of an anchor, means over the anchors that have a positive: SINCERE
    log(1 + |N|) and 0; eps-SupInfoNCE log(e^-eps + |N|) and -eps; SupCon, with all other items in the denominator,
    log(n - 1) and log |P|; Set-SINCERE, which chooses one of C(n - 1, |P|) sets, log C(n - 1, |P|) / |P| and 0. Where
    the image itself is the label (InfoNCE), each image is a class of its own. No anchor with a positive: 0 and 0.

    Args:
        loss: A name in `sincere.loss_catalog.LOSSES`.
        labels: (n,), integers.
        n_views: Number of views of each image.
        key_labels: Labels (m,) of keys that the batch is contrasted with besides itself, such as those of a queue.
        **hyper_parameters: Those of the loss, such as `epsilon`, in place of its defaults.

    Example:
        >>> levels = loss_levels("sincere", torch.tensor([0, 0, 1, 1]))
        >>> round(levels.chance, 4), levels.floor
        (1.0986, 0.0)
    """
    entry = find_loss(loss, caller="loss_levels")
    over_sets = entry.over_sets and not hyper_parameters  # it has none: the check below names them
    formula = Formula() if over_sets else check_formula("loss_levels", loss, hyper_parameters)
    others = labels[:0] if key_labels is None else key_labels
    sizes = torch.full((len(labels),), n_views, dtype=torch.float64)  # of the class of each image, in keys
    if entry.needs_labels:
        labelled = labels >= 0
        rows = torch.cat([labels[labelled].repeat_interleave(n_views), others]).sort().values
        ends = (torch.searchsorted(rows, labels[labelled], right=right) for right in (True, False))
        sizes[labelled.cpu()] = torch.sub(*ends).double().cpu()
    n = len(labels) * n_views + len(others)
    sizes = sizes[sizes > 1]
    if len(sizes) == 0:
        return Levels(0.0, 0.0)
    n_negatives, n_positives = n - sizes, sizes - 1
    if over_sets:
        n_sets = [torch.lgamma(count + 1) for count in (n_negatives + n_positives, n_positives, n_negatives)]
        return Levels(float(((n_sets[0] - n_sets[1] - n_sets[2]) / n_positives).mean()), 0.0)
    if formula.positives_in_denominator:
        return Levels(math.log(n - 1), float(n_positives.log().mean()))
    if formula.epsilon == 0:
        return Levels(float(n_negatives.log1p().mean()), 0.0)
    return Levels(float((math.exp(-formula.epsilon) + n_negatives).log().mean()), -formula.epsilon)
