"""Weighted sums of losses: two contrastive ones, or one and the cross-entropy of a linear classifier."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from sincere.errors import InputTypeError
from sincere.loss_catalog import CROSS_ENTROPY, LOSSES
from sincere.loss_entry import Loss
from sincere.losses.distributed.collectives import TotalLoss
from sincere.losses.distributed.groups import default_as_none, find_group
from sincere.losses.loss_module import LossModule
from sincere.losses.options import DEFAULTS

UNLABELLED = -1
OF_LABEL_SETS = frozenset({"soft", "label_similarity"})
SHARED = frozenset({"normalize", "kernel", "group", "exchange"}) | OF_LABEL_SETS  # options of all terms


class LossSum(nn.Module):
    """sum_t weight_t loss_t, for terms by name; `sincere.loss_catalog.sum_terms` reads them from text.

    Where one of the terms is self-supervised, the supervised ones leave out the images without a label, which the
    other serves: for partly labelled data. SINCERE's values span a wider range than SupCon's, so that weights must be
    chosen again when one replaces the other.

    Attributes:
        weights: Weight of each term by name.
        criteria: The contrastive terms by name.
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
                options `normalize`, `kernel`, `group` and `exchange` for all terms; also `soft` and `label_similarity`,
                if all terms take label sets.

        Raises:
            InputTypeError: There is no such option, or one of the terms does not have it.
        """
        super().__init__()
        self.weights, self.group = dict(terms), options.get("group")
        named = {name: LOSSES[name] for name in self.weights if name != CROSS_ENTROPY}
        own = {name: _own_options(loss) for name, loss in named.items()}
        take_label_sets = all(loss.takes_label_sets and loss.needs_labels for loss in named.values())
        shared = SHARED if take_label_sets and CROSS_ENTROPY not in self.weights else SHARED - OF_LABEL_SETS
        for name in options:
            if name not in shared.union(*own.values()):
                known = ", ".join(sorted(shared.union(*own.values())))
                raise InputTypeError(f"the sum {'+'.join(self.weights)}: takes {known}; got {name}")
        partly_labelled = any(not loss.needs_labels for loss in named.values())
        self.criteria = nn.ModuleDict()
        for name, loss in named.items():
            chosen = {option: value for option, value in options.items() if option in own[name] | shared}
            module = loss.load()
            if lacking := chosen.keys() - signature(module).parameters.keys():
                raise InputTypeError(f"the sum {'+'.join(self.weights)}: {name} takes no {', '.join(sorted(lacking))}")
            ignored = {"ignore_index": UNLABELLED} if partly_labelled and loss.needs_labels else {}
            sizes = {"n_classes": n_classes, "dim": dim} if loss.needs_classes else {}
            self.criteria[name] = module(temperature, **chosen, **ignored, **sizes)

    def options(self) -> dict[str, Any]:
        """Return the temperature, hyper-parameters and options of the terms; those of one name are the same."""
        found: dict[str, Any] = {}
        for criterion in self.criteria.values():
            found = {**cast(LossModule, criterion).options(), **found}
        return {name: value for name, value in found.items() if name != "ignore_index"}

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
