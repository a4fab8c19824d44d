"""The selection model is a distribution where SupCon's terms are not, and training it finds the density ratio."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.distributions import Independent, Normal

from sincere import info_nce_loss, sincere_loss, supcon_loss
from sincere.errors import InputValueError
from sincere.theory.generative import GenerativeModel
from sincere.theory.selection import ideal_loss, ideal_losses, selection_log_probabilities, supcon_log_terms

GAUSSIANS = (Normal(1.0, 1.0), Normal(0.0, 1.0))


@pytest.mark.parametrize("n_partners", [1, 2, 5])
def test_sincere_sums_to_one_and_supcon_to_less(n_partners: int) -> None:
    scores = torch.randn(50, 10, dtype=torch.float64)
    partners = torch.rand(50, 10).argsort(dim=1)[:, :n_partners]
    sincere = selection_log_probabilities(scores, partners).exp().sum(dim=1)
    torch.testing.assert_close(sincere, torch.ones_like(sincere))
    supcon = supcon_log_terms(scores, partners).exp().sum(dim=1)
    if n_partners == 1:
        torch.testing.assert_close(supcon, torch.ones_like(supcon))
    else:
        assert (supcon < 0.999).all()


def test_one_target_is_infonce() -> None:
    """T = 2 with one partner as the anchor: the selection model is the loss of that anchor in a batch."""
    views = torch.randn(6, 2, 4, dtype=torch.float64)
    z = nn.functional.normalize(views, dim=-1).flatten(0, 1)
    each = info_nce_loss(views, temperature=0.3, reduction="none").flatten()
    for anchor, partner in ((0, 1), (7, 6)):
        scores = (z @ z[anchor] / 0.3)[None]
        log_p = selection_log_probabilities(scores, torch.tensor([[anchor]]))
        torch.testing.assert_close(-log_p[0, partner], each[anchor])


def test_self_supervised_selection_is_the_infonce_formula() -> None:
    """T = 1: the softmax over all items."""
    scores = torch.randn(4, 6)
    expected = scores.log_softmax(dim=1)
    torch.testing.assert_close(selection_log_probabilities(scores, torch.empty(4, 0, dtype=torch.int64)), expected)


@pytest.mark.parametrize(
    ("loss", "terms"), [(sincere_loss, selection_log_probabilities), (supcon_loss, supcon_log_terms)]
)
def test_terms_are_those_of_the_losses(loss: object, terms: object) -> None:
    """Averaged over the choice of S among the partners, the terms give each anchor's loss in a batch."""
    x, labels = torch.randn(9, 4, dtype=torch.float64), torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 2])
    z = nn.functional.normalize(x, dim=1)
    each = loss(x, labels, temperature=0.5, reduction="none")
    members = [0, 1, 2, 3]
    for anchor in members:
        scores = (z @ z[anchor] / 0.5)[None]
        pairs = []
        for chosen in set(members) - {anchor}:
            partners = [anchor, *sorted(set(members) - {anchor, chosen})]
            pairs.append(-terms(scores, torch.tensor([partners]))[0, chosen])
        torch.testing.assert_close(torch.stack(pairs).mean(), each[anchor])


def test_supcon_needs_a_partner() -> None:
    with pytest.raises(InputValueError, match="partners must not be empty"):
        supcon_log_terms(torch.zeros(1, 3), torch.empty(1, 0, dtype=torch.int64))


def test_a_score_of_the_wrong_shape_is_named() -> None:
    model = GenerativeModel(*GAUSSIANS, n_targets=2, n_noise=3)
    with pytest.raises(InputValueError) as caught:
        ideal_loss(model, lambda x: x[..., None], n_draws=10)
    expected = "ideal_losses: score must return one number per item, shape (10, 5); got (10, 5, 1)"
    assert str(caught.value) == expected


def test_standard_error_is_that_of_the_estimate() -> None:
    model = GenerativeModel(*GAUSSIANS, n_targets=2, n_noise=5)
    repeats = [ideal_loss(model, model.log_ratio, n_draws=400) for _ in range(100)]
    spread = torch.tensor([r.estimate for r in repeats]).std().item()
    claimed = sum(r.standard_error for r in repeats) / 100
    assert claimed == pytest.approx(spread, rel=0.25)


@pytest.mark.parametrize("wrong", [lambda x: 2 * x, lambda x: 0 * x, lambda x: x - 0.3 * x**2])
def test_no_score_beats_the_log_density_ratio(wrong: object) -> None:
    """Theorem 1, by comparison: the ratio's loss is lowest, and adding a constant changes nothing."""
    model = GenerativeModel(*GAUSSIANS, n_targets=2, n_noise=8)
    best = ideal_loss(model, model.log_ratio, n_draws=50_000)
    other = ideal_loss(model, lambda x: wrong(model.log_ratio(x)), n_draws=50_000)
    error = (best.standard_error**2 + other.standard_error**2) ** 0.5
    assert other.estimate > best.estimate + 3 * error
    torch.manual_seed(1)
    plain = ideal_losses(model, model.log_ratio, 100)
    torch.manual_seed(1)
    shifted = ideal_losses(model, lambda x: model.log_ratio(x) + 5, 100)
    torch.testing.assert_close(shifted, plain, atol=1e-5, rtol=1e-5)


def test_training_finds_the_log_density_ratio_up_to_a_constant() -> None:
    """Theorem 1, by training: a small network on the ideal loss, compared after centring both."""
    target = Independent(Normal(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.7])), 1)
    noise = Independent(Normal(torch.zeros(2), torch.ones(2)), 1)
    model = GenerativeModel(target, noise, n_targets=2, n_noise=15)
    score = nn.Sequential(nn.Linear(2, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1), nn.Flatten(-2))
    optimiser = torch.optim.Adam(score.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=5e-3, total_steps=1200)
    for _ in range(1200):
        optimiser.zero_grad()
        ideal_losses(model, score, 256).mean().backward()
        optimiser.step()
        schedule.step()
    x = torch.cat([target.sample(torch.Size([2000])), noise.sample(torch.Size([2000]))])
    with torch.no_grad():
        learned, true = score(x), model.log_ratio(x)
    learned, true = learned - learned.mean(), true - true.mean()
    error = (learned - true).square().mean().sqrt() / true.std()
    assert error < 0.1
