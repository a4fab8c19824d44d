"""Exact nearest neighbours by cosine similarity where images may have several labels: which share one, which do not."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sincere.evaluation.inputs import check_search
from sincere.evaluation.neighbours import BLOCK_BYTES, first_largest

K = 20  # neighbours whose labels are counted in scores
LEAST_WEIGHT = 1e-6  # of a neighbour


@dataclass(frozen=True, eq=False)
class LabelNeighbours:
    """The nearest references of n queries.

    Attributes:
        shares: Whether the nearest reference of all shares a label with the query (n,).
        similarity: Similarity to the nearest references (n, k), the nearest first.
        position: Positions of these references (n, k).
        sharing: Similarity to the nearest reference that shares a label with the query (n,); -inf if there is none.
        disjoint: Similarity to the nearest reference that shares none (n,); -inf if there is none.
    """

    shares: Tensor
    similarity: Tensor
    position: Tensor
    sharing: Tensor
    disjoint: Tensor


@torch.no_grad()
def find_label_neighbours(
    queries: Tensor,
    query_labels: Tensor,
    references: Tensor,
    reference_labels: Tensor,
    *,
    k: int,
    leave_out: Tensor | None = None,
) -> LabelNeighbours:
    """Return the nearest neighbours of queries (n, d) among references (m, d); ties go to the first reference.

    Args:
        queries: Embeddings of unit length.
        query_labels: Label sets of the queries (n, L), 0 or 1.
        references: Embeddings of unit length.
        reference_labels: Label sets of the references (m, L).
        k: Number of neighbours.
        leave_out: Position of the reference that is the query itself (n,), for leave-one-out.

    Raises:
        DataError: An embedding is not finite.
        InputValueError: k is larger than the number of references.
    """
    check_search("neighbours", queries, references, (k,), leave_out)
    own_sets, other_sets = (labels.to(references.dtype) for labels in (query_labels, reference_labels))
    n_rows = max(1, BLOCK_BYTES // (2 * len(references) * references.element_size()))
    parts = []
    for start in range(0, len(queries), n_rows):
        rows = slice(start, start + n_rows)
        similarities = queries[rows] @ references.T
        if leave_out is not None:
            similarities.scatter_(1, leave_out[rows, None], -torch.inf)
        shares = own_sets[rows] @ other_sets.T > 0
        best = first_largest(similarities, k).sort(dim=1).values
        near, at = similarities.gather(1, best).sort(dim=1, descending=True, stable=True)
        sharing, disjoint = (similarities.masked_fill(mask, -torch.inf).amax(dim=1) for mask in (~shares, shares))
        position = best.gather(1, at)
        parts.append((shares.gather(1, position[:, :1])[:, 0], near, position, sharing, disjoint))
    return LabelNeighbours(*(torch.cat(column) for column in zip(*parts, strict=True)))


def label_scores(similarities: Tensor, positions: Tensor, reference_labels: Tensor) -> Tensor:
    """Return the score of each label (n, L): the share of the neighbours that have it, weighted by similarity.

    Neighbours with a similarity of 0 or less have next to no weight, unless all have: then each has the same.

    Args:
        similarities: Similarities of the neighbours (n, k).
        positions: Positions of the neighbours among the references (n, k).
        reference_labels: Label sets of the references (m, L).

    Example:
        >>> sets = torch.tensor([[1, 0], [1, 1]])
        >>> label_scores(torch.tensor([[0.75, 0.25]]), torch.tensor([[0, 1]]), sets).tolist()
        [[1.0, 0.25]]
    """
    weights = similarities.double().clamp_min(LEAST_WEIGHT)
    votes = weights.new_zeros(len(weights), reference_labels.shape[1])
    for rank in range(weights.shape[1]):  # one at a time: the labels of all neighbours would take k times the memory
        votes += weights[:, rank, None] * reference_labels[positions[:, rank]]
    return votes / weights.sum(dim=1, keepdim=True)


def shares_label(
    queries: Tensor,
    query_labels: Tensor,
    references: Tensor,
    reference_labels: Tensor,
    *,
    leave_out: Tensor | None = None,
) -> float:
    """Return the fraction of the queries with a label whose nearest reference shares one; 0 if none has a label."""
    found = find_label_neighbours(queries, query_labels, references, reference_labels, k=1, leave_out=leave_out)
    labelled = query_labels.any(dim=1)
    return float(found.shares[labelled].double().mean()) if bool(labelled.any()) else 0.0
