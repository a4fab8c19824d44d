"""Weighted sums of losses: two contrastive ones, or one and the cross-entropy of a linear classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from sincere.errors import InputTypeError
from sincere.loss_catalog import CROSS_ENTROPY, LOSSES
from sincere.loss_entry import Loss
from sincere.losses.distributed.collectives import TotalLoss
from sincere.losses.distributed.groups import default_as_none, find_group
from sincere.losses.options import DEFAULTS

UNLABELLED = -1
SHARED = frozenset({"normalize", "kernel", "soft", "label_similarity", "group", "exchange"})  # options of all terms


class LossSum(nn.Module):
    """sum_t weight_t loss_t, for terms by name; `sincere.loss_catalog.sum_terms` reads them from text.

    Where one of the terms is self-supervised, the supervised ones leave out the images without a label, which the
    other serves: for partly labelled data. SINCERE's values span a wider range than SupCon's, so that weights must be
    chosen again when one replaces the other.

    Attributes:
        criteria: The contrastive terms by name.
        temperature: That of all of them. Every hyper-parameter and option has an attribute, too.
    """

    def __init__(
        self,
        terms: Sequence[tuple[str, float]],
        temperature: float | Tensor = 0.1,
        *,
        n_classes: int | None = None,
        dim: int | None = None,
        **options: Any,
    ) -> None:
        """Make the terms.

        Args:
            terms: Name and weight of each.
            temperature: Of all contrastive terms.
            n_classes: Number of classes, for terms that keep something for each.
            dim: Dimension of an embedding, for the same terms.
            **options: Hyper-parameters, each for the terms that have it, `positives_in_denominator` likewise, and the
                options `normalize`, `kernel`, `soft`, `label_similarity`, `group` and `exchange` for all terms.

        Raises:
            InputTypeError: There is no such option, or one of the terms does not have it.
        """
        super().__init__()
        self.weights = dict(terms)
        named = {name: LOSSES[name] for name in self.weights if name != CROSS_ENTROPY}
        own = {name: _own_options(loss) for name, loss in named.items()}
        for name in options:
            if name not in SHARED and not any(name in names for names in own.values()):
                known = ", ".join(sorted(SHARED | set().union(*own.values())))
                raise InputTypeError(f"a sum of losses: unexpected keyword argument {name!r}; it takes {known}")
        shared = {name: value for name, value in options.items() if name in SHARED}
        partly_labelled = any(not loss.needs_labels for loss in named.values())
        self.criteria = nn.ModuleDict()
        for name, loss in named.items():
            chosen = {option: value for option, value in options.items() if option in own[name]}
            ignored = {"ignore_index": UNLABELLED} if partly_labelled and loss.needs_labels else {}
            sizes = {"n_classes": n_classes, "dim": dim} if loss.needs_classes else {}
            self.criteria[name] = loss.load()(temperature, **chosen, **shared, **ignored, **sizes)
            for option in own[name]:
                setattr(self, option, getattr(self.criteria[name], option))
        self.group = None
        for option, value in shared.items():
            setattr(self, option, value)

    @property
    def temperature(self) -> float | Tensor:
        """The temperature of the contrastive terms, which they share."""
        first: Any = next(iter(self.criteria.values()))
        temperature: float | Tensor = first.temperature
        return temperature

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
        processes = default_as_none(group)
        dist.all_reduce(count, group=processes)
        share: Tensor = TotalLoss.apply(total / count.clamp_min(1), processes)
        return share


def _own_options(loss: Loss) -> set[str]:
    """Return the names of a loss's hyper-parameters, and of the choice of its denominator if it has one."""
    names = {own.name for own in loss.hyper_parameters}
    return names | {"positives_in_denominator"} if loss.chooses_denominator else names
