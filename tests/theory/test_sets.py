"""The posterior over sets of targets is a distribution, is Bayes' rule, and is what the loss over sets computes."""

from __future__ import annotations

from itertools import combinations
from math import comb

import pytest
import torch
from torch.distributions import Categorical, Independent, Normal
from torch.nn.functional import normalize

from sincere import set_sincere_loss
from sincere.errors import InputTypeError, InputValueError
from sincere.theory.generative import GenerativeModel
from sincere.theory.sets import (
    enumerated_set_posterior,
    inclusion_probabilities,
    log_elementary_symmetric,
    set_log_probabilities,
)

PAIRS = {
    "gaussian": (Normal(torch.tensor(1.0).double(), 1.0), Normal(torch.tensor(0.0).double(), 1.5)),
    "plane": (
        Independent(Normal(torch.ones(2).double(), 1.0), 1),
        Independent(Normal(torch.zeros(2).double(), 1.0), 1),
    ),
    "categorical": (
        Categorical(torch.tensor([0.6, 0.3, 0.1]).double()),
        Categorical(torch.tensor([0.1, 0.3, 0.6]).double()),
    ),
}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("n_items", range(2, 13))
def test_the_posterior_is_bayes_rule_over_all_subsets(pair: str, n_items: int) -> None:
    for n_targets in range(1, n_items):
        model = GenerativeModel(*PAIRS[pair], n_targets=n_targets, n_noise=n_items - n_targets)
        items = model.sample(3).items
        sets, expected = enumerated_set_posterior(model, items)
        assert len(sets) == comb(n_items, n_targets)
        scores = model.log_ratio(items).double()
        actual = torch.stack([set_log_probabilities(scores, s.expand(3, -1)) for s in sets], dim=1).exp()
        torch.testing.assert_close(actual, expected.double(), rtol=1e-10, atol=1e-12)
        inclusion = torch.stack([expected[:, (sets == i).any(dim=1)].sum(dim=1) for i in range(n_items)], dim=1)
        torch.testing.assert_close(
            inclusion_probabilities(scores, n_targets), inclusion.double(), rtol=1e-9, atol=1e-11
        )


def test_the_loss_is_its_negative_logarithm_per_member() -> None:
    x, labels = torch.randn(10, 4, dtype=torch.float64), torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 2, 3])
    z = normalize(x, dim=1)
    each = set_sincere_loss(x, labels, temperature=0.5, reduction="none", method="exact")
    for anchor in range(9):
        others = [j for j in range(10) if j != anchor]
        members = torch.tensor([[n for n, j in enumerate(others) if labels[j] == labels[anchor]]])
        log_p = set_log_probabilities((z[others] @ z[anchor] / 0.5)[None], members)
        torch.testing.assert_close(-log_p[0] / members.shape[1], each[anchor])


@pytest.mark.parametrize("scale", [1.0, 100.0])
@pytest.mark.parametrize("n_items", [1, 7, 12])
def test_elementary_symmetric_polynomials(n_items: int, scale: float) -> None:
    scores = scale * torch.randn(4, n_items, dtype=torch.float64)
    assert torch.equal(log_elementary_symmetric(scores, 0), torch.zeros(4, dtype=torch.float64))
    for degree in range(1, n_items + 1):
        sets = torch.tensor(list(combinations(range(n_items), degree)))
        expected = scores[:, sets].sum(dim=2).logsumexp(dim=1)
        torch.testing.assert_close(log_elementary_symmetric(scores, degree), expected)


def test_bad_input() -> None:
    scores = torch.zeros(2, 3)
    for degree, error, got in (
        (4, InputValueError, "at most the number of items, 3; got 4"),
        (1.0, InputTypeError, ""),
    ):
        with pytest.raises(error, match=f"^log_elementary_symmetric: degree must be .*{got}"):
            log_elementary_symmetric(scores, degree)
