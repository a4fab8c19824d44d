"""Multi-hot label sets on the CPU: a block of anchors against all keys in few passes over its similarities.

The same as `row_terms` for the plain formulas, where similarities are small enough for e^s without subtracting a
maximum (`symmetric_tiles.similarity_limit`). With T_i = sum over the negatives of e^s_in and r_ip = e^eps T_i / e^s_ip,
the loss of a pair is log(1 + r_ip) - eps and its pull r_ip / (1 + r_ip): one exponential for each similarity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sincere.losses.pairs import Contrast


@dataclass(frozen=True, eq=False)
class SetRows:
    """Losses of a block of anchors, and their derivatives up to a factor of each row.

    Attributes:
        losses: Loss of each anchor, 0 for one that is left out.
        log_denominators: log T_i; over all other items where positives are part of the denominator.
        coefficients: d loss_i / d s_ij divided by the factor (rows, m).
        factors: (rows, 1).
    """

    losses: Tensor
    log_denominators: Tensor
    coefficients: Tensor
    factors: Tensor


def set_rows(s: Tensor, contrast: Contrast, buffers: Tensor) -> SetRows:
    """Return the terms of similarities `s` (rows, m), divided by the temperature, which are overwritten.

    `buffers` (3, rows or more, m) serve all blocks: to allocate them anew would take as long as the computation.
    """
    formula = contrast.formula
    sets = contrast.label_sets
    assert sets is not None
    weights, spare = sets.pair_weights(out=buffers[0, : len(s)]), buffers[2, : len(s)]
    itself = _Itself(contrast.self_index)
    itself.clear(weights)
    totals = weights.sum(dim=1, keepdim=True)
    present = (contrast.positive_counts > 0)[:, None]
    factors = torch.where(present & (totals > 0), 1 / totals, 0.0)
    if formula.positives_in_denominator:
        positive_sums = torch.mul(weights, s, out=spare).sum(dim=1, keepdim=True)
        e = s.exp_()
        itself.clear(e)
        denominators = e.sum(dim=1, keepdim=True)
        losses = denominators.log() - positive_sums * factors
        pushes = torch.where(denominators > 0, totals / denominators, 0.0)
        coefficients, factors = weights.addcmul_(e, pushes, value=-1.0), -factors
    else:
        e = s.exp_()
        coefficients = torch.eq(weights, 0.0, out=buffers[1, : len(s)]).mul_(e)
        itself.clear(coefficients)
        denominators = coefficients.sum(dim=1, keepdim=True)
        ratios = torch.div(denominators * math.exp(formula.epsilon), e, out=e)
        above = torch.add(ratios, 1, out=spare)
        pulls = ratios.div_(above).mul_(weights)
        # Not log1p, which takes three times as long: below the rounding error of 1, only the gradient is kept.
        losses = above.log_().mul_(weights).sum(dim=1, keepdim=True) * factors - formula.epsilon
        pushes = pulls.sum(dim=1, keepdim=True)
        pushes = torch.where(denominators > 0, pushes / denominators, 0.0)
        coefficients, factors = pulls.addcmul_(coefficients, pushes, value=-1.0), -factors
    return SetRows(torch.where(present, losses, 0.0)[:, 0], denominators.log()[:, 0], coefficients, factors)


class _Itself:
    """The entries of a block where an anchor meets itself."""

    def __init__(self, self_index: Tensor) -> None:
        self.rows = (self_index >= 0).nonzero()[:, 0]
        self.columns = self_index[self.rows]

    def clear(self, matrix: Tensor) -> None:
        """Set them to 0, in place."""
        matrix[self.rows, self.columns] = 0.0
