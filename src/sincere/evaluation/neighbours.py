"""Exact nearest neighbours by cosine similarity, in blocks."""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK_ROWS = 1024


@torch.no_grad()
def nearest(queries: Tensor, references: Tensor, *, leave_out: Tensor | None = None) -> Tensor:
    """Return for each query (n, d) the position of its nearest reference (m, d), both of unit length.

    Ties go to the first. Never holds n x m similarities: memory O(block m).

    Args:
        queries: Embeddings of unit length.
        references: Likewise.
        leave_out: For each query the position of the reference that is the query itself.
    """
    found = []
    for start in range(0, len(queries), BLOCK_ROWS):
        similarities = queries[start : start + BLOCK_ROWS] @ references.T
        if leave_out is not None:
            own = leave_out[start : start + BLOCK_ROWS, None]
            similarities.scatter_(1, own, -torch.inf)
        found.append(similarities.argmax(dim=1))
    return torch.cat(found)


def accuracy_1nn(
    queries: Tensor,
    query_labels: Tensor,
    references: Tensor,
    reference_labels: Tensor,
    *,
    leave_out: Tensor | None = None,
) -> float:
    """Return the share of queries whose nearest reference is of their class.

    Example:
        >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> accuracy_1nn(z, torch.tensor([0, 1]), z, torch.tensor([0, 0]))
        0.5
    """
    predicted = reference_labels[nearest(queries, references, leave_out=leave_out)]
    return float((predicted == query_labels).double().mean())
