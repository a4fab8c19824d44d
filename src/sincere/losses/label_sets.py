"""Several labels per image: how strongly two images are positives of each other, from rows of labels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sincere.shapes import AnchorIds, KeyIds, KeyLabelRows, LabelRows, PerAnchor


@dataclass(frozen=True)
class LabelOptions:
    """How labels are read.

    Attributes:
        soft: Rows of a label set are probabilities.
        tanimoto: The weight of two multi-hot rows is their Tanimoto similarity, not the number of labels they share.
        ignore_index: Label of rows that take no part; in a label set, a row filled with it.
    """

    soft: bool = False
    tanimoto: bool = False
    ignore_index: int = -100

    def ignored(self, labels: Tensor) -> Tensor:
        """Return which images take no part: (n,) from labels (n,) or (n, L)."""
        marked = labels == self.ignore_index
        return marked.all(dim=1) if labels.ndim == 2 else marked


@dataclass(frozen=True, eq=False)
class LabelSets:
    """Label rows of anchors and keys, and the weight w_ij >= 0 of each pair that follows from them.

    Attributes:
        labels: Labels of each anchor (n, L), in the loss's float type; 0 in rows without a label or that take no part.
        key_labels: Labels of each key (m, L), stored label by label, which makes products faster.
        soft: Rows are probabilities, and w_ij = <y_i, y_j> that of one class. A pair counts as negative with 1 - w_ij.
        tanimoto: w_ij = <y_i, y_j> / (|y_i|^2 + |y_j|^2 - <y_i, y_j>) in place of <y_i, y_j>.
        images: For anchors without a label their image, whose views are their positives; -1 for all others. None where
            no two rows show one image.
        key_images: The same for keys; -2 for all others.
    """

    labels: LabelRows
    key_labels: KeyLabelRows
    soft: bool
    tanimoto: bool
    images: AnchorIds | None = None
    key_images: KeyIds | None = None

    def of_anchors(self, rows: slice) -> LabelSets:
        """Return the same for some of the anchors, with all keys."""
        images = None if self.images is None else self.images[rows]
        return LabelSets(self.labels[rows], self.key_labels, self.soft, self.tanimoto, images, self.key_images)

    def of_keys(self, rows: slice) -> LabelSets:
        """Return the same for some of the keys, with all anchors."""
        images = None if self.key_images is None else self.key_images[rows]
        return LabelSets(self.labels, self.key_labels[rows], self.soft, self.tanimoto, self.images, images)

    def pair_weights(self, out: Tensor | None = None) -> Tensor:
        """Return w_ij of every anchor and key (n, m), that of a row with itself included; written to `out` if given."""
        weights = torch.mm(self.labels, self.key_labels.T, out=out)
        if self.tanimoto:
            either = self.labels.square().sum(dim=1, keepdim=True) + self.key_labels.square().sum(dim=1) - weights
            weights.div_(either.clamp_min_(torch.finfo(weights.dtype).tiny))
        if self.images is not None and self.key_images is not None:
            weights.add_(self.images[:, None] == self.key_images)
        return weights.clamp_max_(1.0) if self.soft else weights

    def shared_labels(self, self_index: AnchorIds) -> PerAnchor:
        """Return how many labels each anchor shares with other keys, all keys together: above 0 with a positive."""
        present, key_present = ((rows > 0).to(rows.dtype) for rows in (self.labels, self.key_labels))
        shared = present @ key_present.sum(dim=0)
        itself = self_index.clamp_min(0)
        own = (present * key_present[itself]).sum(dim=1)
        if self.images is not None and self.key_images is not None:
            # The views of an image follow each other in sorted order: counted without a matrix of all pairs.
            ordered = self.key_images.sort().values
            views = torch.searchsorted(ordered, self.images, right=True) - torch.searchsorted(ordered, self.images)
            shared = shared + views
            own = own + (self.images == self.key_images[itself])
        return shared - torch.where(self_index >= 0, own, 0.0)


def batch_label_sets(
    labels: Tensor, ignored: Tensor, options: LabelOptions, *, n_views: int, dtype: torch.dtype
) -> LabelSets:
    """Return the label sets of a batch that is contrasted with itself: labels (n, L) of images with `n_views` rows."""
    rows = _rows(labels, ignored, n_views, dtype)
    key_rows = by_column(rows)
    if n_views == 1:
        return LabelSets(rows, key_rows, options.soft, options.tanimoto)
    unlabelled = (rows == 0).all(dim=1) & ~ignored.repeat_interleave(n_views)
    images = torch.arange(len(labels), device=labels.device).repeat_interleave(n_views)
    own, key_own = images.masked_fill(~unlabelled, -1), images.masked_fill(~unlabelled, -2)
    return LabelSets(rows, key_rows, options.soft, options.tanimoto, own, key_own)


def key_label_sets(
    labels: Tensor,
    ignored: Tensor,
    key_labels: Tensor,
    ignored_keys: Tensor,
    options: LabelOptions,
    *,
    n_views: int,
    n_key_views: int,
    dtype: torch.dtype,
) -> LabelSets:
    """Return the label sets of a batch against keys, where a row without a label matches nothing."""
    rows = _rows(labels, ignored, n_views, dtype)
    key_rows = by_column(_rows(key_labels, ignored_keys, n_key_views, dtype))
    return LabelSets(rows, key_rows, options.soft, options.tanimoto)


def by_column(matrix: Tensor) -> Tensor:
    """Return a matrix (m, k) that is stored column by column, so that its transpose is contiguous."""
    return matrix.T.contiguous().T


def _rows(labels: Tensor, ignored: Tensor, n_views: int, dtype: torch.dtype) -> Tensor:
    # A copy, also of rows that need no change: kept until backward, whatever the caller does to them.
    return labels.to(dtype).masked_fill(ignored[:, None], 0.0).repeat_interleave(n_views, dim=0)
