"""Warnings about the metrics of an epoch, each with a remedy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from sincere.losses.pairs import class_ids

STUCK_SHARE = 0.02  # fraction of the way from chance to floor below which a loss counts as stuck
FEW_NEGATIVES = 0.1  # from chance to floor in nats, below which a batch has hardly any negatives
LASTING_SHARE, FEWEST_EPOCHS = 0.2, 3  # of a run's epochs that must have the same problem, before there is a warning
COLLAPSED = 0.95  # mean similarity of negatives above which embeddings count as collapsed


@torch.no_grad()
def mean_similarities(embeddings: Tensor, labels: Tensor) -> tuple[float | None, float | None]:
    """Return the mean cosine similarity of positive and of negative pairs in a batch (n, n_views, d).

    None where there is no such pair. Computed from the sum of each class in O(n d); for label sets (n, L), whose images
    are positives if they share a label, from all pairs.
    """
    n_views = embeddings.shape[1]
    z = torch.nn.functional.normalize(embeddings.double().flatten(0, 1), dim=1)
    if labels.ndim == 2:
        return _label_set_similarities(z, labels, n_views)
    ids = class_ids(labels).repeat_interleave(n_views)  # an image without a label is a class of its own
    sums = z.new_zeros(int(ids.max()) + 1, z.shape[1]).index_add_(0, ids, z)
    counts = torch.bincount(ids).double()
    within, everything = float(sums.square().sum()), float(sums.sum(dim=0).square().sum())
    n_positive, n_negative = float((counts * (counts - 1)).sum()), float(len(z) ** 2 - counts.square().sum())
    diagonal = float(z.square().sum())
    return (
        (within - diagonal) / n_positive if n_positive else None,
        (everything - within) / n_negative if n_negative else None,
    )


def _label_set_similarities(z: Tensor, labels: Tensor, n_views: int) -> tuple[float | None, float | None]:
    """Return the means for embeddings of unit length (n n_views, d) of images that may have several labels."""
    same_image = torch.eye(len(labels), dtype=torch.bool, device=z.device)
    shares = (labels.double() @ labels.double().T > 0) | same_image
    positive = shares.repeat_interleave(n_views, dim=0).repeat_interleave(n_views, dim=1)
    negative = ~positive
    positive.fill_diagonal_(False)
    similarities = z @ z.T
    means = (float(similarities[pairs].mean()) if bool(pairs.any()) else None for pairs in (positive, negative))
    return next(means), next(means)


def lasting_warnings(rows: Sequence[Mapping[str, Any]], *, n_epochs: int, warmup_epochs: float) -> dict[str, str]:
    """Return warnings about the last epochs by kind, where each of them has it: a fifth of the run, at least three.

    Many runs that learn well are at chance, or collapsed, in their first epochs.
    """
    n = min(max(FEWEST_EPOCHS, math.ceil(LASTING_SHARE * n_epochs)), n_epochs)
    if len(rows) < n:
        return {}
    *earlier, last = (warnings(row, warmup_epochs=warmup_epochs) for row in rows[-n:])
    return {kind: text for kind, text in last.items() if all(kind in found for found in earlier)}


def warnings(row: Mapping[str, Any], *, warmup_epochs: float) -> dict[str, str]:
    """Return warnings about the metrics of an epoch by kind: "stuck", "collapsed"."""
    messages = {}
    chance, floor = row.get("chance"), row.get("floor")
    past_warmup = row["epoch"] >= warmup_epochs + 2
    if past_warmup and chance is not None and chance - row["loss"] < STUCK_SHARE * (chance - floor):
        remedy = (
            "hardly any sample of a batch is of another class than most; add samples of other classes"
            if chance - floor < FEW_NEGATIVES
            else "try a longer warm-up (--warmup-epochs), another learning rate (--learning-rate), or a higher "
            "--temperature"
        )
        messages["stuck"] = f"the loss {row['loss']:.3f} is still at its chance level {chance:.3f}: {remedy}"
    if row["noise_similarity"] is not None and row["noise_similarity"] > COLLAPSED:
        messages["collapsed"] = (
            f"samples of different classes have a mean similarity of {row['noise_similarity']:.2f}: the embeddings "
            "collapse; try a lower learning rate (--learning-rate) or gradient clipping (--clip-norm)"
        )
    return messages
