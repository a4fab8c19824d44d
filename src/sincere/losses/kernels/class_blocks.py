"""The pairs within each class, in blocks of bounded size."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor


def class_blocks(ids: Tensor, side: int) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Yield blocks of rows (anchors (c, a), members (c, b), valid (c or 1, a, b)) with every pair within a class once.

    Small classes of similar size share a batch, padded to the largest of them, of at most side^2 pairs; there both
    blocks are one object, and `valid` is false for padding and for a row with itself. A class larger than `side` is cut
    into tiles of its upper triangle; off the diagonal `valid` is None: all are pairs. `ids` are sorted.
    """
    members_of = torch.bincount(ids)
    sizes, by_size = members_of.sort(descending=True)
    starts = members_of.cumsum(0)[by_size] - sizes
    n_large, n_classes = int((sizes > side).sum()), int((sizes > 1).sum())
    for start, size in zip(starts[:n_large].tolist(), sizes[:n_large].tolist(), strict=True):
        pieces = torch.arange(start, start + size).view(1, -1).chunk(math.ceil(size / side), dim=1)
        for i, rows in enumerate(pieces):
            yield rows, rows, ~torch.eye(rows.shape[1], dtype=torch.bool)[None]
            yield from ((rows, columns, None) for columns in pieces[i + 1 :])
    first = n_large
    while first < n_classes:
        largest = int(sizes[first])
        together = n_classes - first
        if together * largest * largest > side * side:
            together = int((sizes[first:n_classes] > largest // 2).sum())
        batch = slice(first, first + min(together, side * side // (largest * largest)))
        offsets = torch.arange(largest)
        present = offsets < sizes[batch, None]
        members = torch.where(present, starts[batch, None] + offsets, starts[batch, None])
        valid = (offsets[:, None] != offsets)[None]
        if not present.all():
            valid = valid & present[:, :, None] & present[:, None]
        yield members, members, valid
        first = batch.stop
