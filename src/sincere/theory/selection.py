"""The tractable selection model and its ideal loss (paper, sections on the ideal loss and its justification).

Papers: SINCERE https://arxiv.org/abs/2309.14277, SupCon https://arxiv.org/abs/2004.11362.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from sincere import checks
from sincere.errors import InputValueError
from sincere.records.estimates import MonteCarlo

if TYPE_CHECKING:
    from sincere.theory.generative import GenerativeModel

Score = Callable[[Tensor], Tensor]


def selection_log_probabilities(scores: Tensor, partners: Tensor) -> Tensor:
    """Return log p_theta(S = i | X, P): the softmax of the scores over all items but the partners.

    Args:
        scores: f_theta of each item, (draws, N).
        partners: Their indices, (draws, T - 1).

    Example:
        >>> selection_log_probabilities(torch.zeros(1, 4), torch.tensor([[2]])).exp()
        tensor([[0.3333, 0.3333, 0.0000, 0.3333]])
    """
    return scores.scatter(1, partners, -torch.inf).log_softmax(dim=1)


def supcon_log_terms(scores: Tensor, partners: Tensor) -> Tensor:
    """Return the logarithms of what SupCon puts in place of those probabilities; -inf for the partners.

    The first partner is the anchor; the others stay in the denominator, so the terms over all S sum to less than 1
    when there are two partners or more (paper, appendix "Probabilistic View of SupCon").
    """
    if partners.shape[1] == 0:
        raise InputValueError("supcon_log_terms: partners must not be empty: SupCon's anchor is one of them; got T = 1")
    denominator = scores.scatter(1, partners[:, :1], -torch.inf).logsumexp(dim=1, keepdim=True)
    return (scores - denominator).scatter(1, partners, -torch.inf)


LOG_TERMS = {"sincere": selection_log_probabilities, "supcon": supcon_log_terms}


def ideal_losses(
    model: GenerativeModel, score: Score, n_draws: int, *, loss: Literal["sincere", "supcon"] = "sincere"
) -> Tensor:
    """Return -log p_theta(S | X, P) of each of `n_draws` data sets from the model; differentiable, to train a score.

    Args:
        model: Where the data sets come from.
        score: Maps items (draws, N, *event) to scores (draws, N).
        n_draws: How many data sets.
        loss: "sincere", or "supcon" for its terms in place of the probability.
    """
    terms = LOG_TERMS[checks.choice("ideal_losses", "loss", loss, LOG_TERMS)]
    draw = model.sample(n_draws)
    scores = score(draw.items)
    if scores.shape != (n_draws, model.n_items):
        requirement = f"score must return one number per item, shape {(n_draws, model.n_items)}"
        raise InputValueError(checks.wording("ideal_losses", requirement, checks.shape(scores)))
    return -terms(scores, draw.partners).gather(1, draw.selected[:, None])[:, 0]


def ideal_loss(
    model: GenerativeModel, score: Score, *, n_draws: int = 10_000, loss: Literal["sincere", "supcon"] = "sincere"
) -> MonteCarlo:
    """Return the ideal loss of a score function by Monte Carlo, with its standard error.

    Its minimum over all scores is at the log density ratio, up to a constant (Theorem 1).

    Example:
        >>> from torch.distributions import Normal
        >>> from sincere.theory.generative import GenerativeModel
        >>> same = GenerativeModel(Normal(0.0, 1.0), Normal(0.0, 1.0), n_targets=1, n_noise=9)
        >>> round(ideal_loss(same, same.log_ratio, n_draws=100).estimate, 4)  # chance: log 10
        2.3026
    """
    with torch.no_grad():
        losses = ideal_losses(model, score, checks.count("ideal_loss", "n_draws", n_draws, least=2), loss=loss).double()
    return MonteCarlo(losses.mean().item(), (losses.std() / n_draws**0.5).item())
