"""A batch against itself, on the CPU: each pair of tiles is computed once and serves both its sides.

Three steps, with the rows sorted by class:
1. Denominators: for each tile of the upper triangle E = e^s, whose row and column sums go to both sides (1/2 GEMM).
2. Positives: class by class, all pairs of one class; they need only their anchor's denominator. SupCon's act through
   their sum alone.
3. Gradient of the denominators: each tile again, times (a_i + a_j), to both sides (1/2 + 1 GEMM). SupCon's positives
   are subtracted here, pair by pair: in a tight class the two nearly cancel, and sums of them would not.
Two GEMMs' worth in all, against three in row blocks, and a tile never leaves the cache between operations.

No maximum is subtracted in e^s, so the similarities must be small enough: see `similarity_limit`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import embedding

from sincere.losses.kernels.block_sizes import tile_side
from sincere.losses.kernels.class_blocks import class_blocks
from sincere.losses.kernels.pair_terms import excess_threshold, mean_losses, sum_softplus, to_pulls
from sincere.losses.kernels.result import LossAndGradient
from sincere.losses.pairs import Contrast
from sincere.shapes import PerAnchor, Rows


def similarity_limit(dtype: torch.dtype) -> float:
    """Return the largest |s| for which e^s, its sums over a batch and its inverses stay in range: 39.9 in float32."""
    return 0.45 * math.log(torch.finfo(dtype).max)


def symmetric_tile_losses(
    z: Rows,
    inverse_temperature: float,
    contrast: Contrast,
    weights: PerAnchor | None,
    *,
    side: int | None = None,
) -> LossAndGradient:
    """Return the losses of a batch against itself and, with `weights`, the gradient of weights . losses."""
    formula = contrast.formula
    side = side or tile_side(len(z), z.element_size())
    ids, order = contrast.ids.sort(stable=True)
    z = z.index_select(0, order)
    counts = contrast.positive_counts[order]
    tiles = _Tiles(z, inverse_temperature, ids, side, with_positives=formula.positives_in_denominator)

    totals = tiles.denominators()
    log_totals = totals.log()
    scale = None if weights is None else torch.where(counts > 0, weights[order] / counts, 0.0)
    d_z = None if weights is None else torch.zeros_like(z)
    if formula.positives_in_denominator:
        sums, pulls = _positive_sums(z, ids, side) * inverse_temperature, counts
    else:
        thresholds = excess_threshold(log_totals, formula)
        sums, pulls = _attract_pairs(z, ids, inverse_temperature, thresholds, scale, d_z, side)
    losses = mean_losses(sums, counts, log_totals, formula)
    back = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order), device=order.device))
    if d_z is None or scale is None:
        return LossAndGradient(losses[back], log_totals[back])

    tiles.repel(torch.where(totals == 0, 0.0, scale * pulls / totals), scale, d_z)
    similarity_gradient = torch.dot(d_z.flatten(), z.flatten()) * (
        0.5 * inverse_temperature
    )  # d_z counts each pair twice
    # z is not needed any more: its memory holds the result.
    gradient = torch.index_select(d_z, 0, back, out=z)
    return LossAndGradient(losses[back], log_totals[back], gradient, similarity_gradient=similarity_gradient)


class _Tiles:
    """e^s in tiles of the upper triangle; zero on the diagonal and, unless `with_positives`, within each class.

    `ids` are sorted.
    """

    def __init__(self, z: Rows, inverse_temperature: float, ids: Tensor, side: int, *, with_positives: bool) -> None:
        self.z, self.with_positives = z, with_positives
        self.log2_scale = inverse_temperature * math.log2(math.e)  # e^s as a power of 2: exp2 takes half the time
        self.blocks = [slice(start, min(start + side, len(z))) for start in range(0, len(z), side)]
        self.buffers = z.new_empty(3 if with_positives else 2, side * side)
        self.ids = ids.to(z.dtype)  # compared as floats: four times faster
        self.first = ids[[block.start for block in self.blocks]].tolist()
        self.last = ids[[block.stop - 1 for block in self.blocks]].tolist()

    def denominators(self) -> PerAnchor:
        """Return the row sums of e^s."""
        totals = self.z.new_zeros(len(self.z))
        for i, j, e in self._exponentials():
            rows, columns = self.blocks[i], self.blocks[j]
            totals[rows] += e.sum(dim=1)
            if i != j:
                totals[columns] += e.sum(dim=0)
        return totals

    def repel(self, strengths: PerAnchor, scale: PerAnchor, d_z: Rows) -> None:
        """Add sum_j (strength_i + strength_j) e^s_ij z_j to each row of d_z.

        With positives in the denominator also subtract their attraction, sum_p (scale_i + scale_p) z_p.
        """
        for i, j, e in self._exponentials():
            rows, columns = self.blocks[i], self.blocks[j]
            factors = self._buffer(1, i, j)
            e.mul_(torch.add(strengths[rows, None], strengths[columns], out=factors))
            if self.with_positives and self.last[i] >= self.first[j]:
                same = torch.eq(self.ids[rows, None], self.ids[columns], out=self._buffer(2, i, j))
                e.addcmul_(same, torch.add(scale[rows, None], scale[columns], out=factors), value=-1.0)
                if i == j:
                    e.diagonal().zero_()
            d_z[rows].addmm_(e, self.z[columns])
            if i != j:
                d_z[columns].addmm_(e.T, self.z[rows])

    def _exponentials(self) -> Iterator[tuple[int, int, Tensor]]:
        """Yield (i, j, e^s between block i and block j) for the upper triangle; the next overwrites the last."""
        for i, rows in enumerate(self.blocks):
            scaled = self.z[rows] * self.log2_scale
            for j, columns in enumerate(self.blocks[i:], start=i):
                if not self.with_positives and self.first[i] == self.last[j]:
                    continue  # one class only
                e = self._buffer(0, i, j)
                torch.mm(scaled, self.z[columns].T, out=e).exp2_()
                if not self.with_positives and self.last[i] >= self.first[j]:
                    e.mul_(torch.ne(self.ids[rows, None], self.ids[columns], out=self._buffer(1, i, j)))
                elif i == j:
                    e.diagonal().zero_()
                yield i, j, e

    def _buffer(self, which: int, i: int, j: int) -> Tensor:
        height, width = (self.blocks[k].stop - self.blocks[k].start for k in (i, j))
        return self.buffers[which, : height * width].view(height, width)


def _positive_sums(z: Rows, ids: Tensor, block: int) -> PerAnchor:
    """Return sum_p z_i . z_p over the positives of each row, linear in n; some rows at a time, to need no copy of z."""
    sums = z.new_zeros(int(ids[-1]) + 1, z.shape[1]).index_add_(0, ids, z)
    result = z.new_empty(len(z))
    for rows in torch.arange(len(z), device=z.device).split(block):
        result[rows] = torch.linalg.vecdot(z[rows], sums[ids[rows]].sub_(z[rows]))
    return result


def _attract_pairs(
    z: Rows,
    ids: Tensor,
    inverse_temperature: float,
    thresholds: PerAnchor,
    scale: PerAnchor | None,
    d_z: Rows | None,
    side: int,
) -> tuple[PerAnchor, PerAnchor]:
    """Return the sums over the positives p of softplus and sigmoid of (threshold_i - s_ip); add the gradient to d_z."""
    softplus_sums, pulls = torch.zeros_like(thresholds), torch.zeros_like(thresholds)
    for block in class_blocks(ids, side):
        anchors, members = block.anchors, block.members
        z_anchors, z_members = embedding(anchors, z), embedding(members, z)
        s = torch.bmm(z_anchors * inverse_temperature, z_members.mT)
        # A block on the diagonal holds both orders of each pair already; any other is read in both directions.
        sides = [(s, anchors)] if block.on_diagonal else [(s, anchors), (s.mT, members)]
        forces = []
        for similarities, rows in sides:
            excess = block.leave_out(similarities - thresholds[rows][..., None], torch.inf)
            softplus_sums.index_add_(0, rows.flatten(), sum_softplus(excess).flatten())
            if scale is None:
                continue
            pull = to_pulls(excess)
            pulls.index_add_(0, rows.flatten(), pull.sum(dim=2).flatten())
            forces.append(pull.mul_(-scale[rows][..., None]))
        if d_z is None:
            continue
        force = forces[0] + forces[-1].mT
        d_z.index_add_(0, anchors.flatten(), torch.bmm(force, z_members).flatten(0, 1))
        if not block.on_diagonal:
            d_z.index_add_(0, members.flatten(), torch.bmm(force.mT, z_anchors).flatten(0, 1))
    return softplus_sums, pulls
