"""The loss of a batch that is spread over processes, without ever holding all of it: blocks travel around a ring.

Three trips: the denominators of the own anchors; their pulls towards partners and their losses; the gradient. In the
last one the denominators and pulls of all anchors are known (a number each), so each block tells both what it does to
the own rows as keys and what the own rows, as keys, do to it: s_ij = s_ji, and no gradient travels. SupCon's pulls are
all 1, so it needs two trips.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import logsigmoid

from sincere.catalog import Formula
from sincere.losses.distributed.collectives import Group, around_the_ring, gather
from sincere.losses.kernels.normalize import unit_rows, unit_rows_backward

BLOCK_NUMBERS = 2**19  # similarities of a block, of which about ten copies exist at a time


@dataclass(frozen=True, eq=False)
class Spread:
    """Who is compared with whom, over all processes.

    Attributes:
        formula: The loss.
        ids: Class of every row of every process, in order of rank.
        partner_counts: |P_i| of every row, in the loss's float type.
        sizes: How many rows each process holds.
        group: The processes.
    """

    formula: Formula
    ids: Tensor
    partner_counts: Tensor
    sizes: list[int]
    group: Group

    def rows_of(self, rank: int) -> slice:
        """Return where a process's rows stand among all."""
        start = sum(self.sizes[:rank])
        return slice(start, start + self.sizes[rank])

    @property
    def own(self) -> slice:
        """Where this process's rows stand."""
        return self.rows_of(dist.get_rank(self.group))


class RingShare(torch.autograd.Function):
    """This process's share of weights . losses, with the whole gradient of its rows computed at once.

    Its gradient for the rows is that of the sum over all processes; for the temperature it is that of the own share.
    """

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, temperature: Tensor, spread: Spread, normalize: bool, weights: Tensor, gradient: bool
    ) -> Tensor:
        """Return the share; `weights` are those of every row of every process."""
        z, lengths = unit_rows(rows) if normalize else (rows, None)
        trips = _Trips(z, temperature.reciprocal(), spread)
        own = spread.own
        share = torch.dot(trips.losses, weights[own])
        if gradient:
            d_rows, similarity = trips.gradient(weights)
            d_rows.div_(temperature)
            d_rows = d_rows if lengths is None else unit_rows_backward(d_rows, z, lengths)
            ctx.save_for_backward(d_rows, -similarity / temperature)
        return share

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Scale what was computed with the value."""
        d_rows, d_temperature = ctx.saved_tensors
        needs_rows, needs_temperature = ctx.needs_input_grad[:2]
        rows = d_rows * upstream if needs_rows else None
        return rows, d_temperature * upstream if needs_temperature else None, None, None, None, None


class _Trips:
    """The trips around the ring; at most one block of similarities exists at a time."""

    def __init__(self, z: Tensor, inverse_temperature: Tensor, spread: Spread) -> None:
        self.z, self.inverse_temperature, self.spread = z, inverse_temperature, spread
        self.counts = spread.partner_counts[spread.own]
        self.log_denominators, partner_sums = self._denominators()
        if spread.formula.positives_in_denominator:
            self.pulls = torch.ones_like(self.counts)
            totals = self.counts * self.log_denominators - partner_sums
        else:
            self.pulls, totals = self._pulls()
        self.losses = torch.where(self.counts > 0, totals / self.counts.clamp_min(1), 0.0)

    def _blocks(self) -> Iterator[tuple[slice, slice, Tensor, Tensor, Tensor, Tensor]]:
        """Yield (own rows, all rows, their keys, similarities, same class, the row itself), block by block."""
        spread = self.spread
        start = spread.own.start
        for rank, keys in around_the_ring(self.z, spread.sizes, spread.group):
            there = spread.rows_of(rank)
            step = max(1, BLOCK_NUMBERS // max(1, len(keys)))
            for first in range(0, len(self.z), step):
                rows = slice(first, min(first + step, len(self.z)))
                s = (self.z[rows] * self.inverse_temperature) @ keys.T
                here = torch.arange(start + rows.start, start + rows.stop, device=s.device)
                same = spread.ids[here, None] == spread.ids[there]
                itself = here[:, None] == torch.arange(there.start, there.stop, device=s.device)
                yield rows, there, keys, s, same, itself

    def _denominators(self) -> tuple[Tensor, Tensor]:
        """Return the logarithm of each own anchor's denominator, and the sum of its similarities to partners."""
        log_totals = torch.full_like(self.counts, -torch.inf)
        partner_sums = torch.zeros_like(self.counts)
        everyone = self.spread.formula.positives_in_denominator
        for rows, _, _, s, same, itself in self._blocks():
            partner_sums[rows] += s.masked_fill(~same | itself, 0.0).sum(dim=1)
            part = s.masked_fill(itself if everyone else same, -torch.inf).logsumexp(dim=1)
            log_totals[rows] = torch.logaddexp(log_totals[rows], part)
        return log_totals, partner_sums

    def _pulls(self) -> tuple[Tensor, Tensor]:
        """Return each own anchor's mean pull towards its partners, and the sum of its losses over them."""
        pulls, totals = torch.zeros_like(self.counts), torch.zeros_like(self.counts)
        epsilon = self.spread.formula.epsilon
        for rows, _, _, s, same, itself in self._blocks():
            excess = s - self.log_denominators[rows, None] - epsilon
            excess.masked_fill_(~same | itself, torch.inf)  # no loss and no pull
            pulls[rows] += torch.sigmoid(-excess).sum(dim=1)
            totals[rows] -= logsigmoid(excess).sum(dim=1)
        return pulls / self.counts.clamp_min(1), totals - self.counts * epsilon

    def gradient(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient at z of all processes' weights . losses, times the temperature, and sum c_ij s_ij."""
        spread = self.spread
        known = torch.stack([self.log_denominators, self.pulls], dim=1)
        log_denominators, pulls = gather(known, spread.sizes, spread.group).unbind(dim=1)
        scales = torch.where(spread.partner_counts > 0, weights, 0.0)
        per_partner = scales / spread.partner_counts.clamp_min(1)
        d_z = torch.zeros_like(self.z)
        similarity = self.z.new_zeros(())
        start = spread.own.start
        for rows, there, keys, s, same, itself in self._blocks():
            here = slice(start + rows.start, start + rows.stop)
            sides = ((here, (slice(None), None)), (there, (None, slice(None))))  # the own rows as anchors, as keys
            both = torch.zeros_like(s)
            for anchors, place in sides:
                denominator = log_denominators[anchors][place]
                noise_pull = (scales[anchors] * pulls[anchors])[place]
                coefficients = self._coefficients(s, same, itself, denominator, noise_pull, per_partner[anchors][place])
                if anchors is here:
                    similarity += (coefficients * s).sum()
                both += coefficients
            d_z[rows] += both @ keys
        return d_z, similarity

    def _coefficients(
        self, s: Tensor, same: Tensor, itself: Tensor, denominator: Tensor, noise_pull: Tensor, per_partner: Tensor
    ) -> Tensor:
        """Return d(weights . losses)/ds of a block whose anchors have these denominators, pulls and weights."""
        formula = self.spread.formula
        pushed = ~itself if formula.positives_in_denominator else ~same
        push = torch.where(pushed, s - denominator, -torch.inf).exp().mul_(noise_pull)
        partners = same & ~itself
        if formula.positives_in_denominator:
            return push.sub_(torch.where(partners, per_partner, 0.0))
        excess = torch.where(partners, s - denominator - formula.epsilon, torch.inf)
        return push.sub_(torch.sigmoid(-excess).mul_(per_partner))
