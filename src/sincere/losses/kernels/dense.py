"""The plain vectorised form: every n x m matrix in memory, gradients by autograd, of any order.

Time O(n m d), memory O(n m). The right choice for small batches and for second derivatives.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from sincere.loss_entry import Formula
from sincere.losses.kernels.chosen_pairs import choose_pairs
from sincere.losses.kernels.normalize import unit_rows
from sincere.losses.kernels.pair_terms import pair_losses
from sincere.losses.pairs import Contrast
from sincere.shapes import KeyRows, PerAnchor, Rows


def dense_losses(
    embeddings: Rows,
    keys: KeyRows | None,
    temperature: Tensor,
    contrast: Contrast,
    *,
    normalize: bool,
) -> PerAnchor:
    """Return the loss of each anchor, 0 where it has no positive."""
    formula = contrast.formula
    s = similarities(embeddings, keys, temperature, normalize=normalize)
    if contrast.key_bias is not None:
        s = s + contrast.key_bias.masked_fill(contrast.key_bias == -torch.inf, 0.0)
    if contrast.has_classes:
        same, absent = contrast.ids[:, None] == contrast.key_ids, contrast.absent()
        left_out = absent if formula.positives_in_denominator else same | absent
        return masked_losses(s, same & ~absent, left_out, contrast.positive_counts, formula)
    pairs = choose_pairs(s.detach(), contrast)
    in_denominator = s if pairs.log_shares is None else s + pairs.log_shares.clamp_min(_floor(s))
    if formula.prior:
        log_denominators = _debiased(s, pairs.weights, ~pairs.in_denominator, formula.prior, temperature)
    else:
        log_denominators = _log_sum(in_denominator, ~pairs.in_denominator)
    losses = _weighted_losses(s, pairs.weights, log_denominators, formula)
    return torch.where(contrast.positive_counts > 0, losses, 0.0)


def similarities(embeddings: Rows, keys: KeyRows | None, temperature: Tensor, *, normalize: bool) -> Tensor:
    """Return the similarity of each anchor and each key, divided by the temperature: (n, m)."""
    z = unit_rows(embeddings)[0] if normalize else embeddings
    k = z if keys is None else unit_rows(keys)[0] if normalize else keys
    return z @ k.T / temperature


def masked_losses(s: Tensor, positives: Tensor, left_out: Tensor, counts: PerAnchor, formula: Formula) -> PerAnchor:
    """Return the loss of each anchor, 0 where it has no positive, for any choice of pairs and the plain formulas.

    Args:
        s: Similarities divided by the temperature (n, m).
        positives: Which pairs are positive (n, m).
        left_out: Which pairs are not in the denominator that the positives of an anchor share (n, m).
        counts: Number of positives of each anchor (n,).
        formula: The loss.
    """
    pairs = pair_losses(s, _log_sum(s, left_out), formula)
    # An anchor that is left out may have pairs, but no count.
    taken = positives & (counts > 0)[:, None]
    return pairs.masked_fill(~taken, 0.0).sum(dim=1) / counts.clamp_min(1.0)


def _weighted_losses(s: Tensor, weights: Tensor, log_denominators: Tensor, formula: Formula) -> PerAnchor:
    """Return the loss of each anchor for weights of its positives (n, m) and logarithms of denominators (n, 1)."""
    shares = weights / weights.sum(dim=1, keepdim=True).clamp_min(torch.finfo(s.dtype).tiny)
    if formula.inside:
        logs = (shares if formula.inside == "mean" else weights).masked_fill(weights == 0, 1.0).log()
        means = _log_sum(s + logs, weights == 0)
        gaps = (log_denominators - means)[:, 0]
        return gaps if formula.positives_in_denominator else -logsigmoid(-gaps)
    pairs = log_denominators - s if formula.decoupled else pair_losses(s, log_denominators, formula)
    return (pairs.masked_fill(weights == 0, 0.0) * shares).sum(dim=1)


def _debiased(s: Tensor, weights: Tensor, left_out: Tensor, prior: float, temperature: Tensor) -> Tensor:
    """Return the logarithm of the denominator that is corrected for positives among the negatives (n, 1)."""
    n_negatives = (~left_out).sum(dim=1, keepdim=True).to(s.dtype)
    shares = weights / weights.sum(dim=1, keepdim=True).clamp_min(torch.finfo(s.dtype).tiny)
    unused = left_out & (weights == 0)
    largest = s.detach().masked_fill(unused, _floor(s)).amax(dim=1, keepdim=True)
    e = (s - largest).masked_fill(unused, 0.0).exp()
    totals = (e.masked_fill(left_out, 0.0) - prior * n_negatives * shares * e).sum(dim=1, keepdim=True)
    limit = n_negatives.log() - 1 / temperature
    tiny = torch.finfo(s.dtype).tiny
    free = largest + totals.clamp_min(tiny).log() - torch.log1p(-s.new_tensor(prior))
    at_limit = (totals <= tiny) | (free <= limit)
    return torch.where(at_limit, limit, free).masked_fill(n_negatives == 0, _floor(s))


def _log_sum(values: Tensor, left_out: Tensor) -> Tensor:
    """Return the log-sum-exp of each row without some entries (n, 1)."""
    return values.masked_fill(left_out, _floor(values)).logsumexp(dim=1, keepdim=True)


def _floor(values: Tensor) -> float:
    """Return what stands for -infinity: an empty denominator then has zero, not undefined, derivatives of any order."""
    return torch.finfo(values.dtype).min / 4
