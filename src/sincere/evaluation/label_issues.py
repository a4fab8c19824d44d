"""Labels that may be wrong: those that the nearest neighbours of a sample contradict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sincere.evaluation.neighbours import nearest_references

MOST_NEIGHBOURS, FEWEST_NEIGHBOURS = 200, 5
TEMPERATURE = 0.1  # of the votes' weights


@dataclass(frozen=True, eq=False)
class LabelIssues:
    """What the neighbours of n samples say about their labels.

    Attributes:
        agreement: Share of the neighbours' votes for the sample's own label (n,): near 0 for a wrong label.
        suggested: Label with the most votes (n,).
        k: Number of neighbours that voted.
    """

    agreement: NDArray[np.float64]
    suggested: NDArray[np.int64]
    k: int

    def ranking(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of the samples whose label is not the suggested one, the most doubtful first."""
        doubtful = np.flatnonzero(self.suggested != labels)
        return doubtful[np.argsort(self.agreement[doubtful], kind="stable")]


@torch.no_grad()
def find_label_issues(vectors: Tensor, labels: Tensor, *, k: int | None = None) -> LabelIssues:
    """Compare each label with those of the k nearest others, weighted by exp(similarity / 0.1).

    Vectors that have never seen the labels, such as features of a frozen encoder, find far more wrong labels than
    embeddings that were trained with them, which put a sample near those of its label, right or wrong.

    Args:
        vectors: Vectors of unit length (n, d).
        labels: Class of each (n,).
        k: Number of neighbours; by default half of the median class size, at least 5 and at most 200.
    """
    n, n_classes = len(labels), int(labels.max()) + 1
    if k is None:
        typical = int(torch.bincount(labels).double().quantile(0.5))
        k = min(max(typical // 2, FEWEST_NEIGHBOURS), MOST_NEIGHBOURS)
    k = min(k, n - 1)
    similarities, positions = nearest_references(vectors, vectors, k + 1)
    own = positions == torch.arange(n, device=labels.device)[:, None]
    own[~own.any(dim=1), -1] = True  # it has more than k exact copies: one neighbour is dropped in its place
    weights = torch.softmax(similarities.double().masked_fill(own, -torch.inf) / TEMPERATURE, dim=1)
    votes = weights.new_zeros(n, n_classes).scatter_add_(1, labels[positions], weights)
    agreement = votes.gather(1, labels[:, None])[:, 0]
    return LabelIssues(agreement.cpu().numpy(), votes.argmax(dim=1).cpu().numpy(), k)
