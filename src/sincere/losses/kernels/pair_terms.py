"""The loss of one pair of an anchor and a positive, and its derivative: the formulas that all kernels share.

With s_ip the similarity of anchor i and its positive p, divided by the temperature:

    positives not in the denominator (SINCERE, and eps-SupInfoNCE with eps > 0)
        excess   x_ip = s_ip - L_i - eps          L_i = log sum over the negatives n of e^s_in
        loss     softplus(-x_ip) - eps            = log(e^(s_ip - eps) + e^L_i) - s_ip
        pull     sigmoid(-x_ip)                   = -d loss / d s_ip
    positives in the denominator (SupCon)
        loss     D_i - s_ip                       D_i = log sum over all a other than i of e^s_ia
        pull     1, besides what the denominator does

Entries that are no pair have an excess of +infinity: no loss and no pull.

Papers: SINCERE https://arxiv.org/abs/2309.14277, eps-SupInfoNCE https://arxiv.org/abs/2211.05568,
SupCon https://arxiv.org/abs/2004.11362.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from sincere.loss_entry import Formula


def pair_losses(s: Tensor, log_denominators: Tensor, formula: Formula) -> Tensor:
    """Return the loss of each pair; differentiable to any order."""
    if formula.positives_in_denominator:
        return log_denominators - s
    return -logsigmoid(excess(s, log_denominators, formula)) - formula.epsilon


def excess(s: Tensor, log_denominators: Tensor, formula: Formula) -> Tensor:
    """Return s - L - eps."""
    return s - log_denominators - formula.epsilon


def excess_threshold(log_denominators: Tensor, formula: Formula) -> Tensor:
    """Return L + eps, so that the excess is s minus this: one operation on a block instead of two."""
    return log_denominators + formula.epsilon


def sum_softplus(excess: Tensor) -> Tensor:
    """Return the sum of softplus(-excess) over the last dimension."""
    return -logsigmoid(excess).sum(dim=-1)


def to_pulls(excess: Tensor) -> Tensor:
    """Turn excesses into pulls, in place."""
    return excess.neg_().sigmoid_()


def to_coefficients(s: Tensor, log_denominators: Tensor, counts: Tensor, formula: Formula) -> Tensor:
    """Turn similarities to positives into d loss_i / d s_ip of the anchor's mean loss, in place.

    Args:
        s: Similarities of anchors and their positives.
        log_denominators: L_i, or D_i where positives are part of the denominator.
        counts: Number of positives of each anchor.
        formula: The loss.
    """
    s.sub_(log_denominators)
    if formula.positives_in_denominator:
        # A positive is in its own denominator, so s - D <= 0 up to rounding.
        return s.clamp_max_(0.0).exp_().sub_(1 / counts)
    return to_pulls(s.sub_(formula.epsilon)).div_(-counts)


def mean_losses(sums: Tensor, counts: Tensor, log_denominators: Tensor, formula: Formula) -> Tensor:
    """Return each anchor's loss, the mean over its positives; 0 for an anchor without one.

    Args:
        sums: Sum over the positives of their similarities where they are part of the denominator, else of
            softplus(-excess).
        counts: Number of positives of each anchor.
        log_denominators: L_i, or D_i where positives are part of the denominator.
        formula: The loss.
    """
    with_positives = formula.positives_in_denominator
    totals = counts * log_denominators - sums if with_positives else sums - counts * formula.epsilon
    return torch.where(counts > 0, totals / counts, 0.0)
