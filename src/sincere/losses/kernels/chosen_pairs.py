"""The pairs that a formula takes out of a block of anchors and keys: which positives, and what in the denominator."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sincere.losses.pairs import Contrast


@dataclass(frozen=True, eq=False)
class ChosenPairs:
    """Pairs of anchors and keys, each (n, m).

    Attributes:
        weights: Weight of each key among the positives of an anchor, 0 for the others.
        in_denominator: Which keys stand in the denominator that the positives of an anchor share.
        log_shares: Logarithm of the fraction with which they do; None where it is 0.
    """

    weights: Tensor
    in_denominator: Tensor
    log_shares: Tensor | None = None


def choose_pairs(s: Tensor, contrast: Contrast) -> ChosenPairs:
    """Return the pairs of these anchors by their formula; the choice takes no gradient.

    Args:
        s: Similarities divided by the temperature (n, m), read only where a formula asks for the nearest.
        contrast: The anchors and all keys.
    """
    formula, sets = contrast.formula, contrast.label_sets
    weights, absent = contrast.pair_weights(), contrast.absent()
    positives = weights > 0
    if formula.positives_in_denominator:
        in_denominator, log_shares = ~absent, None
    elif sets is not None and sets.soft:
        in_denominator, log_shares = ~absent & (weights < 1), torch.log1p(-weights)
    else:
        in_denominator, log_shares = ~(positives | absent), None
    taken = positives
    targets = slice(contrast.n_keys - contrast.n_targets, None)
    if formula.n_positives:
        drawn_from = taken.clone()
        drawn_from[:, targets] = False
        drawn = drawn_from & _largest(_priorities(contrast), drawn_from, formula.n_positives)
        drawn[:, targets] = taken[:, targets]  # the target of an anchor's class is always taken
        taken = drawn
    if formula.nearest_positives:
        taken = taken & _largest(s, taken, formula.nearest_positives)
    if formula.nearest_negatives:
        negatives = in_denominator & ~positives
        nearest = negatives & _largest(s, negatives, formula.nearest_negatives)
        in_denominator = nearest | taken if formula.positives_in_denominator else nearest
    weights.masked_fill_(~taken, 0.0)
    weights[:, targets] *= formula.target_weight
    return ChosenPairs(weights, in_denominator, log_shares)


def _largest(values: Tensor, among: Tensor, k: int) -> Tensor:
    """Return the k largest of each row among some, all of them where there are fewer."""
    if k >= values.shape[1]:
        return among
    candidates = values.detach().to(torch.promote_types(values.dtype, torch.float32)).masked_fill(~among, -torch.inf)
    return torch.zeros_like(among).scatter_(1, candidates.topk(k, dim=1).indices, True)


def _priorities(contrast: Contrast) -> Tensor:
    """Return a random number for each pair: a hash of the draw's number, the anchor and the key.

    The same for every way in which a batch is split into blocks or over processes.
    """
    keys = torch.arange(contrast.n_keys, device=contrast.key_ids.device)
    return _mix(_mix(contrast.anchor_numbers + contrast.draw)[:, None] + keys).to(torch.float64)


def _mix(x: Tensor) -> Tensor:
    """Scramble 64-bit integers (the finaliser of SplitMix64, https://doi.org/10.1145/2660193.2660195)."""
    x = (x ^ (x >> 30)) * -0x40A7B892E31B1A47
    x = (x ^ (x >> 27)) * -0x6B2FB644ECCEEE15
    return x ^ (x >> 31)
