"""What a kernel computes: who is a positive of whom, with which weight, and by which formula."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sincere import host
from sincere.loss_entry import Formula
from sincere.losses.label_sets import LabelOptions, LabelSets, batch_label_sets, key_label_sets
from sincere.shapes import AnchorIds, KeyIds, PerAnchor, PerKey

PLAIN_LABELS = LabelOptions()


@dataclass(frozen=True, eq=False)
class Contrast:
    """Which key is a positive, which a negative, which the anchor itself, and the formula that weighs them.

    Attributes:
        formula: What tells the loss apart from the others of its family.
        ids: Class of each anchor; of no meaning with label sets.
        key_ids: Class of each key; equal ids mean the same class.
        self_index: For each anchor the key that is the anchor itself, -1 for none.
        positive_counts: Number of positives of each anchor, |P_i|, in the loss's float type. With label sets the number
            of labels that it shares with others, of which only the sign counts. 0 for an anchor that is left out.
        key_bias: Logarithm of each key's weight, which is added to its similarities; -infinity for keys that take no
            part. None where all keys weigh the same.
        label_sets: Weights of pairs, where an image has several labels.
        draw: Number of the random draw, for formulas that draw positives.
        first_anchor: Position of the first anchor, if these are some of them.
        n_targets: How many keys, the last, are targets of classes, for formulas that give these a weight of their own.
    """

    formula: Formula
    ids: AnchorIds
    key_ids: KeyIds
    self_index: AnchorIds
    positive_counts: PerAnchor
    key_bias: PerKey | None = None
    label_sets: LabelSets | None = None
    draw: int = 0
    first_anchor: int = 0
    n_targets: int = 0

    @property
    def anchor_numbers(self) -> AnchorIds:
        """Position of each anchor among all."""
        return torch.arange(self.first_anchor, self.first_anchor + len(self.ids), device=self.ids.device)

    @property
    def n_keys(self) -> int:
        """Number of keys each anchor is compared with, itself included."""
        return len(self.key_ids)

    @property
    def has_classes(self) -> bool:
        """Whether every positive of an anchor weighs the same and is of its class, by one of the plain formulas."""
        return self.formula.is_plain and self.label_sets is None

    def of_anchors(self, rows: slice) -> Contrast:
        """Return the same contrast for some of the anchors, with all keys."""
        return replace(
            self,
            ids=self.ids[rows],
            self_index=self.self_index[rows],
            positive_counts=self.positive_counts[rows],
            label_sets=None if self.label_sets is None else self.label_sets.of_anchors(rows),
            first_anchor=self.first_anchor + rows.start,
        )

    def of_keys(self, rows: slice) -> Contrast:
        """Return the same contrast with some of the keys, for all anchors."""
        within = (self.self_index >= rows.start) & (self.self_index < rows.stop)
        return replace(
            self,
            key_ids=self.key_ids[rows],
            self_index=torch.where(within, self.self_index - rows.start, -1),
            key_bias=None if self.key_bias is None else self.key_bias[rows],
            label_sets=None if self.label_sets is None else self.label_sets.of_keys(rows),
        )

    def weights(self, reduction: str) -> PerAnchor | None:
        """Return the weight of each anchor in the "mean" or "sum" over those that have a positive; None for "none"."""
        if reduction == "none":
            return None
        has_positive = (self.positive_counts > 0).to(self.positive_counts.dtype)
        return has_positive / has_positive.sum().clamp_min(1.0) if reduction == "mean" else has_positive

    def pair_weights(self) -> Tensor:
        """Return the weight of each key among an anchor's positives (n, m): 0 for a negative, and where none is."""
        dtype = self.positive_counts.dtype
        if self.label_sets is None:
            weights = (self.ids[:, None] == self.key_ids).to(dtype)
        else:
            weights = self.label_sets.pair_weights()
        return weights.masked_fill_(self.absent(), 0.0)

    def absent(self) -> Tensor:
        """Return which pairs are none (n, m): an anchor with itself, and keys that take no part."""
        absent = self.self_index[:, None] == torch.arange(self.n_keys, device=self.key_ids.device)
        return absent if self.key_bias is None else absent | (self.key_bias == -torch.inf)


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


