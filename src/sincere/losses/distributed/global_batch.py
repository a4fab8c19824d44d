"""A batch whose rows are spread over the processes of a group."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch.distributed as dist
from torch import Tensor

from sincere import checks
from sincere.errors import InputValueError
from sincere.loss_entry import Formula
from sincere.losses.distributed.collectives import Group, gather, share_numbers
from sincere.losses.inputs import count_views, statistics_dtype, without_ignored
from sincere.losses.label_inputs import check_key_weights, check_labels
from sincere.losses.label_sets import LabelOptions
from sincere.losses.pairs import PLAIN_LABELS, Contrast, contrast_batch


@dataclass(frozen=True, eq=False)
class GlobalBatch:
    """Who is a positive of whom among the rows of all processes, and where they are.

    Attributes:
        contrast: Every row of every process against all of them, in order of rank.
        sizes: Number of rows of each process.
        group: The processes.
    """

    contrast: Contrast
    sizes: list[int]
    group: Group

    def rows_of(self, rank: int) -> slice:
        """Return the positions of a process's rows among all."""
        start = sum(self.sizes[:rank])
        return slice(start, start + self.sizes[rank])

    @property
    def own(self) -> slice:
        """Positions of this process's rows."""
        return self.rows_of(dist.get_rank(self.group))


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """What one process brings to a batch.

    Attributes:
        embeddings: (n, d) or (n, views, d).
        labels: (n,) or (n, L).
        key_weights: Weight of each image among the keys (n,), or None.
        options: How labels are read.
        draw: Number of the random draw; that of the first process counts.
    """

    embeddings: Tensor
    labels: Tensor
    key_weights: Tensor | None = None
    options: LabelOptions = PLAIN_LABELS
    draw: int = 0


def share_batch(caller: str, formula: Formula, own: LabelledRows, group: Group) -> tuple[Tensor, GlobalBatch]:
    """Return this process's rows and the batch of all processes, whose labels are exchanged.

    Raises:
        InputTypeError, InputValueError: An argument is wrong, or processes disagree on d, views, labels or type.
    """
    embeddings, options = own.embeddings, own.options
    labels = check_labels(caller, embeddings, own.labels, options)
    key_weights = check_key_weights(caller, formula, own.key_weights, embeddings, None)
    n_views, dtype = count_views(embeddings), statistics_dtype(embeddings.dtype)
    facts = {
        "d": embeddings.shape[-1],
        "views": n_views,
        "dtype size in bytes": dtype.itemsize,
        "number of labels": labels.shape[1] if labels.ndim == 2 else 0,
        "presence of key_weights": int(key_weights is not None),
    }
    sizes, draw = share_facts(caller, facts, group, n=len(embeddings), draw=own.draw)
    all_labels = gather(labels.to(dtype) if labels.ndim == 2 else labels, sizes, group)
    weights = None if key_weights is None else gather(key_weights.to(dtype), sizes, group)
    shared: dict[str, Any] = {"dtype": dtype, "options": options, "key_weights": weights}
    contrast = contrast_batch(formula, all_labels, n_views=n_views, **shared)
    rows = without_ignored(embeddings, options.ignored(labels), dtype)
    return rows, GlobalBatch(replace(contrast, draw=draw), [size * n_views for size in sizes], group)


def share_facts(caller: str, facts: dict[str, int], group: Group, *, n: int, draw: int) -> tuple[list[int], int]:
    """Return how many images each process has, and the number of the first one's random draw.

    Args:
        caller: The public function, for messages.
        facts: What must be the same in every process.
        group: The processes.
        n: Number of this process's images.
        draw: Number of this process's random draw.

    Raises:
        InputValueError: In every process, if a fact differs.
    """
    everyone = share_numbers([n, draw, *facts.values()], group)
    for position, name in enumerate(facts, start=2):
        column = [numbers[position] for numbers in everyone]
        if len(set(column)) > 1:
            raise InputValueError(checks.wording(caller, f"every process must have the same {name}", column))
    return [numbers[0] for numbers in everyone], everyone[0][1]
