"""The selection of all targets at once: the posterior that the loss over sets is the negative logarithm of.

Legend: N items X = (x_1, ..., x_N), K of them, the set A, drawn from the target p+ and the others from the noise p-.
Every set of K items is equally likely before X is seen. Then

    p(A | X) = prod_{a in A} r_a / e_K(r_1, ..., r_N),    r_i = p+(x_i) / p-(x_i)

where e_K, the elementary symmetric polynomial, sums that product over all C(N, K) sets. The loss has e^{s_ij} in the
place of the ratio, for the items other than the anchor. The paper leaves this case to future work because of the number
of sets (https://arxiv.org/abs/2309.14277); a recursion sums them in O(N K).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sincere import checks
from sincere.errors import InputValueError

if TYPE_CHECKING:
    from sincere.theory.generative import GenerativeModel


def log_elementary_symmetric(scores: Tensor, degree: int) -> Tensor:
    """Return log e_K(e^f_1, ..., e^f_N) of each row of scores (draws, N), for K = degree: (draws,); differentiable.

    Item by item: e_K with item i is e_K without it plus e^f_i e_{K-1} without it.

    Example:
        >>> log_elementary_symmetric(torch.zeros(1, 5), 2).exp()  # the number of pairs
        tensor([10.])
    """
    caller = "log_elementary_symmetric"
    n_items = checks.tensor(caller, "scores", scores).shape[1]
    if checks.count(caller, "degree", degree, least=0) > n_items:
        requirement = f"degree must be at most the number of items, {n_items}"
        raise InputValueError(checks.wording(caller, requirement, degree))
    # A finite floor instead of -inf: the derivative of logaddexp(-inf, -inf) is not defined.
    floor = torch.finfo(scores.dtype).min / 4
    log_e = torch.cat(
        [torch.zeros_like(scores[:, :1]), torch.full_like(scores[:, :1], floor).expand(-1, degree)], dim=1
    )
    for score in scores.split(1, dim=1):  # (draws, 1)
        with_item = torch.logaddexp(log_e[:, 1:], log_e[:, :-1] + score)
        log_e = torch.cat([log_e[:, :1], with_item], dim=1)
    return log_e[:, degree]


def set_log_probabilities(scores: Tensor, sets: Tensor) -> Tensor:
    """Return log p_theta(A | X) for one set of each row.

    Args:
        scores: f_theta of each item, (draws, N); the log density ratio gives the true posterior.
        sets: Indices of the items in A, (draws, K).

    Example:
        >>> set_log_probabilities(torch.zeros(1, 5), torch.tensor([[0, 3]])).exp()  # one of ten pairs
        tensor([0.1000])
    """
    return scores.gather(1, sets).sum(dim=1) - log_elementary_symmetric(scores, sets.shape[1])


def inclusion_probabilities(scores: Tensor, size: int) -> Tensor:
    """Return p_theta(i in A | X, |A| = size) for each item: (draws, N); each row sums to `size`.

    It is the gradient of log e_K: the loss pushes an item away by this probability, and pulls a member closer by what
    this lacks to 1.

    Example:
        >>> inclusion_probabilities(torch.zeros(1, 4), 3)
        tensor([[0.7500, 0.7500, 0.7500, 0.7500]])
    """
    leaf = scores.detach().requires_grad_()
    with torch.enable_grad():
        total = log_elementary_symmetric(leaf, size).sum()
    (gradient,) = torch.autograd.grad(total, leaf)
    return gradient


def enumerated_set_posterior(model: GenerativeModel, items: Tensor) -> tuple[Tensor, Tensor]:
    """Return every set of targets (sets, T) and p(A | X) of each from Bayes' rule alone: (draws, sets).

    Independent of the density ratio: the products of all densities, for all C(N, T) sets. For small N; a proof by
    computation of the formula above.
    """
    log_target, log_noise = model.target.log_prob(items), model.noise.log_prob(items)  # (draws, N)
    sets = torch.tensor(list(itertools.combinations(range(model.n_items), model.n_targets)), device=items.device)
    is_target = torch.zeros(len(sets), model.n_items, dtype=torch.bool, device=items.device).scatter_(1, sets, True)
    log_joint = torch.where(is_target, log_target[:, None], log_noise[:, None]).sum(dim=2)
    return sets, log_joint.softmax(dim=1)
