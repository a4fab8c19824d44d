"""Weighted sums of losses: two contrastive ones, or one and the cross-entropy of a linear classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from sincere.loss_catalog import CROSS_ENTROPY, LOSSES
from sincere.losses.distributed.collectives import TotalLoss
from sincere.losses.distributed.groups import find_group
from sincere.losses.options import DEFAULTS

UNLABELLED = -1


class LossSum(nn.Module):
    """sum_t weight_t loss_t, for terms by name; `sincere.loss_catalog.sum_terms` reads them from text.

    Where one of the terms is self-supervised, the supervised ones leave out the images without a label, which the
    other serves: for partly labelled data. SINCERE's values span a wider range than SupCon's, so that weights must be
    chosen again when one replaces the other.

    Args:
        terms: Name and weight of each.
        temperature: Of all contrastive terms.
        group: Processes that share the batch, as in `sincere_loss`.
        n_classes: Number of classes, for terms that keep something for each.
        dim: Dimension of an embedding, for the same terms.
        **hyper_parameters: Those of the terms.
    """

    def __init__(
        self,
        terms: Sequence[tuple[str, float]],
        temperature: float | Tensor = 0.1,
        *,
        group: Any = None,
        n_classes: int | None = None,
        dim: int | None = None,
        **hyper_parameters: float,
    ) -> None:
        super().__init__()
        self.weights, self.group = dict(terms), group
        named = {name: LOSSES[name] for name in self.weights if name != CROSS_ENTROPY}
        partly_labelled = any(not loss.needs_labels for loss in named.values())
        self.criteria = nn.ModuleDict()
        for name, loss in named.items():
            names = {own.name for own in loss.hyper_parameters}
            names |= {"positives_in_denominator"} if loss.chooses_denominator else set()
            own = {name: value for name, value in hyper_parameters.items() if name in names}
            ignored = {"ignore_index": UNLABELLED} if partly_labelled and loss.needs_labels else {}
            across = {} if group is None else {"group": group}
            sizes = {"n_classes": n_classes, "dim": dim} if loss.needs_classes else {}
            self.criteria[name] = loss.load()(temperature, **own, **ignored, **across, **sizes)

    def forward(self, embeddings: Tensor, labels: Tensor, *, logits: Tensor | None = None) -> Tensor:
        """Return the sum for embeddings (n, d) or (n, views, d), labels (n,) and logits of the embeddings' shape."""
        return torch.stack(list(self.terms(embeddings, labels, logits=logits).values())).sum()

    def terms(self, embeddings: Tensor, labels: Tensor, *, logits: Tensor | None = None) -> dict[str, Tensor]:
        """Return each term, weighted, by name."""
        values = {}
        for name, weight in self.weights.items():
            if name == CROSS_ENTROPY:
                assert logits is not None
                values[name] = weight * self._classification(logits, labels)
            else:
                arguments = (embeddings, labels) if LOSSES[name].needs_labels else (embeddings,)
                values[name] = weight * self.criteria[name](*arguments)
        return values

    def _classification(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross-entropy over the labelled images of all processes."""
        rows = logits.float().flatten(0, -2)
        classes = labels.repeat_interleave(len(rows) // len(labels))
        total = cross_entropy(rows, classes, ignore_index=UNLABELLED, reduction="sum")
        count = (classes != UNLABELLED).sum()
        group = find_group(type(self).__name__, {**DEFAULTS, "group": self.group})
        if group is None:
            return total / count.clamp_min(1)
        dist.all_reduce(count, group=group)
        share: Tensor = TotalLoss.apply(total / count.clamp_min(1), group)
        return share
