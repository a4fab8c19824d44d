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
from torch.nn.functional import logsigmoid

from sincere.losses.distributed.collectives import REFUSAL, around_the_ring, gather
from sincere.losses.distributed.global_batch import GlobalBatch
from sincere.losses.kernels.chosen_pairs import ChosenPairs, choose_pairs
from sincere.losses.kernels.normalize import unit_rows, unit_rows_backward
from sincere.losses.kernels.pair_terms import excess, mean_losses, to_pulls
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
        pairs: Who is a positive of whom and who is in the denominator, the same for both sides.
    """

    rows: slice
    here: slice
    there: slice
    keys: Tensor
    s: Tensor
    pairs: ChosenPairs


class _Trips:
    """The trips around the ring; at most one block of similarities exists at a time."""

    def __init__(self, z: Tensor, inverse_temperature: Tensor, batch: GlobalBatch) -> None:
        self.z, self.inverse_temperature, self.batch = z, inverse_temperature, batch
        self.formula = batch.contrast.formula
        self.present = batch.contrast.positive_counts > 0
        bias = batch.contrast.key_bias
        self.takes_part = None if bias is None else bias > -torch.inf
        self.bias = None if bias is None else bias.masked_fill(bias == -torch.inf, 0.0)

    def losses(self) -> tuple[Tensor, Tensor]:
        """Return the losses of the own anchors, and (n, 3): log denominators, mean pulls, weights of all positives."""
        log_denominators, sums, totals = self._denominators()
        if self.formula.positives_in_denominator:
            pulls = torch.ones_like(totals)
        else:
            pulls, sums = self._pulls(log_denominators, totals)
        losses = mean_losses(sums, totals, log_denominators, self.formula)
        losses = torch.where(self.present[self.batch.own], losses, 0.0)
        return losses, torch.stack([log_denominators, pulls, totals], dim=1)

    def gradient(self, anchor_terms: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient at z of all processes' weights . losses, times the temperature, and sum c_ij s_ij."""
        batch = self.batch
        log_denominators, pulls, totals = gather(anchor_terms, batch.sizes, batch.group).unbind(dim=1)
        scales = torch.where(self.present, weights, 0.0)
        per_positive = torch.where(totals > 0, scales / totals, 0.0)
        d_z = torch.zeros_like(self.z)
        similarity_gradient = self.z.new_zeros(())
        for block in self._blocks():
            # The own rows as anchors, and as keys.
            sides = (
                (block.here, (slice(None), None), self._with_bias(block.s, block.there, (None, slice(None)))),
                (block.there, (None, slice(None)), self._with_bias(block.s, block.here, (slice(None), None))),
            )
            both = torch.zeros_like(block.s)
            for anchors, index, s in sides:
                denominator = log_denominators[anchors][index]
                push = (scales[anchors] * pulls[anchors])[index]
                coefficients = self._coefficients(block.pairs, s, denominator, push, per_positive[anchors][index])
                if anchors is block.here:
                    similarity_gradient += (coefficients * block.s).sum()
                both += coefficients
            d_z[block.rows] += both @ block.keys
        return d_z, similarity_gradient

    def _blocks(self) -> Iterator[_Block]:
        batch, start = self.batch, self.batch.own.start
        for rank, keys in around_the_ring(self.z, batch.sizes, batch.group):
            there = batch.rows_of(rank)
            step = max(1, BLOCK_ENTRIES // max(1, len(keys)))
            for first in range(0, len(self.z), step):
                rows = slice(first, min(first + step, len(self.z)))
                here = slice(start + rows.start, start + rows.stop)
                s = (self.z[rows] * self.inverse_temperature) @ keys.T
                pairs = choose_pairs(s, batch.contrast.of_anchors(here).of_keys(there))
                if self.takes_part is not None:  # anchors that take no part are no keys, either
                    part = self.takes_part[here, None]
                    pairs = ChosenPairs(pairs.weights * part, pairs.in_denominator & part, pairs.log_shares)
                yield _Block(rows, here, there, keys, s, pairs)

    def _with_bias(self, s: Tensor, keys: slice, index: Any) -> Tensor:
        """Return similarities with the logarithms of the weights of these keys."""
        return s if self.bias is None else s + self.bias[keys][index]

    def _denominators(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the own anchors' log denominators, weighted similarities to positives, and weights of positives."""
        log_totals = self.z.new_full((len(self.z),), -torch.inf)
        positive_sums, totals = torch.zeros_like(log_totals), torch.zeros_like(log_totals)
        for block in self._blocks():
            s = self._with_bias(block.s, block.there, (None, slice(None)))
            positive_sums[block.rows] += (s * block.pairs.weights).sum(dim=1)
            totals[block.rows] += block.pairs.weights.sum(dim=1)
            part = _in_denominator(s, block.pairs).logsumexp(dim=1)
            log_totals[block.rows] = torch.logaddexp(log_totals[block.rows], part)
        return log_totals, positive_sums, totals

    def _pulls(self, log_denominators: Tensor, totals: Tensor) -> tuple[Tensor, Tensor]:
        """Return each own anchor's mean pull towards its positives, and the sum of softplus(-excess) over them."""
        pulls, sums = torch.zeros_like(totals), torch.zeros_like(totals)
        for block in self._blocks():
            weights = block.pairs.weights
            s = self._with_bias(block.s, block.there, (None, slice(None)))
            x = excess(s, log_denominators[block.rows, None], self.formula)
            x = x.masked_fill(weights == 0, torch.inf)  # no loss and no pull
            sums[block.rows] -= (logsigmoid(x) * weights).sum(dim=1)
            pulls[block.rows] += (to_pulls(x) * weights).sum(dim=1)
        return torch.where(totals > 0, pulls / totals, 0.0), sums

    def _coefficients(
        self, pairs: ChosenPairs, s: Tensor, denominator: Tensor, push: Tensor, per_positive: Tensor
    ) -> Tensor:
        """Return d(weights . losses)/ds of a block whose anchors have these denominators, pushes and weights."""
        pushes = (_in_denominator(s, pairs) - denominator).masked_fill_(~pairs.in_denominator, -torch.inf)
        pushes = pushes.exp_().mul_(push)
        if self.formula.positives_in_denominator:
            return pushes.sub_(pairs.weights * per_positive)
        x = torch.where(pairs.weights > 0, excess(s, denominator, self.formula), torch.inf)
        return pushes.sub_(to_pulls(x).mul_(pairs.weights * per_positive))


def _in_denominator(s: Tensor, pairs: ChosenPairs) -> Tensor:
    """Return what is in the denominators, -infinity for the rest."""
    shared = s if pairs.log_shares is None else s + pairs.log_shares
    return shared.masked_fill(~pairs.in_denominator, -torch.inf)
