"""The loss of a global batch without ever holding all of it: blocks of rows travel around a ring.

Three trips: the denominators of the own anchors; their pulls towards positives and their losses; the gradient. In the
last one the denominators and pulls of all anchors are known (two values each), so each block tells both what it does
to the own rows as keys and what the own rows, as keys, do to it: s_ij = s_ji, and no gradient travels. SupCon's pulls
are all 1, so it needs two trips.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sincere.losses.distributed.collectives import REFUSAL, around_the_ring, gather
from sincere.losses.distributed.global_batch import GlobalBatch
from sincere.losses.kernels.normalize import unit_rows, unit_rows_backward
from sincere.losses.kernels.pair_terms import excess, mean_losses, sum_softplus, to_pulls
from sincere.losses.kernels.result import refuse_second_derivative

BLOCK_ENTRIES = 2**19  # similarities of a block, of which about ten copies exist at a time


class RingLosses(torch.autograd.Function):
    """This process's share of weights . losses, or without weights the losses of its anchors.

    The gradient for the rows is that of the sum over all processes; for the temperature it is that of the own share.
    With weights it is computed together with the value; without, backward makes one more trip, because it must know
    the upstream gradients of all processes first.
    """

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        temperature: Tensor,
        batch: GlobalBatch,
        normalize: bool,
        weights: Tensor | None,
        wants_gradient: bool,
    ) -> Tensor:
        """Return the share or the losses; `weights` are those of every row of every process."""
        ctx.batch, ctx.normalize, ctx.has_weights = batch, normalize, weights is not None
        z, lengths = unit_rows(rows) if normalize else (rows, None)
        trips = _Trips(z, temperature.reciprocal(), batch)
        losses, anchor_terms = trips.losses()
        if weights is None:
            ctx.save_for_backward(rows, temperature, anchor_terms)
            return losses
        if wants_gradient:
            gradients = _gradients(trips, anchor_terms, weights, lengths, temperature)
            ctx.save_for_backward(rows, temperature, *gradients)
        return torch.dot(losses, weights[batch.own])

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Scale what was computed with the value, or compute it now."""
        rows, temperature, *kept = ctx.saved_tensors
        with torch.no_grad(), torch.autocast(rows.device.type, enabled=False):
            if ctx.has_weights:
                gradients = tuple(gradient * upstream for gradient in kept)
            else:
                z, lengths = unit_rows(rows) if ctx.normalize else (rows, None)
                trips = _Trips(z, temperature.reciprocal(), ctx.batch)
                weights = gather(upstream, ctx.batch.sizes, ctx.batch.group)
                gradients = _gradients(trips, kept[0], weights, lengths, temperature)
        results = [
            refuse_second_derivative(gradient, REFUSAL, rows, temperature) if needed else None
            for gradient, needed in zip(gradients, ctx.needs_input_grad[:2], strict=True)
        ]
        return (*results, None, None, None, None)


