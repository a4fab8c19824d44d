"""Every loss, kernel and way to call it gives the oracle's value and gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sincere.errors import UnsupportedError
from sincere.losses.kernels.tiled import tiled_losses
from tests.losses.problems import CASES, KERNELS, PAIR_LOSSES, PAIRWISE, PLAIN, PROBLEMS, loss_of, oracle_loss

cases = pytest.mark.parametrize(("loss", "case"), CASES)
kernels = pytest.mark.parametrize("kernel", KERNELS)


def test_every_loss_has_an_oracle() -> None:
    assert list(PAIR_LOSSES) == PLAIN


@cases
@kernels
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_value_is_the_oracles(loss: str, case: str, kernel: str, reduction: str) -> None:
    problem = PROBLEMS[case]
    expected = oracle_loss(loss, problem, reduction=reduction)
    actual = loss_of(loss, problem, kernel=kernel, reduction=reduction)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@cases
@kernels
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("normalize", [True, False])
def test_gradient_is_the_oracles(loss: str, case: str, kernel: str, reduction: str, normalize: bool) -> None:
    problem = PROBLEMS[case].leaves()
    upstream = torch.randn(problem.embeddings.shape[:-1] if reduction == "none" else (), dtype=torch.float64)
    expected_loss = oracle_loss(loss, problem, normalize=normalize, reduction=reduction)
    expected = torch.autograd.grad(expected_loss, problem.differentiable, upstream)
    actual_loss = loss_of(loss, problem, kernel=kernel, normalize=normalize, reduction=reduction)
    actual = torch.autograd.grad(actual_loss, problem.differentiable, upstream)
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-9)


@cases
@kernels
def test_gradcheck(loss: str, case: str, kernel: str) -> None:
    problem = PROBLEMS[case].leaves()
    assert torch.autograd.gradcheck(
        lambda *_: loss_of(loss, problem, kernel=kernel), problem.differentiable, atol=1e-5, fast_mode=True
    )


@pytest.mark.parametrize("loss", PAIRWISE)
def test_second_derivative_of_the_dense_kernel(loss: str) -> None:
    problem = PROBLEMS["large class"].leaves()
    assert torch.autograd.gradgradcheck(lambda *_: loss_of(loss, problem, kernel="dense"), problem.differentiable)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_second_derivative_of_the_tiled_kernel_is_refused(reduction: str) -> None:
    problem = PROBLEMS["rows"].leaves()
    loss = loss_of("sincere", problem, kernel="tiled", reduction=reduction).sum()
    (gradient,) = torch.autograd.grad(loss, problem.embeddings, create_graph=True)
    with pytest.raises(UnsupportedError, match='no second derivative; ask for it with kernel="dense"'):
        gradient.square().sum().backward()


@pytest.mark.parametrize("wanted", ["embeddings", "keys", "temperature"])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_each_gradient_alone(wanted: str, reduction: str) -> None:
    """What asks for no gradient gets none, and what does gets the right one."""
    problem = PROBLEMS["keys that hold the anchors"].leaves()
    for x in problem.differentiable:
        x.requires_grad_(x is getattr(problem, wanted))
    expected = torch.autograd.grad(oracle_loss("sincere", problem, reduction=reduction).sum(), problem.differentiable)
    loss_of("sincere", problem, kernel="tiled", reduction=reduction).sum().backward()
    torch.testing.assert_close(getattr(problem, wanted).grad, expected[0])
    others = {"embeddings", "keys", "temperature"} - {wanted}
    assert all(getattr(problem, other).grad is None for other in others)


def test_backward_twice_adds_up() -> None:
    """The kept gradient is scaled by each upstream gradient, never in place."""
    problem = PROBLEMS["rows"].leaves()
    loss = loss_of("sincere", problem, kernel="tiled")
    loss.backward(torch.tensor(2.0, dtype=torch.float64), retain_graph=True)
    once = problem.embeddings.grad.clone()
    loss.backward()
    torch.testing.assert_close(problem.embeddings.grad, once * 1.5)


@pytest.mark.parametrize("loss", PAIRWISE)
def test_without_grad_mode_only_the_value_is_computed(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = []

    def spy(*arguments: Any, **options: Any) -> Any:
        weights.append(arguments[4])  # None: no gradient
        return tiled_losses(*arguments, **options)

    monkeypatch.setattr("sincere.losses.kernels.tiled.tiled_losses", spy)
    problem = PROBLEMS["rows"].leaves()
    with torch.no_grad():
        value = loss_of(loss, problem, kernel="tiled")
    assert not value.requires_grad
    torch.testing.assert_close(value, oracle_loss(loss, problem).detach())
    loss_of(loss, problem, kernel="tiled")
    assert weights[0] is None
    assert weights[1] is not None
