"""The loss over sets for a block of anchors: -log of the probability of the set of positives, and its derivative.

Legend: one anchor with similarities s_j to m other items, k of which, the set P, are its positives; r_j = e^{s_j}.

    p(P) = prod_{p in P} r_p / e_k(r_1 .. r_m)      e_k: the sum over all sets of k items of the product of their r

Multiplying every r by e^lambda changes nothing. It turns the items into independent events: item j is chosen with
probability sigmoid(s_j + lambda), and p(P) is the probability that P is chosen, given that k items are. Write q for the
probability that an item is on the wrong side: sigmoid(s_n + lambda) for a negative n, sigmoid(-s_p - lambda) for a
positive p. Then, with lambda such that k items are chosen on average, which is sum_n q_n = sum_p q_p,

    -log p(P) = sum_n softplus(s_n + lambda) + sum_p softplus(-s_p - lambda) + log p(k items are chosen)

and no term is large unless the loss is, whatever the temperature. The last one is computed exactly, as the probability
that equally many negatives and positives are on the wrong side, or by the model in `saddle_point.py`. The derivative
for s_n is the probability that n is in the chosen set, given that it has k items; for s_p it is minus the probability
that p is not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import softplus

from sincere import host
from sincere.losses.kernels.saddle_point import SaddlePoint
from sincere.losses.kernels.subset_counts import CountTree

EXACT_BELOW = 8  # positives; from here on the saddle point's error is below 0.01 per positive
_MAX_STEPS = 64  # of the search for lambda: 3 to 6 are usual, and halving 1e7 in every other step takes about 56


@dataclass(frozen=True, eq=False)
class Block:
    """The items of a block of anchors, without the anchors themselves; `set_terms` overwrites them.

    Attributes:
        negatives: s_n (rows, m); -inf for what is no negative.
        positives: -s_p (rows, width); -inf for what is no positive.
        n_positives: k of each row, (rows, 1).
        n_items: m of each row, (rows, 1).
        centre: Where most s_j of a row are, (rows, 1).
        low: At most the smallest s_j of a row, (rows, 1).
        high: At least the largest.
    """

    negatives: Tensor
    positives: Tensor
    n_positives: Tensor
    n_items: Tensor
    centre: Tensor
    low: Tensor
    high: Tensor


@dataclass(frozen=True, eq=False)
class SetTerms:
    """-log p(P) of each row, and its derivative.

    Attributes:
        losses: (rows,), before the division by k.
        push: Derivative for s_n, (rows, m).
        pull: Derivative for -s_p, (rows, width).
    """

    losses: Tensor
    push: Tensor | None = None
    pull: Tensor | None = None


def set_terms(block: Block, method: str, *, with_derivative: bool) -> SetTerms:
    """Return the loss of each row; finite and without meaning for rows that lack positives or negatives.

    Args:
        block: The items.
        method: "exact", "saddle", or "auto": exact in rows with fewer than `EXACT_BELOW` positives.
        with_derivative: Whether to compute push and pull.
    """
    shift = balance(block)
    logits = block.negatives.add_(shift), block.positives.sub_(shift)
    costs = sum(softplus(x, threshold=40.0).sum(dim=1) for x in logits)
    q = logits[0].sigmoid_(), logits[1].sigmoid_()
    if method == "exact":
        terms = _exact(*q, _largest_degree(block), with_derivative)
    elif method == "saddle":
        terms = _saddle(*q, with_derivative)
    else:
        terms = _automatic(block, *q, with_derivative)
    return replace(terms, losses=costs + terms.losses)


def balance(block: Block) -> Tensor:
    """Return lambda of each row (rows, 1), by Newton's method on log(sum_n q_n) - log(sum_p q_p), kept in an interval.

    Each logarithm is nearly linear in lambda where the other side's probabilities are small: one step suffices for
    classes far apart, where sum_j sigmoid(s_j + lambda) - k itself is flat.
    """
    info = torch.finfo(block.negatives.dtype)
    k, m = block.n_positives, block.n_items.clamp_min(1.0)
    decided = (k == 0) | (k == m)  # one side is empty, and the items of the other go where they should
    logit = torch.where(decided, torch.where(k == 0, -1.0, 1.0) * m.log(), torch.logit(k / m, eps=info.tiny))
    shift, least, most = logit - block.centre, logit - block.high, logit - block.low
    shift = torch.where(decided, torch.where(k == 0, least, most), shift)
    # The error after a step is less than its square.
    tolerance = info.eps ** (1 / 3) + 4 * info.eps * torch.maximum(block.low.abs(), block.high.abs())
    q_negative, q_positive = torch.empty_like(block.negatives), torch.empty_like(block.positives)
    reach, settled = most - least, decided
    for _ in range(_MAX_STEPS):
        torch.add(block.negatives, shift, out=q_negative).sigmoid_()
        torch.sub(block.positives, shift, out=q_positive).sigmoid_()
        sums = [q.sum(dim=1, keepdim=True).clamp_min_(info.tiny) for q in (q_negative, q_positive)]
        squares = [torch.linalg.vector_norm(q, dim=1, keepdim=True).square_() for q in (q_negative, q_positive)]
        excess = sums[0].log() - sums[1].log()
        slope = (2 - squares[0] / sums[0] - squares[1] / sums[1]).clamp_min_(info.eps)
        least, most = torch.where(excess < 0, shift, least), torch.where(excess > 0, shift, most)
        step = -excess / slope
        # Where both sums vanish, so does every term of the loss, and any lambda will do.
        settled = settled | (sums[0] + sums[1] <= info.eps**2)
        small = step.abs() <= tolerance
        # Steps that do not become smaller come from sums that are flat or vanish: halve the interval instead.
        trusted = (shift + step >= least) & (shift + step <= most) & (step.abs() <= reach / 2)
        moved = torch.where(small | trusted, shift + step, (least + most) / 2)
        reach = (moved - shift).abs()
        shift = torch.where(settled, shift, moved)
        settled = settled | small
        if host.reads_back(block.negatives.device) and bool(settled.all()):
            break
    return shift


def _automatic(block: Block, q_negative: Tensor, q_positive: Tensor, with_derivative: bool) -> SetTerms:
    """Return log p(k items are chosen) exactly in rows with few positives, by the saddle point in the others."""
    few = block.n_positives < EXACT_BELOW
    knows = host.reads_back(few.device)
    if knows and not bool(few.any()):
        return _saddle(q_negative, q_positive, with_derivative)
    exact = _exact(q_negative, q_positive, EXACT_BELOW - 1, with_derivative)
    if knows and bool(few.all()):
        return exact
    saddle = _saddle(q_negative, q_positive, with_derivative)
    losses = torch.where(few[:, 0], exact.losses, saddle.losses)
    if exact.push is None or exact.pull is None or saddle.push is None or saddle.pull is None:
        return SetTerms(losses)
    return SetTerms(losses, torch.where(few, exact.push, saddle.push), torch.where(few, exact.pull, saddle.pull))


def _exact(q_negative: Tensor, q_positive: Tensor, degree: int, with_derivative: bool) -> SetTerms:
    negatives, positives = CountTree(q_negative, degree), CountTree(q_positive, degree)
    p_negative, p_positive = negatives.distribution, positives.distribution  # (numbers, rows)
    numbers = min(len(p_negative), len(p_positive))
    equal = (p_negative[:numbers] * p_positive[:numbers]).sum(dim=0)  # (rows,)
    if not with_derivative:
        return SetTerms(equal.log())
    push = negatives.given_each(p_positive).mul_(q_negative).div_(equal[:, None]).clamp_max_(1.0)
    pull = positives.given_each(p_negative).mul_(q_positive).div_(equal[:, None]).clamp_max_(1.0)
    return SetTerms(equal.log(), push, pull)


def _saddle(q_negative: Tensor, q_positive: Tensor, with_derivative: bool) -> SetTerms:
    """Return the terms by the saddle point; overwrites both q."""
    model = SaddlePoint(q_negative, q_positive)
    return SetTerms(model.log_probability, *(model.push_and_pull() if with_derivative else ()))


def _largest_degree(block: Block) -> int:
    """Return how many items of one side can be on the wrong side at most, in any row; reads it from the device."""
    return max(1, int(torch.minimum(block.n_positives, block.n_items - block.n_positives).max()))
