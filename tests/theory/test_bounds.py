"""The bounds hold on every pair of a grid, say something on at least one, and stand in the right order."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Beta, Categorical, Distribution, Independent, Laplace, MixtureSameFamily, Normal

from sincere.errors import InputValueError
from sincere.theory.bounds import (
    divergence_cap,
    divergence_lower_bound,
    sincere_bound,
    supcon_bound,
    symmetrised_kl,
    tighter_sincere_bound,
)
from sincere.theory.generative import GenerativeModel
from sincere.theory.selection import ideal_loss


def gaussian(dimension: int, separation: float) -> Distribution:
    return Independent(Normal(torch.full((dimension,), separation / math.sqrt(dimension)), torch.ones(dimension)), 1)


PAIRS: dict[str, tuple[Distribution, Distribution]] = {
    **{f"gaussians d={d} separation={s}": (gaussian(d, s), gaussian(d, 0.0)) for d in (1, 8) for s in (0.0, 0.5, 1.5)},
    "wide against narrow": (Normal(0.0, 1.0), Normal(0.0, 2.0)),
    "categorical near": (Categorical(torch.tensor([0.4, 0.6])), Categorical(torch.tensor([0.6, 0.4]))),
    "categorical far": (Categorical(torch.tensor([0.8, 0.1, 0.1])), Categorical(torch.tensor([0.1, 0.1, 0.8]))),
}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("n_noise", [1, 10, 100])
@pytest.mark.parametrize("n_partners", [1, 4])
def test_bounds_hold(pair: str, n_noise: int, n_partners: int) -> None:
    """The density ratio minimises SINCERE's loss, so its loss is the hardest test; SupCon's is at its own score."""
    model = GenerativeModel(*PAIRS[pair], n_targets=n_partners + 1, n_noise=n_noise)
    divergence = symmetrised_kl(*PAIRS[pair])
    assert divergence.standard_error == 0
    for score in (model.log_ratio, lambda x: 0.5 * model.log_ratio(x)):
        sincere = ideal_loss(model, score, n_draws=4000)
        supcon = ideal_loss(model, score, n_draws=4000, loss="supcon")
        slack = 4 * sincere.standard_error + 1e-4
        assert sincere.estimate + slack >= tighter_sincere_bound(divergence.estimate, n_noise)
        slack = 4 * supcon.standard_error + 1e-4
        assert supcon.estimate + slack >= supcon_bound(divergence.estimate, n_noise, n_partners)


def test_bounds_are_not_vacuous() -> None:
    """By how much: at |N| = 100 and J = 1/4 the loss is 4.49, the paper's bound 4.36, the tighter one 4.37."""
    target, noise = gaussian(1, 0.5), gaussian(1, 0.0)
    divergence = symmetrised_kl(target, noise).estimate
    assert divergence == pytest.approx(0.25)
    model = GenerativeModel(target, noise, n_targets=2, n_noise=100)
    loss = ideal_loss(model, model.log_ratio, n_draws=20_000).estimate
    assert loss == pytest.approx(4.49, abs=0.02)
    assert sincere_bound(divergence, 100) == pytest.approx(4.355, abs=0.001)
    assert tighter_sincere_bound(divergence, 100) == pytest.approx(4.3676, abs=0.001)


@pytest.mark.parametrize("n_noise", [1, 2, 10, 1000])
def test_tighter_bound_is_exact_where_the_distributions_are_equal(n_noise: int) -> None:
    same = GenerativeModel(gaussian(3, 1.0), gaussian(3, 1.0), n_targets=3, n_noise=n_noise)
    loss = ideal_loss(same, same.log_ratio, n_draws=10)
    assert tighter_sincere_bound(0.0, n_noise) == pytest.approx(loss.estimate, abs=1e-5)


