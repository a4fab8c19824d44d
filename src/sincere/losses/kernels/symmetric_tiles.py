"""A batch against itself, on the processor: each pair of tiles is computed once and serves both its sides.

Three steps, with the rows sorted by class:
1. Denominators: for each tile of the upper triangle E = e^s, whose row and column sums go to both sides (1/2 GEMM).
2. Partners: class by class, all pairs of one class; they need only their anchor's denominator.
3. Gradient of the denominators: each tile again, times (a_i + a_j), to both sides (1/2 + 1 GEMM).
Two GEMMs' worth in all, against three in row blocks, and a tile never leaves the cache between operations.

No maximum is subtracted in e^s, so the similarities must be small enough: see `similarity_limit`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import embedding, logsigmoid

from sincere.losses.contrast import Contrast
from sincere.losses.kernels.blocks import tile_side
from sincere.losses.kernels.walk import Walk
from sincere.shapes import PerAnchor, Rows


def similarity_limit(dtype: torch.dtype) -> float:
    """Return the largest |s| for which e^s, its sums over a batch and its inverses stay in range: 39 in float32."""
    return 0.45 * math.log(torch.finfo(dtype).max)


def walk_symmetric_tiles(
    z: Rows,
    inverse_temperature: float,
    contrast: Contrast,
    weights: PerAnchor | None,
    *,
    side: int | None = None,
) -> Walk:
    """Walk over all pairs of a batch; with `weights`, also the gradient of weights . losses."""
    formula = contrast.formula
    side = side or tile_side(len(z), z.element_size())
    ids, order = contrast.ids.sort(stable=True)
    z = z.index_select(0, order)
    counts = contrast.partner_counts[order]
    tiles = _Tiles(z, inverse_temperature, None if formula.partners_in_denominator else ids, side)

    totals = tiles.denominators()
    log_totals = totals.log()
    scale = None if weights is None else torch.where(counts > 0, weights[order] / counts, 0.0)
    d_z = None if weights is None else torch.zeros_like(z)
    if formula.partners_in_denominator:
        attraction = _attract_to_class_sums(z, ids, inverse_temperature, scale, d_z)
        losses, pulls = counts * log_totals - attraction, counts
    else:
        losses, pulls = _attract_pairs(z, ids, inverse_temperature, log_totals, formula.epsilon, scale, d_z, side)
    losses = torch.where(counts > 0, losses / counts, 0.0)
    if d_z is None or scale is None:
        return Walk(torch.empty_like(losses).index_copy_(0, order, losses))

    tiles.repel(torch.where(totals == 0, 0.0, scale * pulls / totals), d_z)
    similarity = torch.linalg.vecdot(d_z, z).sum() * (0.5 * inverse_temperature)  # d_z counts each pair twice
    return Walk(
        torch.empty_like(losses).index_copy_(0, order, losses),
        # z is not needed any more: its memory holds the result.
        z.index_copy_(0, order, d_z),
        similarity=similarity,
    )


class _Tiles:
    """e^s in tiles of the upper triangle, zero on the diagonal and, given sorted class ids, within each class."""

    def __init__(self, z: Rows, inverse_temperature: float, ids: Tensor | None, side: int) -> None:
        self.z, self.inverse_temperature = z, inverse_temperature
        self.blocks = [slice(start, min(start + side, len(z))) for start in range(0, len(z), side)]
        self.buffers = z.new_empty(2, side * side)
        self.ids = None if ids is None else ids.to(z.dtype)  # compared as floats: four times faster
        if ids is not None:
            self.first = ids[[block.start for block in self.blocks]].tolist()
            self.last = ids[[block.stop - 1 for block in self.blocks]].tolist()

    def denominators(self) -> PerAnchor:
        """Return the row sums of e^s."""
        totals = self.z.new_zeros(len(self.z))
        for rows, columns, e in self._walk():
            totals[rows] += e.sum(dim=1)
            if rows != columns:
                totals[columns] += e.sum(dim=0)
        return totals

    def repel(self, strengths: PerAnchor, d_z: Rows) -> None:
        """Add sum_j (strength_i + strength_j) e^s_ij z_j to each row of d_z."""
        for rows, columns, e in self._walk():
            factors = self._buffer(1, rows, columns)
            e.mul_(torch.add(strengths[rows, None], strengths[columns], out=factors))
            d_z[rows].addmm_(e, self.z[columns])
            if rows != columns:
                d_z[columns].addmm_(e.T, self.z[rows])

    def _walk(self) -> Iterator[tuple[slice, slice, Tensor]]:
        for i, rows in enumerate(self.blocks):
            scaled = self.z[rows] * self.inverse_temperature
            for j, columns in enumerate(self.blocks[i:], start=i):
                if self.ids is not None and self.first[i] == self.last[j]:
                    continue  # one class only
                e = self._buffer(0, rows, columns)
                torch.mm(scaled, self.z[columns].T, out=e).exp_()
                if self.ids is not None and self.last[i] >= self.first[j]:
                    e.mul_(torch.ne(self.ids[rows, None], self.ids[columns], out=self._buffer(1, rows, columns)))
                elif i == j:
                    e.diagonal().zero_()
                yield rows, columns, e

    def _buffer(self, which: int, rows: slice, columns: slice) -> Tensor:
        height, width = rows.stop - rows.start, columns.stop - columns.start
        return self.buffers[which, : height * width].view(height, width)


def _attract_to_class_sums(
    z: Rows, ids: Tensor, inverse_temperature: float, scale: PerAnchor | None, d_z: Rows | None
) -> PerAnchor:
    """SupCon's partners, which attract with equal strength: sum_p s_ip per anchor, and its gradient into d_z."""
    sums = torch.zeros_like(z).index_add_(0, ids, z)
    partners = sums[ids].sub_(z)
    attraction: Tensor = torch.linalg.vecdot(z, partners) * inverse_temperature
    if scale is not None and d_z is not None:
        weighted = z * scale[:, None]
        sums.zero_().index_add_(0, ids, weighted)
        d_z.sub_(partners.mul_(scale[:, None])).sub_(sums[ids].sub_(weighted))
    return attraction


