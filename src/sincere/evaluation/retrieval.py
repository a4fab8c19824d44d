"""Retrieval: how many of the references nearest to a query are of its class. In blocks, exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sincere.evaluation.inputs import check_search
from sincere.evaluation.model_outputs import Measure, Subject

BLOCK_NUMBERS = 16_000_000  # similarities at a time


@dataclass(frozen=True, eq=False)
class Retrieval:
    """A figure for each query (n,); their means are the usual metrics. A query whose class has no reference has 0.

    Attributes:
        recall: For each k, 1 if one of the k nearest references is of the query's class. k = 1 is precision@1.
        r_precision: Of the R nearest references, the share of the query's class, where R is that class's size.
        map_at_r: Mean over the R nearest of precision@i where the i-th is of the class, else 0 (Musgrave et al. 2020).
    """

    recall: dict[int, Tensor]
    r_precision: Tensor
    map_at_r: Tensor


def measure(subject: Subject) -> dict[str, Measure]:
    """Return precision@1, recall@k, R-precision and MAP@R of test images among training images."""
    train, test, ks = subject.train, subject.test, sorted({1, *subject.ks})
    found = retrieve(test.embeddings, test.labels, train.embeddings, train.labels, ks=ks)
    named = {"precision1": ("precision@1", found.recall[1])}
    named |= {f"recall{k}": (f"recall@{k}", found.recall[k]) for k in ks if k > 1}
    named |= {"r_precision": ("R-precision", found.r_precision), "map_at_r": ("MAP@R", found.map_at_r)}
    return {name: Measure(title, values.cpu().numpy()) for name, (title, values) in named.items()}


@torch.no_grad()
def retrieve(
    queries: Tensor,
    query_labels: Tensor,
    references: Tensor,
    reference_labels: Tensor,
    *,
    ks: Sequence[int] = (1, 5),
    leave_out: Tensor | None = None,
) -> Retrieval:
    """Return the retrieval figures of queries (n, d) among references (m, d), both of unit length.

    Args:
        queries: Embeddings of unit length.
        query_labels: Their classes (n,).
        references: Likewise.
        reference_labels: Likewise, (m,).
        ks: Of recall@k.
        leave_out: For each query the position of the reference that is the query itself.

    Raises:
        DataError: An embedding is not finite.
        InputValueError: A k is larger than the number of references.
    """
    check_search("retrieve", queries, references, ks, leave_out)
    available = len(references) - (leave_out is not None)
    classes, counts = torch.unique(reference_labels, return_counts=True)
    place = torch.searchsorted(classes, query_labels).clamp_max(len(classes) - 1)
    sizes = torch.where(classes[place] == query_labels, counts[place], 0) - int(leave_out is not None)
    sizes = sizes.clamp_min(0)
    depth = min(available, max(int(sizes.max()), *ks))
    rows = max(1, BLOCK_NUMBERS // len(references))
    parts = []
    for start in range(0, len(queries), rows):
        block = slice(start, start + rows)
        similarities = queries[block] @ references.T
        if leave_out is not None:
            similarities.scatter_(1, leave_out[block, None], -torch.inf)
        nearest = similarities.topk(depth, dim=1).indices
        parts.append(_figures(reference_labels[nearest] == query_labels[block, None], sizes[block], ks))
    recall = {k: torch.cat([part[0][k] for part in parts]) for k in ks}
    return Retrieval(recall, torch.cat([part[1] for part in parts]), torch.cat([part[2] for part in parts]))


def _figures(hits: Tensor, sizes: Tensor, ks: Sequence[int]) -> tuple[dict[int, Tensor], Tensor, Tensor]:
    """Return the figures of a block from whether each of its nearest references (b, depth) is of the class."""
    ranks = torch.arange(1, hits.shape[1] + 1, device=hits.device)
    within = hits & (ranks <= sizes[:, None])
    n = sizes.clamp_min(1).double()
    precision = hits.cumsum(dim=1).double() / ranks
    recall = {k: hits[:, :k].any(dim=1).double() for k in ks}
    return recall, within.sum(dim=1) / n, (precision * within).sum(dim=1) / n