@given(st.floats(0, 50), st.integers(1, 10**6), st.integers(1, 1000))
def test_order_of_the_bounds(divergence: float, n_noise: int, n_partners: int) -> None:
    paper, tighter = sincere_bound(divergence, n_noise), tighter_sincere_bound(divergence, n_noise)
    supcon = supcon_bound(divergence, n_noise, n_partners)
    assert 0 <= paper <= tighter + 1e-9
    assert supcon >= paper - 1e-9
    assert n_partners > 1 or supcon == pytest.approx(paper)


@given(st.floats(0, 30), st.integers(1, 10**6))
def test_corollary_inverts_the_bound(divergence: float, n_noise: int) -> None:
    """A loss at its bound gives back the divergence; a loss above it gives less; the tighter is never less."""
    bound = tighter_sincere_bound(divergence, n_noise)
    if bound > 0:
        assert divergence_lower_bound(bound, n_noise) == pytest.approx(divergence, abs=1e-6)
        assert divergence_lower_bound(bound + 0.1, n_noise) <= divergence
    loss = bound + 0.05
    assert divergence_lower_bound(loss, n_noise) >= divergence_lower_bound(loss, n_noise, tighter=False) - 1e-9
    assert divergence_lower_bound(loss, n_noise) <= divergence_cap(n_noise)


def test_divergence_without_closed_form() -> None:
    """Against numerical integration, within Monte-Carlo error."""
    mixture = MixtureSameFamily(Categorical(torch.ones(2)), Normal(torch.tensor([-1.0, 2.0]), torch.ones(2)))
    other = Laplace(0.0, 1.5)
    x = torch.linspace(-30, 30, 200_001, dtype=torch.float64)
    log_p, log_q = mixture.log_prob(x).double(), other.log_prob(x).double()
    exact = torch.trapezoid((log_p.exp() - log_q.exp()) * (log_p - log_q), x).item()
    estimate = symmetrised_kl(mixture, other)
    assert 0 < estimate.standard_error < 0.02
    assert abs(estimate.estimate - exact) < 4 * estimate.standard_error


def test_infinite_divergence() -> None:
    """One has mass where the other has none: J is infinite and the bounds on the loss are 0."""
    beta, wide = Beta(torch.tensor(2.0), torch.tensor(2.0)), Laplace(0.0, 1.0)
    assert symmetrised_kl(wide, beta).estimate == math.inf
    assert sincere_bound(math.inf, 10) == tighter_sincere_bound(math.inf, 10) == supcon_bound(math.inf, 10, 3) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: divergence_cap(0), "divergence_cap: n_noise must be an integer of at least 1; got 0"),
        (
            lambda: symmetrised_kl(Normal(0.0, 1.0), gaussian(2, 1.0)),
            "symmetrised_kl: q must have the event shape of p, (); got (2,)",
        ),
        (
            lambda: symmetrised_kl(Normal(torch.zeros(3), 1.0), Normal(0.0, 1.0)),
            "symmetrised_kl: p must be one distribution, without batch shape; got (3,). "
            "Wrap it in torch.distributions.Independent",
        ),
        (
            lambda: symmetrised_kl(Normal(0.0, 1.0), Normal(0.0, 1.0), n_samples=1),
            "symmetrised_kl: n_samples must be an integer of at least 2; got 1",
        ),
        (lambda: sincere_bound(1.0, 0), "sincere_bound: n_noise must be an integer of at least 1; got 0"),
        (lambda: supcon_bound(1.0, 5, 0), "supcon_bound: n_partners must be an integer of at least 1; got 0"),
        (
            lambda: tighter_sincere_bound(-1.0, 5),
            "tighter_sincere_bound: divergence must be a finite number of at least 0; got -1.0",
        ),
        (
            lambda: divergence_lower_bound(math.nan, 5),
            "divergence_lower_bound: loss must be a finite number; got nan",
        ),
        (
            lambda: divergence_lower_bound(1.0, 0),
            "divergence_lower_bound: n_noise must be an integer of at least 1; got 0",
        ),
    ],
)
def test_bad_input(call: object, message: str) -> None:
    with pytest.raises(InputValueError) as caught:
        call()
    assert str(caught.value) == message