def _attract_pairs(
    z: Rows,
    ids: Tensor,
    inverse_temperature: float,
    log_totals: PerAnchor,
    epsilon: float,
    scale: PerAnchor | None,
    d_z: Rows | None,
    side: int,
) -> tuple[PerAnchor, PerAnchor]:
    """SINCERE's partners: sums over p of pair loss and of its sigmoid, per anchor, and the gradient into d_z."""
    losses, pulls = torch.zeros_like(log_totals), torch.zeros_like(log_totals)
    for anchors, members, valid in _class_blocks(ids, side * side):
        square = anchors.shape == members.shape
        z_members = embedding(members, z)
        z_anchors = z_members if square else embedding(anchors, z)
        s = torch.bmm(z_anchors * inverse_temperature, z_members.mT)
        excess = s.sub_((log_totals[anchors] + epsilon)[..., None])
        excess.masked_fill_(~valid, torch.inf)
        losses.index_add_(0, anchors.flatten(), (-logsigmoid(excess) - epsilon * valid).sum(dim=2).flatten())
        if scale is None or d_z is None:
            continue
        pull = torch.sigmoid(excess.neg_())
        pulls.index_add_(0, anchors.flatten(), pull.sum(dim=2).flatten())
        pull.mul_(-scale[anchors][..., None])
        if square:
            pull = pull + pull.mT
        else:
            d_z.index_add_(0, members.flatten(), torch.bmm(pull.mT, z_anchors).flatten(0, 1))
        d_z.index_add_(0, anchors.flatten(), torch.bmm(pull, z_members).flatten(0, 1))
    return losses, pulls


def _class_blocks(ids: Tensor, area: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield (anchors (c, a), members (c, m), valid (c, a, m)) that cover each ordered pair of one class once.

    Classes of similar size share a batch, padded to the largest of them; a batch holds at most `area` pairs. A class
    with more pairs than that comes alone, some of its anchors at a time. `valid` is false for padding and for an
    anchor with itself. `ids` are sorted.
    """
    members_of = torch.bincount(ids)
    sizes, by_size = members_of.sort(descending=True)
    starts = members_of.cumsum(0)[by_size] - sizes
    n_classes = int((sizes > 1).sum())
    first = 0
    while first < n_classes:
        largest = int(sizes[first])
        together = n_classes - first
        if together * largest * largest > area:
            together = int((sizes[first:n_classes] > largest // 2).sum())
        together = min(together, max(1, area // (largest * largest)))
        batch = slice(first, first + together)
        offsets = torch.arange(largest)
        present = offsets < sizes[batch, None]
        members = torch.where(present, starts[batch, None] + offsets, starts[batch, None])
        step = max(1, area // largest) if together == 1 else largest
        for low in range(0, largest, step):
            anchors = members[:, low : low + step]
            valid = present[:, low : low + step, None] & present[:, None]
            yield anchors, members, valid & (offsets[low : low + step, None] != offsets)
        first += together
