"""Exact nearest neighbours by cosine similarity: k-NN votes and the nearest positive and negative, in one pass.

In the paper's words, the nearest positive (reference of the query's class) is the target, the nearest negative the
noise. References are sorted by class, each class padded to whole chunks. For a block of queries only the largest
similarity of each chunk is computed first: the k nearest references are in the k chunks with the largest, the target in
a chunk of the query's class, the noise in another. So all n x m similarities are computed once, and none are sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sincere.evaluation.inputs import check_search

CHUNK = 64  # references in a chunk, or fewer where classes are small
BLOCK_ROWS, BLOCK_BYTES = 1024, 2**28  # queries in a block at most, and memory of their similarities

N_KEPT = 5  # nearest references that are returned, for display
FEW = 8  # up to this k the largest values are selected one by one; for more, all are sorted


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The nearest references of n queries.

    Attributes:
        predictions: For each k, the class (n,) that the k nearest references vote for, weighted by similarity.
        target_similarity: Similarity to the nearest reference of the query's class (n,); -inf if there is none.
        target_position: Position of that reference (n,); -1 if there is none.
        noise_similarity: Similarity to the nearest reference of another class (n,); -inf if there is none.
        noise_position: Position of that reference (n,); -1 if there is none.
        nearest_similarity: Similarity to the nearest references of any class (n, k), the nearest first; k is 5, or the
            largest number that votes if that is smaller.
        nearest_position: Positions of these references (n, k). The first decides the prediction for k = 1.
    """

    predictions: dict[int, Tensor]
    target_similarity: Tensor
    target_position: Tensor
    noise_similarity: Tensor
    noise_position: Tensor
    nearest_similarity: Tensor
    nearest_position: Tensor


@torch.no_grad()
def find_neighbours(
    queries: Tensor,
    query_labels: Tensor,
    references: Tensor,
    reference_labels: Tensor,
    *,
    ks: Sequence[int] = (1, 5),
    leave_out: Tensor | None = None,
) -> Neighbours:
    """Return the nearest neighbours of queries (n, d) among references (m, d).

    Ties in similarity are broken by the smaller label, then by the smaller position; ties in votes by the smaller
    label.

    Args:
        queries: Embeddings of unit length.
        query_labels: Class of each query (n,).
        references: Embeddings of unit length.
        reference_labels: Class of each reference (m,).
        ks: Numbers of neighbours that vote.
        leave_out: Position of the reference that is the query itself (n,), for leave-one-out; -1 for none.

    Raises:
        DataError: An embedding is not finite.
        InputValueError: A k is larger than the number of references.
    """
    check_search("neighbours", queries, references, ks, leave_out)
    classes = torch.unique(torch.cat([query_labels, reference_labels]))
    table = _ClassTable(references, reference_labels, classes, len(queries))
    query_classes = torch.searchsorted(classes, query_labels)
    parts = []
    n_rows = len(table.workspace)
    for start in range(0, len(queries), n_rows):
        rows = slice(start, start + n_rows)
        own = None if leave_out is None else leave_out[rows]
        parts.append(table.search(queries[rows], query_classes[rows], ks, own))
    votes, columns = [part[0] for part in parts], [part[1] for part in parts]
    target, target_at, noise, noise_at, near, near_at = (torch.cat(column) for column in zip(*columns, strict=True))
    predictions = {k: classes[torch.cat([vote[k] for vote in votes])] for k in ks}
    return Neighbours(predictions, target, target_at, noise, noise_at, near, near_at)


