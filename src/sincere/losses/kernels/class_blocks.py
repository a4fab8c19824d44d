"""The pairs within each class, in blocks of bounded size."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class ClassBlock:
    """Two blocks of rows for each of c classes: every entry of the (c, a, b) matrix between them is a pair, but some.

    Attributes:
        anchors: Rows (c, a).
        members: Rows (c, b), the same as `anchors` on the diagonal.
        present: False for padding, (c, b); None where there is none. Only on the diagonal.
    """

    anchors: Tensor
    members: Tensor
    present: Tensor | None = None

    @property
    def on_diagonal(self) -> bool:
        """Both blocks are one, so that the matrix holds each pair in both orders, and each row with itself."""
        return self.anchors is self.members

    def leave_out(self, matrix: Tensor, value: float) -> Tensor:
        """Overwrite the entries (c, a, b) that are no pair: a row with itself, and padding."""
        if self.on_diagonal:
            matrix.diagonal(dim1=1, dim2=2).fill_(value)
        if self.present is not None:
            matrix.masked_fill_(~self.present[:, None], value).masked_fill_(~self.present[:, :, None], value)
        return matrix


def class_blocks(ids: Tensor, side: int) -> Iterator[ClassBlock]:
    """Yield blocks with every pair within a class once, or on the diagonal in both orders.

    Small classes of similar size share a block, padded to the largest of them, of at most side^2 entries. A class
    larger than `side` is cut into tiles of its upper triangle. `ids` are sorted.
    """
    members_of = torch.bincount(ids)
    sizes, by_size = members_of.sort(descending=True)
    starts = members_of.cumsum(0)[by_size] - sizes
    n_large, n_classes = int((sizes > side).sum()), int((sizes > 1).sum())
    for start, size in zip(starts[:n_large].tolist(), sizes[:n_large].tolist(), strict=True):
        pieces = torch.arange(start, start + size, device=ids.device).view(1, -1).chunk(math.ceil(size / side), dim=1)
        for i, rows in enumerate(pieces):
            yield from (ClassBlock(rows, columns) for columns in pieces[i:])
    first = n_large
    while first < n_classes:
        largest = int(sizes[first])
        together = n_classes - first
        if together * largest * largest > side * side:
            together = int((sizes[first:n_classes] > largest // 2).sum())
        batch = slice(first, first + min(together, side * side // (largest * largest)))
        offsets = torch.arange(largest, device=ids.device)
        present = offsets < sizes[batch, None]
        members = torch.where(present, starts[batch, None] + offsets, starts[batch, None])
        yield ClassBlock(members, members, None if present.all() else present)
        first = batch.stop
