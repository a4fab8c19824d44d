"""Parameter groups and learning rates of the optimizers; the updates of Muon are orthogonal."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sincere.errors import InputValueError
from sincere.training.optimizers import Muon, OptimizerSettings, make_optimizer, orthogonalized


@pytest.mark.parametrize("shape", [(8, 8), (5, 40), (40, 5), (16, 27)])
def test_orthogonalized_keeps_singular_vectors_and_equalises_singular_values(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape)
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    result = orthogonalized(matrix)
    singular_values = torch.linalg.svdvals(result)
    assert singular_values.min() > 0.6
    assert singular_values.max() < 1.3
    # The exact result is u v'; the iteration is inexact in the singular values, not in the singular vectors.
    assert float((result * (u @ v)).sum() / (result.norm() * (u @ v).norm())) > 0.97


def test_orthogonalized_of_zero_is_zero() -> None:
    assert torch.equal(orthogonalized(torch.zeros(4, 6)), torch.zeros(4, 6))


def test_a_first_step_of_muon_by_hand() -> None:
    torch.manual_seed(0)
    weight, bias = nn.Parameter(torch.randn(6, 2, 3, 3)), nn.Parameter(torch.randn(6))
    before = weight.detach().clone(), bias.detach().clone()
    weight.grad, bias.grad = torch.randn_like(weight), torch.randn_like(bias)
    Muon([weight, bias], lr=0.1, momentum=0.9, weight_decay=0.5).step()
    expected = before[0] * 0.95 - 0.1 * orthogonalized(1.9 * weight.grad.flatten(1)).view_as(weight)
    torch.testing.assert_close(weight.detach(), expected)
    torch.testing.assert_close(bias.detach(), before[1] * 0.95 - 0.1 * 1.9 * bias.grad)


def test_steps_of_muon_on_a_tall_matrix_by_hand() -> None:
    """Two steps, so that momentum takes part, on a matrix with more rows than columns, whose update is scaled."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(12, 3))
    expected, momentum = weight.detach().clone(), torch.zeros(12, 3)
    optimizer = Muon([weight], lr=0.1, momentum=0.9)
    for _ in range(2):
        weight.grad = torch.randn(12, 3)
        optimizer.step()
        momentum = 0.9 * momentum + weight.grad
        expected = expected - 0.1 * 2 * orthogonalized(weight.grad + 0.9 * momentum)  # sqrt(12 / 3) = 2
    torch.testing.assert_close(weight.detach(), expected)


def test_tokens_are_optimised_as_vectors() -> None:
    model = nn.Module()
    model.position = nn.Parameter(torch.zeros(1, 17, 8))
    model.map = nn.Linear(8, 8, bias=False)
    matrices, vectors = make_optimizer(model, OptimizerSettings("muon")).param_groups
    assert [p.shape for p in matrices["params"]] == [(8, 8)]
    assert [p.shape for p in vectors["params"]] == [(1, 17, 8)]


@pytest.mark.parametrize("decayed", [True, False])
def test_weight_decay_of_norms_and_biases_is_optional(decayed: bool) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    optimizer = make_optimizer(model, OptimizerSettings(weight_decay=0.25, decay_norms_and_biases=decayed))
    matrices, vectors = optimizer.param_groups
    assert [p.ndim for p in matrices["params"]] == [4]
    assert {p.ndim for p in vectors["params"]} == {1}
    assert matrices["weight_decay"] == 0.25
    assert vectors["weight_decay"] == (0.25 if decayed else 0.0)
    assert matrices["peak"] == matrices["lr"] == 0.5


def test_norms_and_biases_under_muon_have_their_own_rate_and_no_decay() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    matrices, vectors = make_optimizer(model, OptimizerSettings("muon", 0.06, weight_decay=0.17)).param_groups
    assert (matrices["peak"], matrices["weight_decay"]) == (0.06, 0.17)
    assert (vectors["peak"], vectors["weight_decay"]) == (0.1, 0.0)


def test_unknown_optimizer() -> None:
    with pytest.raises(
        InputValueError, match=r"optimizer must be one of 'sgd', 'muon', 'adamw'; got 'muo'. Did you mean 'muon'"
    ):
        make_optimizer(nn.Linear(2, 2), OptimizerSettings(name="muo"))


@pytest.mark.parametrize("name", ["sgd", "muon", "adamw"])
def test_the_encoder_has_its_own_learning_rate(name: str) -> None:
    model = nn.ModuleDict({"encoder": nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3)), "head": nn.Linear(3, 2)})
    optimizer = make_optimizer(model, OptimizerSettings(name=name, learning_rate=0.2, encoder_lr=0.02))
    peaks = {id(p): group["peak"] for group in optimizer.param_groups for p in group["params"]}
    assert peaks.keys() == {id(p) for p in model.parameters()}
    matrix, vector, own = (peaks[id(p)] for p in (model["head"].weight, model["head"].bias, model["encoder"][0].weight))
    assert own == pytest.approx(0.1 * matrix)
    assert peaks[id(model["encoder"][1].bias)] == pytest.approx(0.1 * vector)


def test_a_frozen_encoder_is_not_optimised() -> None:
    model = nn.ModuleDict({"encoder": nn.Linear(3, 3).requires_grad_(False), "head": nn.Linear(3, 2)})
    groups = make_optimizer(model, OptimizerSettings(name="adamw", learning_rate=0.1, weight_decay=0.3)).param_groups
    assert sum(len(group["params"]) for group in groups) == 2