class _ClassTable:
    """References in chunks of one class each; padding slots are never nearest."""

    def __init__(self, references: Tensor, labels: Tensor, classes: Tensor, n_queries: int) -> None:
        ids = torch.searchsorted(classes, labels)
        counts = torch.bincount(ids, minlength=len(classes))
        self.chunk = min(CHUNK, -(-len(labels) // len(classes)))
        n_chunks = (counts + self.chunk - 1) // self.chunk
        ends = n_chunks.cumsum(0)
        order = ids.argsort(stable=True)
        first = (ends - n_chunks) * self.chunk - (counts.cumsum(0) - counts)  # of a class: first slot minus first rank
        slots = torch.arange(len(order), device=order.device) + first[ids[order]]
        n_slots = int(ends[-1]) * self.chunk
        self.references = references.new_zeros(n_slots, references.shape[1])
        self.references[slots] = references[order]
        self.positions = order.new_full((n_slots,), -1)  # reference in each slot; -1 for padding
        self.positions[slots] = order
        self.slots = torch.empty_like(order)  # slot of each reference
        self.slots[order] = slots
        self.padding = (self.positions < 0).nonzero()[:, 0]
        self.chunk_class = torch.arange(len(classes), device=order.device).repeat_interleave(n_chunks)
        self.n_classes = len(classes)
        # Reused for every block: allocating it each time would take as long as the products themselves.
        n_rows = min(BLOCK_ROWS, n_queries, max(1, BLOCK_BYTES // (n_slots * references.element_size())))
        self.workspace = references.new_empty(n_rows, n_slots)

    def search(
        self, queries: Tensor, query_classes: Tensor, ks: Sequence[int], own: Tensor | None
    ) -> tuple[dict[int, Tensor], tuple[Tensor, ...]]:
        similarities = self.workspace[: len(queries)]
        torch.mm(queries, self.references.T, out=similarities)
        similarities[:, self.padding] = -torch.inf
        if own is not None:
            rows = (own >= 0).nonzero()[:, 0]
            similarities[rows, self.slots[own[rows]]] = -torch.inf
        chunks = similarities.view(len(queries), -1, self.chunk)
        largest = chunks.amax(dim=2)  # (b, chunks)
        same = self.chunk_class == query_classes[:, None]
        target = self._nearest(chunks, largest.masked_fill(~same, -torch.inf), 1)
        noise = self._nearest(chunks, largest.masked_fill(same, -torch.inf), 1)
        near, near_slots = self._nearest(chunks, largest, max(ks))
        near_classes = self.chunk_class[near_slots // self.chunk]
        votes = {}
        for k in ks:
            weights = near.new_zeros(len(queries), self.n_classes)
            weights.scatter_add_(1, near_classes[:, :k], near[:, :k].nan_to_num(neginf=0.0))
            # A class without a vote must not win against classes whose votes are negative.
            voted = torch.zeros_like(weights, dtype=torch.bool).scatter_(1, near_classes[:, :k], True)
            votes[k] = weights.masked_fill(~voted, -torch.inf).argmax(dim=1)
        shown = near[:, :N_KEPT], self.positions[near_slots[:, :N_KEPT]]
        return votes, (*self._first(target), *self._first(noise), *shown)

    def _first(self, nearest: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return similarity and position of the nearest reference of each row."""
        similarity, slot = nearest[0][:, 0], nearest[1][:, 0]
        return similarity, torch.where(similarity.isinf(), -1, self.positions[slot])

    def _nearest(self, chunks: Tensor, largest: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the k largest similarities of each row and their slots, from the k chunks with the largest."""
        best = first_largest(largest, k).sort(dim=1).values
        rows = torch.arange(len(chunks), device=chunks.device)[:, None]
        excluded = largest.gather(1, best).isneginf().unsqueeze(2)
        candidates = chunks[rows, best].masked_fill(excluded, -torch.inf).flatten(1)  # (b, k chunk)
        values, at = _largest(candidates, k)
        return values, best.gather(1, at // self.chunk) * self.chunk + at % self.chunk


def first_largest(values: Tensor, k: int) -> Tensor:
    """Return the indices of the k largest values of each row, in any order; ties with the k-th go to the first."""
    if values.shape[1] <= k:
        return torch.arange(values.shape[1], device=values.device).expand(len(values), -1)
    top = values.topk(k + 1, dim=1)
    best = top.indices[:, :k]
    tied = top.values[:, k - 1] == top.values[:, k]
    if bool(tied.any()):
        best[tied] = values[tied].sort(dim=1, descending=True, stable=True).indices[:, :k]
    return best


def _largest(candidates: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest values of each row and their indices, the first among ties; overwrites its input."""
    if k > FEW:
        values, at = candidates.sort(dim=1, descending=True, stable=True)
        return values[:, :k], at[:, :k]
    selected = []
    for _ in range(k):
        at = candidates.argmax(dim=1, keepdim=True)
        selected.append((candidates.gather(1, at), at))
        candidates.scatter_(1, at, -torch.inf)
    return torch.cat([value for value, _ in selected], dim=1), torch.cat([at for _, at in selected], dim=1)


@torch.no_grad()
def nearest_references(queries: Tensor, references: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return similarities and positions (n, k) of the k nearest references of each query, the nearest first.

    Ties go to the first reference: sort them by class for the order of `find_neighbours`.

    Raises:
        DataError: An embedding is not finite.
        InputValueError: k is larger than the number of references.
    """
    check_search("neighbours", queries, references, (k,), None)
    n_rows = max(1, BLOCK_BYTES // (len(references) * references.element_size()))
    parts = []
    for block in queries.split(n_rows):
        all_similarities = block @ references.T
        best = first_largest(all_similarities, k).sort(dim=1).values
        near, at = all_similarities.gather(1, best).sort(dim=1, descending=True, stable=True)
        parts.append((near, best.gather(1, at)))
    similarities, positions = (torch.cat(column) for column in zip(*parts, strict=True))
    return similarities, positions
