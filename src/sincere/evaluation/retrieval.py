"""Retrieval metrics: which of the nearest references are of the class of a query. Exact, in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sincere.evaluation.inputs import check_search
from sincere.evaluation.model_outputs import Metric, ModelOutputs

BLOCK_SIZE = 16_000_000  # similarities that are computed at a time


@dataclass(frozen=True, eq=False)
class Retrieval:
    """Retrieval metrics of each query (n,); a query whose class has no reference has 0.

    Attributes:
        recall: For each k, 1 if one of the k nearest references is of the query's class; k = 1 is precision@1.
        r_precision: Fraction of the R nearest references that are of the query's class, where R is the class's size.
        map_at_r: Mean over the R nearest of precision@i where the i-th is of the class, else 0 (Musgrave et al. 2020,
            https://arxiv.org/abs/2003.08505).
    """

    recall: dict[int, Tensor]
    r_precision: Tensor
    map_at_r: Tensor


def measure(outputs: ModelOutputs) -> dict[str, Metric]:
    """Return precision@1, recall@k, R-precision and MAP@R of test images among training images."""
    train, test, ks = outputs.train, outputs.test, sorted({1, *outputs.ks})
    retrieval = retrieve(test.embeddings, test.labels, train.embeddings, train.labels, ks=ks)
    named = {"precision1": ("precision@1", retrieval.recall[1])}
    named |= {f"recall{k}": (f"recall@{k}", retrieval.recall[k]) for k in ks if k > 1}
    named |= {"r_precision": ("R-precision", retrieval.r_precision), "map_at_r": ("MAP@R", retrieval.map_at_r)}
    return {name: Metric(title, values.cpu().numpy(), group="retrieval") for name, (title, values) in named.items()}


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
    """Return the retrieval metrics of queries (n, d) among references (m, d).

    Args:
        queries: Embeddings of unit length.
        query_labels: Class of each query (n,).
        references: Embeddings of unit length.
        reference_labels: Class of each reference (m,).
        ks: Numbers of neighbours of recall@k.
        leave_out: Position of the reference that is the query itself (n,), for leave-one-out.

    Raises:
        DataError: An embedding is not finite.
        InputValueError: A k is larger than the number of references.
    """
    check_search("retrieve", queries, references, ks, leave_out)
    available = len(references) - (leave_out is not None)
    classes, counts = torch.unique(reference_labels, return_counts=True)
    index = torch.searchsorted(classes, query_labels).clamp_max(len(classes) - 1)
    sizes = torch.where(classes[index] == query_labels, counts[index], 0) - int(leave_out is not None)
    sizes = sizes.clamp_min(0)
    depth = min(available, max(int(sizes.max()), *ks))
    rows = max(1, BLOCK_SIZE // len(references))
    parts = []
    for start in range(0, len(queries), rows):
        block = slice(start, start + rows)
        similarities = queries[block] @ references.T
        if leave_out is not None:
            similarities.scatter_(1, leave_out[block, None], -torch.inf)
        nearest = similarities.topk(depth, dim=1).indices
        parts.append(_block_metrics(reference_labels[nearest] == query_labels[block, None], sizes[block], ks))
    recall = {k: torch.cat([part[0][k] for part in parts]) for k in ks}
    return Retrieval(recall, torch.cat([part[1] for part in parts]), torch.cat([part[2] for part in parts]))


def _block_metrics(hits: Tensor, sizes: Tensor, ks: Sequence[int]) -> tuple[dict[int, Tensor], Tensor, Tensor]:
    """Return recall, R-precision and MAP@R of a block; `hits` (b, depth) tells which references are of the class."""
    ranks = torch.arange(1, hits.shape[1] + 1, device=hits.device)
    within = hits & (ranks <= sizes[:, None])
    n = sizes.clamp_min(1).double()
    precision = hits.cumsum(dim=1).double() / ranks
    recall = {k: hits[:, :k].any(dim=1).double() for k in ks}
    return recall, within.sum(dim=1) / n, (precision * within).sum(dim=1) / n
