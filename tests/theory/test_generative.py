"""The generative models draw what they say, and Propositions 1 and 2 hold against brute force."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import Categorical, Distribution, Independent, Laplace, MultivariateNormal, Normal

from sincere.errors import InputTypeError, InputValueError
from sincere.theory.generative import GenerativeModel

float64 = {"dtype": torch.float64}
PAIRS: dict[str, tuple[Distribution, Distribution]] = {
    "gaussians": (Normal(torch.tensor(1.5, **float64), 1.0), Normal(torch.tensor(0.0, **float64), 2.0)),
    "plane": (
        MultivariateNormal(torch.tensor([1.0, -1.0], **float64), torch.eye(2, **float64)),
        MultivariateNormal(torch.zeros(2, **float64), 2 * torch.eye(2, **float64)),
    ),
    "categorical": (
        Categorical(torch.tensor([0.7, 0.2, 0.1], **float64)),
        Categorical(torch.tensor([0.1, 0.4, 0.5], **float64)),
    ),
    "laplace against gaussian": (
        Laplace(torch.tensor(1.0, **float64), 1.0),
        Normal(torch.tensor(0.0, **float64), 3.0),
    ),
}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize(("n_targets", "n_noise"), [(1, 1), (1, 5), (2, 3), (3, 1), (3, 3), (4, 2)])
def test_propositions_1_and_2_against_enumeration(pair: str, n_targets: int, n_noise: int) -> None:
    """The density-ratio softmax is the posterior from the joint over every P and S. T = 1 is Proposition 1."""
    model = GenerativeModel(*PAIRS[pair], n_targets=n_targets, n_noise=n_noise)
    draw = model.sample(20)
    posterior = model.posterior(draw.items, draw.partners)
    torch.testing.assert_close(posterior, model.enumerated_posterior(draw.items, draw.partners))
    torch.testing.assert_close(posterior.sum(dim=1), torch.ones(20, **float64))
    assert (posterior.gather(1, draw.partners) == 0).all()


@pytest.mark.parametrize("n_targets", [1, 3])
def test_posterior_is_calibrated(n_targets: int) -> None:
    """Over many draws, S falls on an index as often as the posterior says."""
    model = GenerativeModel(*PAIRS["gaussians"], n_targets=n_targets, n_noise=4)
    draw = model.sample(20_000)
    probability = model.posterior(draw.items, draw.partners).flatten()
    hit = torch.zeros(20_000, model.n_items).scatter_(1, draw.selected[:, None], 1.0).flatten()
    for low in (0.0, 0.2, 0.4, 0.6, 0.8):
        inside = (probability > low) & (probability <= low + 0.2)
        expected = probability[inside].mean()
        assert abs(hit[inside].mean() - expected) < 4 * (expected * (1 - expected) / inside.sum()).sqrt()


def test_draws_follow_the_model() -> None:
    model = GenerativeModel(Normal(10.0, 0.1), Normal(-10.0, 0.1), n_targets=3, n_noise=2)
    draw = model.sample(3000)
    is_target = torch.zeros(3000, 5, dtype=torch.bool).scatter_(1, draw.partners, True)
    is_target.scatter_(1, draw.selected[:, None], True)
    assert torch.equal(draw.items > 0, is_target), "targets stand at P and S, noise elsewhere"
    assert (is_target.sum(dim=1) == 3).all(), "S is not in P"
    share = torch.bincount(draw.selected, minlength=5) / 3000
    torch.testing.assert_close(share, torch.full((5,), 0.2), atol=0.03, rtol=0)


def test_enumeration_neither_underflows_nor_minds_the_order_of_partners() -> None:
    target, noise = (Independent(Normal(torch.full((64,), mean), 1.0), 1) for mean in (0.2, 0.0))
    model = GenerativeModel(target, noise, n_targets=3, n_noise=3)
    draw = model.sample(5)
    expected = model.posterior(draw.items, draw.partners)
    torch.testing.assert_close(model.enumerated_posterior(draw.items, draw.partners.flip(1)), expected)


def test_event_dimensions() -> None:
    target = Independent(Normal(torch.zeros(2, 3), 1.0), 2)
    draw = GenerativeModel(target, target, n_targets=2, n_noise=4).sample(7)
    assert draw.items.shape == (7, 6, 2, 3)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"noise": PAIRS["plane"][1]},
            InputValueError,
            "GenerativeModel: noise must have the event shape of target, (); got (2,)",
        ),
        (
            {"target": Normal(torch.zeros(3), 1.0)},
            InputValueError,
            "GenerativeModel: target must be one distribution, without batch shape; got (3,). "
            "Wrap it in torch.distributions.Independent",
        ),
        (
            {"target": 1.0},
            InputTypeError,
            "GenerativeModel: target must be a torch.distributions.Distribution; got float",
        ),
        ({"n_targets": 0}, InputValueError, "GenerativeModel: n_targets must be an integer of at least 1; got 0"),
        ({"n_noise": 0}, InputValueError, "GenerativeModel: n_noise must be an integer of at least 1; got 0"),
        ({"n_noise": 2.0}, InputTypeError, "GenerativeModel: n_noise must be an integer of at least 1; got float"),
    ],
)
def test_bad_input(arguments: dict[str, object], error: type[Exception], message: str) -> None:
    good = {"target": Normal(0.0, 1.0), "noise": Normal(1.0, 1.0), "n_targets": 2, "n_noise": 3}
    with pytest.raises(error) as caught:
        GenerativeModel(**{**good, **arguments})
    assert str(caught.value) == message
