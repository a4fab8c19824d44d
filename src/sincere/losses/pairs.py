"""What a kernel computes: who is a positive of whom, and by which formula."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sincere.catalog import Formula
from sincere.shapes import AnchorIds, KeyIds, PerAnchor


@dataclass(frozen=True, eq=False)
class Contrast:
    """Which key is a positive, which a negative, which the anchor itself, and the formula that weighs them.

    Attributes:
        formula: What tells the loss apart from the others of its family.
        ids: Class of each anchor.
        key_ids: Class of each key; equal ids mean the same class.
        self_index: For each anchor the key that is the anchor itself, -1 for none.
        positive_counts: Number of positives of each anchor, |P_i|, in the loss's float type.
    """

    formula: Formula
    ids: AnchorIds
    key_ids: KeyIds
    self_index: AnchorIds
    positive_counts: PerAnchor

    @property
    def n_keys(self) -> int:
        """Number of keys each anchor is compared with, itself included."""
        return len(self.key_ids)

    def of_anchors(self, rows: slice) -> Contrast:
        """Return the same contrast for some of the anchors, with all keys."""
        return Contrast(self.formula, self.ids[rows], self.key_ids, self.self_index[rows], self.positive_counts[rows])

    def weights(self, reduction: str) -> PerAnchor | None:
        """Return the weight of each anchor in the "mean" or "sum" over those that have a positive; None for "none"."""
        if reduction == "none":
            return None
        has_positive = (self.positive_counts > 0).to(self.positive_counts.dtype)
        return has_positive / has_positive.sum().clamp_min(1.0) if reduction == "mean" else has_positive


def class_ids(labels: AnchorIds) -> AnchorIds:
    """Renumber labels as 0, 1, 2, ... in sorted order; every -1 becomes a class of its own.

    Works without reading values back from the device.

    Example:
        >>> class_ids(torch.tensor([7, -1, 3, 7, -1])).tolist()
        [3, 0, 2, 3, 1]
    """
    ordered, order = labels.sort(stable=True)
    starts = torch.ones_like(ordered, dtype=torch.bool)
    starts[1:] = (ordered[1:] != ordered[:-1]) | (ordered[1:] == -1)
    return torch.empty_like(labels).scatter_(0, order, starts.cumsum(0) - 1)


def contrast_batch(formula: Formula, labels: Tensor, *, n_views: int, dtype: torch.dtype) -> Contrast:
    """Contrast a batch of labelled images, each with `n_views` rows, with itself."""
    ids = class_ids(labels).repeat_interleave(n_views)
    rows = torch.arange(len(ids), device=ids.device)
    return Contrast(formula, ids, ids, rows, _count_class_keys(ids, ids, n_classes=len(ids), dtype=dtype) - 1)


def contrast_with_keys(
    formula: Formula,
    labels: Tensor,
    key_labels: Tensor,
    anchor_index: Tensor | None,
    *,
    n_views: int,
    n_key_views: int,
    dtype: torch.dtype,
) -> Contrast:
    """Contrast labelled images with a separate set of keys.

    A label of -1 matches nothing: an anchor with it has no positive here, a key with it is a negative for all.
    """
    joint = class_ids(torch.cat([labels, key_labels]))
    ids = joint[: len(labels)].repeat_interleave(n_views)
    key_ids = joint[len(labels) :].repeat_interleave(n_key_views)
    counts = _count_class_keys(ids, key_ids, n_classes=len(joint), dtype=dtype)
    if anchor_index is None:
        self_index = torch.full_like(ids, -1)
    else:
        self_index = anchor_index.flatten().clone()  # kept until backward, whatever the caller does to it
        counts = counts - ((self_index >= 0) & (key_ids[self_index.clamp_min(0)] == ids)).to(dtype)
    return Contrast(formula, ids, key_ids, self_index, counts)


def _count_class_keys(ids: AnchorIds, key_ids: KeyIds, *, n_classes: int, dtype: torch.dtype) -> PerAnchor:
    """Return how many keys have the class of each anchor; `n_classes` is at least the largest id plus 1."""
    members = torch.zeros(n_classes, dtype=dtype, device=ids.device)
    members.index_add_(0, key_ids, members.new_ones(len(key_ids)))
    return members[ids]
