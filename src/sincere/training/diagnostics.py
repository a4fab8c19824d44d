"""What the figures of an epoch mean, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

STUCK_SHARE = 0.02  # of the way from chance to floor
COLLAPSED = 0.95  # mean similarity of images of different classes


@torch.no_grad()
def mean_similarities(embeddings: Tensor, labels: Tensor) -> tuple[float | None, float | None]:
    """Return the mean cosine similarity of partners and of noise pairs in a batch (n, views, d), None without a pair.

    From the sums of each class: O(n d).
    """
    n_views = embeddings.shape[1]
    z = torch.nn.functional.normalize(embeddings.double().flatten(0, 1), dim=1)
    ids = torch.unique(labels.repeat_interleave(n_views), return_inverse=True)[1]
    sums = z.new_zeros(int(ids.max()) + 1, z.shape[1]).index_add_(0, ids, z)
    counts = torch.bincount(ids).double()
    within, everything = float(sums.square().sum()), float(sums.sum(dim=0).square().sum())
    n_partner, n_noise = float((counts * (counts - 1)).sum()), float(len(z) ** 2 - counts.square().sum())
    own = float(z.square().sum())
    return (
        (within - own) / n_partner if n_partner else None,
        (everything - within) / n_noise if n_noise else None,
    )


def warnings(row: Mapping[str, Any], *, warmup_epochs: float) -> dict[str, str]:
    """Return what looks wrong in the row of an epoch, by kind, each with a remedy."""
    found = {}
    chance, floor = row["chance"], row["floor"]
    if row["epoch"] >= warmup_epochs + 2 and chance - row["loss"] < STUCK_SHARE * (chance - floor):
        found["stuck"] = (
            f"the loss {row['loss']:.3f} is still at its chance level {chance:.3f}: try a longer warm-up "
            "(--warmup-epochs), another learning rate (--learning-rate), or a higher --temperature"
        )
    if row["noise_similarity"] is not None and row["noise_similarity"] > COLLAPSED:
        found["collapsed"] = (
            f"images of different classes have a mean similarity of {row['noise_similarity']:.2f}: the embeddings "
            "collapse; try a lower learning rate (--learning-rate) or gradient clipping (--clip-norm)"
        )
    return found
