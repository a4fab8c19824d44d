"""Exact nearest neighbours by cosine similarity: votes of the k nearest, nearest target and nearest noise, in one pass.

References are put in order of their class, each class in whole chunks. Of a block of queries only the largest
similarity of each chunk is kept: the k nearest stand in the k chunks with the largest, the nearest target in a chunk of
the query's class, the nearest noise in another. So all of n x m is computed once, and none of it is sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sincere.evaluation.inputs import check_search

CHUNK = 64  # references whose largest similarity is kept, or fewer where classes are small
BLOCK_ROWS, BLOCK_BYTES = 1024, 2**28  # queries at a time, and what their similarities may take

FEW = 8  # largest that are found one by one; more are sorted


@dataclass(frozen=True, eq=False)
class Neighbours:
    """What stands near each of n queries.

    Attributes:
        predictions: For each k, the class (n,) that the k nearest references vote for, weighted by similarity.
        target_similarity: To the nearest reference of the query's own class, (n,); -inf if there is none.
        target_position: Which reference that is; -1 if there is none.
        noise_similarity: To the nearest reference of any other class; likewise.
        noise_position: Which reference that is.
    """

    predictions: dict[int, Tensor]
    target_similarity: Tensor
    target_position: Tensor
    noise_similarity: Tensor
    noise_position: Tensor


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
    """Return the neighbours of queries (n, d) among references (m, d), both of unit length.

    Equal similarities go to the class with the smaller label, within it to the reference that comes first; equal votes
    to the smaller label.

    Args:
        queries: Embeddings of unit length.
        query_labels: Their classes (n,).
        references: Likewise.
        reference_labels: Likewise, (m,).
        ks: Numbers of neighbours that vote.
        leave_out: For each query the position of the reference that is the query itself; -1 for none.

    Raises:
        DataError: An embedding is not finite.
        InputValueError: A k is larger than the number of references.
    """
    check_search("neighbours", queries, references, ks, leave_out)
    classes = torch.unique(torch.cat([query_labels, reference_labels]))
    table = _ClassTable(references, reference_labels, classes, len(queries))
    wanted = torch.searchsorted(classes, query_labels)
    parts = []
    n_rows = len(table.workspace)
    for start in range(0, len(queries), n_rows):
        rows = slice(start, start + n_rows)
        own = None if leave_out is None else leave_out[rows]
        parts.append(table.search(queries[rows], wanted[rows], ks, own))
    votes, columns = [part[0] for part in parts], [part[1] for part in parts]
    target, target_at, noise, noise_at = (torch.cat(column) for column in zip(*columns, strict=True))
    predictions = {k: classes[torch.cat([vote[k] for vote in votes])] for k in ks}
    return Neighbours(predictions, target, target_at, noise, noise_at)


class _ClassTable:
    """References in whole chunks of one class each; empty places are never near."""

    def __init__(self, references: Tensor, labels: Tensor, classes: Tensor, n_queries: int) -> None:
        ids = torch.searchsorted(classes, labels)
        counts = torch.bincount(ids, minlength=len(classes))
        self.chunk = min(CHUNK, -(-len(labels) // len(classes)))
        n_chunks = (counts + self.chunk - 1) // self.chunk
        ends = n_chunks.cumsum(0)
        order = ids.argsort(stable=True)
        first = (ends - n_chunks) * self.chunk - (counts.cumsum(0) - counts)  # of a class: place minus rank
        places = torch.arange(len(order), device=order.device) + first[ids[order]]
        n_places = int(ends[-1]) * self.chunk
        self.references = references.new_zeros(n_places, references.shape[1])
        self.references[places] = references[order]
        self.positions = order.new_full((n_places,), -1)  # reference at each place
        self.positions[places] = order
        self.places = torch.empty_like(order)  # place of each reference
        self.places[order] = places
        self.empty = (self.positions < 0).nonzero()[:, 0]
        self.chunk_class = torch.arange(len(classes), device=order.device).repeat_interleave(n_chunks)
        self.n_classes = len(classes)
        # Written anew for every block: fresh memory for each would take as long as the products themselves.
        n_rows = min(BLOCK_ROWS, n_queries, max(1, BLOCK_BYTES // (n_places * references.element_size())))
        self.workspace = references.new_empty(n_rows, n_places)

    def search(
        self, queries: Tensor, wanted: Tensor, ks: Sequence[int], own: Tensor | None
    ) -> tuple[dict[int, Tensor], tuple[Tensor, Tensor, Tensor, Tensor]]:
        similarities = self.workspace[: len(queries)]
        torch.mm(queries, self.references.T, out=similarities)
        similarities[:, self.empty] = -torch.inf
        if own is not None:
            rows = (own >= 0).nonzero()[:, 0]
            similarities[rows, self.places[own[rows]]] = -torch.inf
        chunks = similarities.view(len(queries), -1, self.chunk)
        largest = chunks.amax(dim=2)  # (b, chunks)
        same = self.chunk_class == wanted[:, None]
        target = self._nearest(chunks, largest.masked_fill(~same, -torch.inf), 1)
        noise = self._nearest(chunks, largest.masked_fill(same, -torch.inf), 1)
        near, near_places = self._nearest(chunks, largest, max(ks))
        near_classes = self.chunk_class[near_places // self.chunk]
        votes = {}
        for k in ks:
            weights = near.new_zeros(len(queries), self.n_classes)
            weights.scatter_add_(1, near_classes[:, :k], near[:, :k].nan_to_num(neginf=0.0))
            # A class without any vote is no candidate, whatever the sign of the others'.
            voted = torch.zeros_like(weights, dtype=torch.bool).scatter_(1, near_classes[:, :k], True)
            votes[k] = weights.masked_fill(~voted, -torch.inf).argmax(dim=1)
        return votes, (*self._first(target), *self._first(noise))

    def _first(self, found: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return similarity and reference of the nearest of each row."""
        similarity, place = found[0][:, 0], found[1][:, 0]
        return similarity, torch.where(similarity.isinf(), -1, self.positions[place])

    def _nearest(self, chunks: Tensor, largest: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the k largest similarities of each row and their places, from the k chunks that hold them."""
        best = _first_largest(largest, k).sort(dim=1).values
        rows = torch.arange(len(chunks), device=chunks.device)[:, None]
        barred = largest.gather(1, best).isneginf().unsqueeze(2)
        candidates = chunks[rows, best].masked_fill(barred, -torch.inf).flatten(1)  # (b, k chunk)
        values, at = _largest(candidates, k)
        return values, best.gather(1, at // self.chunk) * self.chunk + at % self.chunk


def _first_largest(values: Tensor, k: int) -> Tensor:
    """Return where the k largest of each row are, in any order, the first ones where some tie with the k-th."""
    if values.shape[1] <= k:
        return torch.arange(values.shape[1], device=values.device).expand(len(values), -1)
    found = values.topk(k + 1, dim=1)
    best = found.indices[:, :k]
    tied = found.values[:, k - 1] == found.values[:, k]
    if bool(tied.any()):
        best[tied] = values[tied].sort(dim=1, descending=True, stable=True).indices[:, :k]
    return best


def _largest(candidates: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest of each row and where they are, the first among equals; overwrites its input."""
    if k > FEW:
        values, at = candidates.sort(dim=1, descending=True, stable=True)
        return values[:, :k], at[:, :k]
    found = []
    for _ in range(k):
        at = candidates.argmax(dim=1, keepdim=True)
        found.append((candidates.gather(1, at), at))
        candidates.scatter_(1, at, -torch.inf)
    return torch.cat([value for value, _ in found], dim=1), torch.cat([at for _, at in found], dim=1)