def contrast_batch(
    formula: Formula,
    labels: Tensor,
    *,
    n_views: int,
    dtype: torch.dtype,
    options: LabelOptions = PLAIN_LABELS,
    key_weights: Tensor | None = None,
) -> Contrast:
    """Contrast a batch of labelled images, each with `n_views` rows, with itself.

    Args:
        formula: The loss.
        labels: (n,), or label sets (n, L).
        n_views: Rows of each image.
        dtype: The loss's float type.
        options: How labels are read.
        key_weights: Weight of each image among the keys (n,).
    """
    ignored = options.ignored(labels)
    ignored_rows = ignored.repeat_interleave(n_views)
    key_bias = _key_bias(key_weights, ignored, n_views, dtype)
    n = len(labels) * n_views
    rows = torch.arange(n, device=labels.device)
    if labels.ndim == 2:
        sets = batch_label_sets(labels, ignored, options, n_views=n_views, dtype=dtype)
        contrast = Contrast(formula, rows, rows, rows, sets.shared_labels(rows), key_bias, sets)
        return _left_out(contrast, ignored_rows)
    ids = class_ids(labels.masked_fill(ignored, -1)).repeat_interleave(n_views)
    counts = _count_class_keys(ids, ids, n_classes=n, dtype=dtype) - 1
    return _left_out(Contrast(formula, ids, ids, rows, counts, key_bias), ignored_rows)


def contrast_with_keys(
    formula: Formula,
    labels: Tensor,
    key_labels: Tensor,
    anchor_index: Tensor | None,
    *,
    n_views: int,
    n_key_views: int,
    dtype: torch.dtype,
    options: LabelOptions = PLAIN_LABELS,
    key_weights: Tensor | None = None,
) -> Contrast:
    """Contrast labelled images with a separate set of keys.

    A label of -1, or a label set of zeros, matches nothing: an anchor with it has no positive here, a key with it is a
    negative for all.
    """
    ignored, ignored_keys = options.ignored(labels), options.ignored(key_labels)
    key_bias = _key_bias(key_weights, ignored_keys, n_key_views, dtype)
    n, m = len(labels) * n_views, len(key_labels) * n_key_views
    self_index = torch.full((n,), -1, device=labels.device)
    if anchor_index is not None:
        self_index.copy_(anchor_index.flatten())  # a copy is kept until backward, whatever the caller does to it
    ignored_rows = ignored.repeat_interleave(n_views)
    if labels.ndim == 2:
        views = {"n_views": n_views, "n_key_views": n_key_views}
        sets = key_label_sets(labels, ignored, key_labels, ignored_keys, options, **views, dtype=dtype)
        ids, key_ids = (torch.arange(size, device=labels.device) for size in (n, m))
        counts = sets.shared_labels(self_index)
        return _left_out(Contrast(formula, ids, key_ids, self_index, counts, key_bias, sets), ignored_rows)
    joint = class_ids(torch.cat([labels.masked_fill(ignored, -1), key_labels.masked_fill(ignored_keys, -1)]))
    ids = joint[: len(labels)].repeat_interleave(n_views)
    key_ids = joint[len(labels) :].repeat_interleave(n_key_views)
    counts = _count_class_keys(ids, key_ids, n_classes=len(joint), dtype=dtype)
    if anchor_index is not None:
        counts = counts - ((self_index >= 0) & (key_ids[self_index.clamp_min(0)] == ids)).to(dtype)
    return _left_out(Contrast(formula, ids, key_ids, self_index, counts, key_bias), ignored_rows)


def _left_out(contrast: Contrast, ignored: Tensor) -> Contrast:
    """Return the contrast without positives for anchors that take no part, or that a formula cannot serve."""
    counts = contrast.positive_counts.masked_fill(ignored, 0.0)
    if contrast.formula.decoupled:
        counts = counts.masked_fill(~_have_negatives(contrast), 0.0)
    return replace(contrast, positive_counts=counts)


def _have_negatives(contrast: Contrast, block: int = 256) -> Tensor:
    """Return which anchors have a negative, some anchors at a time."""
    found = []
    for start in range(0, len(contrast.ids), block):
        part = contrast.of_anchors(slice(start, start + block))
        weights = part.pair_weights()
        is_soft = part.label_sets is not None and part.label_sets.soft
        negatives = (weights < 1 if is_soft else weights == 0) & ~part.absent()
        found.append(negatives.any(dim=1))
    return torch.cat(found)


def _key_bias(key_weights: Tensor | None, ignored: Tensor, n_views: int, dtype: torch.dtype) -> PerKey | None:
    """Return the logarithm of each key's weight, -infinity for those that take no part; None if it is 0 for all."""
    # Whether any row is ignored is read from the CPU only; elsewhere it would wait for the device.
    if key_weights is None and host.reads_back(ignored.device) and not bool(ignored.any()):
        return None
    log_weights = torch.zeros(len(ignored), dtype=dtype, device=ignored.device)
    if key_weights is not None:
        log_weights = key_weights.detach().to(dtype).log()
    return log_weights.masked_fill(ignored, -torch.inf).repeat_interleave(n_views)


def _count_class_keys(ids: AnchorIds, key_ids: KeyIds, *, n_classes: int, dtype: torch.dtype) -> PerAnchor:
    """Return how many keys have the class of each anchor; `n_classes` is at least the largest id plus 1."""
    members = torch.zeros(n_classes, dtype=dtype, device=ids.device)
    members.index_add_(0, key_ids, members.new_ones(len(key_ids)))
    return members[ids]