def _gradients(
    trips: _Trips, anchor_terms: Tensor, weights: Tensor, lengths: Tensor | None, temperature: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of weights . losses for the rows that the caller gave and for the temperature."""
    d_rows, similarity_gradient = trips.gradient(anchor_terms, weights)
    d_rows.div_(temperature)
    d_rows = d_rows if lengths is None else unit_rows_backward(d_rows, trips.z, lengths)
    return d_rows, -similarity_gradient / temperature


@dataclass(frozen=True, eq=False)
class _Block:
    """Some of the own rows against the rows of one process.

    Attributes:
        rows: Positions of the own rows among those of this process.
        here: The same among those of all processes.
        there: Positions of the other rows among those of all processes.
        keys: The other rows.
        s: Similarities.
        same: Whether both are of one class.
        itself: Whether both are one row.
    """

    rows: slice
    here: slice
    there: slice
    keys: Tensor
    s: Tensor
    same: Tensor
    itself: Tensor

    @property
    def positives(self) -> Tensor:
        """Whether one is a positive of the other."""
        return self.same & ~self.itself


class _Trips:
    """The trips around the ring; at most one block of similarities exists at a time."""

    def __init__(self, z: Tensor, inverse_temperature: Tensor, batch: GlobalBatch) -> None:
        self.z, self.inverse_temperature, self.batch = z, inverse_temperature, batch
        self.formula = batch.contrast.formula
        self.counts = batch.contrast.positive_counts[batch.own]

    def losses(self) -> tuple[Tensor, Tensor]:
        """Return the losses of the own anchors, and (n, 2) their log denominators and mean pulls."""
        log_denominators, sums = self._denominators()
        if self.formula.positives_in_denominator:
            pulls = torch.ones_like(self.counts)
        else:
            pulls, sums = self._pulls(log_denominators)
        losses = mean_losses(sums, self.counts, log_denominators, self.formula)
        return losses, torch.stack([log_denominators, pulls], dim=1)

    def gradient(self, anchor_terms: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient at z of all processes' weights . losses, times the temperature, and sum c_ij s_ij."""
        batch, counts = self.batch, self.batch.contrast.positive_counts
        log_denominators, pulls = gather(anchor_terms, batch.sizes, batch.group).unbind(dim=1)
        scales = torch.where(counts > 0, weights, 0.0)
        per_positive = scales / counts.clamp_min(1)
        d_z = torch.zeros_like(self.z)
        similarity_gradient = self.z.new_zeros(())
        for block in self._blocks():
            # The own rows as anchors, and as keys.
            sides = ((block.here, (slice(None), None)), (block.there, (None, slice(None))))
            both = torch.zeros_like(block.s)
            for anchors, index in sides:
                denominator = log_denominators[anchors][index]
                push = (scales[anchors] * pulls[anchors])[index]
                coefficients = self._coefficients(block, denominator, push, per_positive[anchors][index])
                if anchors is block.here:
                    similarity_gradient += (coefficients * block.s).sum()
                both += coefficients
            d_z[block.rows] += both @ block.keys
        return d_z, similarity_gradient

    def _blocks(self) -> Iterator[_Block]:
        batch = self.batch
        ids, start = batch.contrast.ids, batch.own.start
        for rank, keys in around_the_ring(self.z, batch.sizes, batch.group):
            there = batch.rows_of(rank)
            step = max(1, BLOCK_ENTRIES // max(1, len(keys)))
            for first in range(0, len(self.z), step):
                rows = slice(first, min(first + step, len(self.z)))
                here = slice(start + rows.start, start + rows.stop)
                s = (self.z[rows] * self.inverse_temperature) @ keys.T
                own, others = (torch.arange(part.start, part.stop, device=s.device) for part in (here, there))
                same, itself = ids[here, None] == ids[there], own[:, None] == others
                yield _Block(rows, here, there, keys, s, same, itself)

    def _denominators(self) -> tuple[Tensor, Tensor]:
        """Return the logarithm of each own anchor's denominator, and the sum of its similarities to positives."""
        log_totals = torch.full_like(self.counts, -torch.inf)
        positive_sums = torch.zeros_like(self.counts)
        for block in self._blocks():
            positive_sums[block.rows] += block.s.masked_fill(~block.positives, 0.0).sum(dim=1)
            left_out = block.itself if self.formula.positives_in_denominator else block.same
            part = block.s.masked_fill(left_out, -torch.inf).logsumexp(dim=1)
            log_totals[block.rows] = torch.logaddexp(log_totals[block.rows], part)
        return log_totals, positive_sums

    def _pulls(self, log_denominators: Tensor) -> tuple[Tensor, Tensor]:
        """Return each own anchor's mean pull towards its positives, and the sum of softplus(-excess) over them."""
        pulls, sums = torch.zeros_like(self.counts), torch.zeros_like(self.counts)
        for block in self._blocks():
            x = excess(block.s, log_denominators[block.rows, None], self.formula)
            x.masked_fill_(~block.positives, torch.inf)  # no loss and no pull
            sums[block.rows] += sum_softplus(x)
            pulls[block.rows] += to_pulls(x).sum(dim=1)
        return pulls / self.counts.clamp_min(1), sums

    def _coefficients(self, block: _Block, denominator: Tensor, push: Tensor, per_positive: Tensor) -> Tensor:
        """Return d(weights . losses)/ds of a block whose anchors have these denominators, pushes and weights."""
        pushed = ~block.itself if self.formula.positives_in_denominator else ~block.same
        pushes = torch.where(pushed, block.s - denominator, -torch.inf).exp().mul_(push)
        if self.formula.positives_in_denominator:
            return pushes.sub_(torch.where(block.positives, per_positive, 0.0))
        x = torch.where(block.positives, excess(block.s, denominator, self.formula), torch.inf)
        return pushes.sub_(to_pulls(x).mul_(per_positive))
