"""The paper's generative models and their exact posteriors (Definitions 1 and 2, Propositions 1 and 2).

Legend: N items X = (x_1, ..., x_N); T of them drawn from the target p+, the others from the noise p-. S is one target
index, P the other T - 1, its partners: the positives of a batch are targets, its negatives are noise. T = 1 is the
self-supervised model, where P is empty. Paper: https://arxiv.org/abs/2309.14277.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from math import comb, log

import torch
from torch import Tensor
from torch.distributions import Distribution

from sincere import checks
from sincere.theory.distributions import check_pair
from sincere.theory.selection import selection_log_probabilities


@dataclass(frozen=True, eq=False)
class Draw:
    """Data sets drawn from the model.

    Attributes:
        items: X, of shape (draws, N, *event).
        selected: S, of shape (draws,).
        partners: P, of shape (draws, T - 1), ascending.
    """

    items: Tensor
    selected: Tensor
    partners: Tensor


class GenerativeModel:
    """N items of which T come from the target and the others from the noise distribution, in random positions.

    Args:
        target: p+, any distribution of torch without batch shape.
        noise: p-, of the same event shape, nonzero wherever p+ is.
        n_targets: T. 1 is the self-supervised model, more the supervised one.
        n_noise: |N| = N - T.

    Raises:
        InputValueError: The event shapes differ, a distribution is a batch of several, T < 1 or |N| < 1.

    Example:
        >>> from torch.distributions import Normal
        >>> model = GenerativeModel(Normal(1.0, 1.0), Normal(0.0, 1.0), n_targets=2, n_noise=3)
        >>> draw = model.sample(4)
        >>> draw.items.shape, draw.selected.shape, draw.partners.shape
        (torch.Size([4, 5]), torch.Size([4]), torch.Size([4, 1]))
    """

    def __init__(self, target: Distribution, noise: Distribution, *, n_targets: int, n_noise: int) -> None:
        caller = "GenerativeModel"
        check_pair(caller, target=target, noise=noise)
        self.target, self.noise = target, noise
        self.n_targets = checks.count(caller, "n_targets", n_targets, least=1)
        self.n_noise = checks.count(caller, "n_noise", n_noise, least=1)
        self.n_items = self.n_targets + self.n_noise

    def sample(self, n_draws: int) -> Draw:
        """Draw data sets: P and S uniformly among the indices, then every item."""
        n_draws = checks.count("GenerativeModel.sample", "n_draws", n_draws, least=1)
        target = self.target.sample(torch.Size([n_draws, self.n_targets]))
        noise = self.noise.sample(torch.Size([n_draws, self.n_noise]))
        drawn = torch.cat([target, noise], dim=1)
        # A random permutation per draw: the positions of P, of S and of the noise.
        positions = torch.rand(n_draws, self.n_items, device=drawn.device).argsort(dim=1)
        partners, selected = positions[:, : self.n_targets - 1], positions[:, self.n_targets - 1]
        index = positions.view(n_draws, self.n_items, *[1] * len(self.target.event_shape)).expand_as(drawn)
        return Draw(torch.empty_like(drawn).scatter_(1, index, drawn), selected, partners.sort(dim=1).values)

    def log_ratio(self, items: Tensor) -> Tensor:
        """Return log p+(x) / p-(x) of each item."""
        return self.target.log_prob(items) - self.noise.log_prob(items)

    def posterior(self, items: Tensor, partners: Tensor) -> Tensor:
        """Return p(S = i | X, P) for each index i, 0 for the partners: the density-ratio softmax of Proposition 2.

        With T = 1 it is p(S | X), Proposition 1.
        """
        return selection_log_probabilities(self.log_ratio(items), partners).exp()

    def enumerated_posterior(self, items: Tensor, partners: Tensor) -> Tensor:
        """Return the same posterior from Bayes' rule alone: the joint p(X, S, P) for every P and S.

        Independent of the density ratio: the products of all densities, for all C(N, T-1) (N - T + 1) cases. For
        small N; a proof by computation of the propositions.
        """
        log_target, log_noise = self.target.log_prob(items), self.noise.log_prob(items)  # (draws, N)
        everything = range(self.n_items)
        log_prior = -log(comb(self.n_items, self.n_targets - 1)) - log(self.n_items - self.n_targets + 1)
        log_joint = torch.full_like(log_target, -torch.inf)  # of the given P and each S; no underflow
        partners = partners.sort(dim=1).values
        for subset in itertools.combinations(everything, self.n_targets - 1):
            matching = (partners == partners.new_tensor(subset)).all(dim=1)
            for chosen in sorted(set(everything) - set(subset)):
                targets = [*subset, chosen]
                others = [i for i in everything if i not in targets]
                joint = log_prior + log_target[:, targets].sum(dim=1) + log_noise[:, others].sum(dim=1)
                log_joint[:, chosen] = torch.where(matching, joint, log_joint[:, chosen])
        return log_joint.softmax(dim=1)
