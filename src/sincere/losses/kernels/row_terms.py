"""One block of anchors against all keys, by any formula and any weights of pairs: value and derivative.

With weights w_ip of the positives (W_i their sum), fractions q_ij with which a key stands in the denominator, and
L_i = log sum_j q_ij e^s_ij, the loss of anchor i is

    pairs outside the logarithm   sum_p w_ip softplus(L_i - s_ip + eps) / W_i - eps     SINCERE, eps-SupInfoNCE
                                  L_i - sum_p w_ip s_ip / W_i                           SupCon, decoupled
    inside                        softplus(L_i - M_i), or L_i - M_i for SupCon          M_i = log sum w_ip e^s_ip / W_i

(without W_i for the sum of the positives), so that d loss_i / d s_ij = push_i e^(s_ij - L_i) q_ij - pull_ij: the pulls
on positives, and the push of everything in the denominator. A debiased denominator (Chuang et al.,
https://arxiv.org/abs/2007.00224) subtracts the positives that are expected among the N negatives: e^L_i = (sum_n e^s_in
- prior N sum_p w_ip e^s_ip / W_i) / (1 - prior), at least N e^(-1 / temperature).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sincere.losses.kernels.chosen_pairs import choose_pairs
from sincere.losses.kernels.pair_terms import excess_threshold, to_pulls
from sincere.losses.pairs import Contrast


@dataclass(frozen=True, eq=False)
class RowTerms:
    """Losses of a block of anchors, and what their derivatives are made of.

    Attributes:
        losses: Loss of each anchor, 0 for one that is left out.
        log_denominators: L_i.
        pulls: -d loss_i / d s_ij without the push (rows, m).
        push: d loss_i / d L_i (rows, 1).
        pushed: d L_i / d s_ij (rows, m).
        at_limit: Where L_i is its smallest value, which depends on the temperature alone (rows, 1); None without one.
    """

    losses: Tensor
    log_denominators: Tensor
    pulls: Tensor
    push: Tensor
    pushed: Tensor
    at_limit: Tensor | None = None


def row_terms(s: Tensor, contrast: Contrast, inverse_temperature: Tensor) -> RowTerms:
    """Return the terms of similarities `s` (rows, m), divided by the temperature, with logarithms of key weights."""
    formula = contrast.formula
    pairs = choose_pairs(s, contrast)
    weights = pairs.weights
    totals = weights.sum(dim=1, keepdim=True)
    shares = weights / torch.where(totals > 0, totals, 1.0)
    in_denominator = s if pairs.log_shares is None else s + pairs.log_shares
    in_denominator = in_denominator.masked_fill(~pairs.in_denominator, -torch.inf)
    at_limit = None
    if formula.prior:
        log_denominators, pushed, at_limit = _debiased(s, shares, in_denominator, formula.prior, inverse_temperature)
    else:
        log_denominators, pushed = _softmax(in_denominator)
    present = (contrast.positive_counts > 0)[:, None]
    if formula.inside:
        logs = (shares if formula.inside == "mean" else weights).log()
        means, pulls = _softmax((s + logs).masked_fill(weights == 0, -torch.inf))
        gaps = log_denominators - means
    if formula.inside and formula.positives_in_denominator:
        losses, push = gaps, torch.ones_like(gaps)
    elif formula.inside:
        losses, push = torch.nn.functional.softplus(gaps), gaps.sigmoid()
        pulls = pulls * push
    elif formula.positives_in_denominator or formula.decoupled:
        pulls, push = shares, torch.ones_like(totals)
        losses = log_denominators - (shares * s.masked_fill(weights == 0, 0.0)).sum(dim=1, keepdim=True)
    else:
        x = (s - excess_threshold(log_denominators, formula)).masked_fill_(weights == 0, torch.inf)
        losses = -(torch.nn.functional.logsigmoid(x) * shares).sum(dim=1, keepdim=True) - formula.epsilon
        pulls = to_pulls(x).mul_(shares)
        push = pulls.sum(dim=1, keepdim=True)
    return RowTerms(
        losses=torch.where(present, losses, 0.0)[:, 0],
        log_denominators=log_denominators[:, 0],
        pulls=torch.where(present, pulls, 0.0),
        push=torch.where(present, push, 0.0),
        pushed=pushed,
        at_limit=at_limit,
    )


def _softmax(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return log-sum-exp (rows, 1) and softmax of each row; -infinity and zeros for a row of -infinity only."""
    largest = values.amax(dim=1, keepdim=True)
    largest = largest.masked_fill(largest == -torch.inf, 0.0)
    exponentials = (values - largest).exp_()
    totals = exponentials.sum(dim=1, keepdim=True)
    return largest + totals.log(), exponentials.div_(totals.clamp_min(torch.finfo(totals.dtype).tiny))


def _debiased(
    s: Tensor, shares: Tensor, negatives: Tensor, prior: float, inverse_temperature: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the logarithm of the corrected denominator, its derivative, and where it is at its limit."""
    n_negatives = (negatives > -torch.inf).sum(dim=1, keepdim=True).to(s.dtype)
    positives = s.masked_fill(shares == 0, -torch.inf)
    largest = torch.maximum(negatives.amax(dim=1, keepdim=True), positives.amax(dim=1, keepdim=True))
    largest = largest.masked_fill(largest == -torch.inf, 0.0)
    e = (negatives - largest).exp_() - prior * n_negatives * shares * (positives - largest).exp_()
    totals = e.sum(dim=1, keepdim=True)
    limit = n_negatives.log() - inverse_temperature
    tiny = torch.finfo(s.dtype).tiny
    free = largest + totals.clamp_min(tiny).log() - torch.log1p(-s.new_tensor(prior))
    at_limit = (totals <= tiny) | (free <= limit)
    pushed = torch.where(at_limit, 0.0, e / totals.clamp_min(tiny))
    return torch.where(at_limit, limit, free), pushed, at_limit & (n_negatives > 0)
