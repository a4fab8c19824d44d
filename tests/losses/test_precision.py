"""Low precision, autocast and torch.compile: as right as the input's type allows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from sincere import SINCERELoss, sincere_loss
from sincere.loss_catalog import LOSSES
from tests.losses.problems import KERNELS, PAIRWISE, PROBLEMS, SUPERVISED, Problem, loss_of, oracle_loss

SLOW = pytest.mark.slow
kernels = pytest.mark.parametrize("kernel", KERNELS)


@kernels
@pytest.mark.parametrize("loss", SUPERVISED)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("case", ["few views", "keys", "large class"])
def test_error_is_at_most_twice_that_of_rounding_the_input(
    loss: str, kernel: str, dtype: torch.dtype, case: str
) -> None:
    """The float64 oracle on rounded embeddings makes an error no implementation can avoid; ours is of that size."""
    exact = PROBLEMS[case]
    rounded = exact.to(dtype)
    unavoidable = (oracle_loss(loss, rounded.to(torch.float64)) - oracle_loss(loss, exact)).abs()
    ours = (loss_of(loss, rounded, kernel=kernel) - oracle_loss(loss, exact)).abs()
    assert ours <= 2 * unavoidable + 1e-5


@kernels
@pytest.mark.parametrize("loss", PAIRWISE)
@pytest.mark.parametrize("temperature", [0.1, 0.03, 0.02, 0.01, 0.001])
def test_small_temperatures_in_float32(loss: str, kernel: str, temperature: float) -> None:
    """Values and gradients stay right on both sides of the limit of the symmetric tiles, 1/tau = 39."""
    exact = Problem(torch.randn(60, 16, dtype=torch.float64), torch.randint(6, (60,)), temperature=temperature)
    expected_problem, problem = exact.leaves(), exact.to(torch.float32).leaves()
    expected = oracle_loss(loss, expected_problem)
    actual = loss_of(loss, problem, kernel=kernel)
    torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-5 / temperature * 0.1)
    (expected_gradient,) = torch.autograd.grad(expected, expected_problem.embeddings)
    (gradient,) = torch.autograd.grad(actual, problem.embeddings)
    error = (gradient.double() - expected_gradient).norm() / expected_gradient.norm()
    assert error < 1e-6 / temperature + 1e-5


@pytest.mark.parametrize("loss", PAIRWISE)
@pytest.mark.parametrize("temperature", [0.1, 0.03])
def test_tight_classes_in_float32(loss: str, temperature: float) -> None:
    """Attraction and repulsion within a class nearly cancel: the tiled gradient is as good as the dense one."""
    labels = torch.arange(300) % 10
    centres = nn.functional.normalize(torch.randn(10, 16, dtype=torch.float64), dim=1)
    exact = Problem(centres[labels] + 1e-3 * torch.randn(300, 16, dtype=torch.float64), labels, temperature=temperature)
    reference = exact.leaves()
    (expected,) = torch.autograd.grad(loss_of(loss, reference, kernel="dense"), reference.embeddings)
    errors = {}
    for kernel in KERNELS:
        problem = exact.to(torch.float32).leaves()
        (gradient,) = torch.autograd.grad(loss_of(loss, problem, kernel=kernel), problem.embeddings)
        errors[kernel] = (gradient.double() - expected).norm() / expected.norm()
    assert errors["tiled"] <= 2 * errors["dense"] + 1e-5


@kernels
@pytest.mark.parametrize("norm", [1.0, 10.0, 100.0])
def test_unnormalised_input(kernel: str, norm: float) -> None:
    exact = Problem(torch.randn(30, 8, dtype=torch.float64), torch.randint(4, (30,)))
    scaled = Problem(nn.functional.normalize(exact.embeddings, dim=1) * norm, exact.labels)
    expected = oracle_loss("sincere", scaled, normalize=False)
    actual = loss_of("sincere", scaled.to(torch.float32), kernel=kernel, normalize=False)
    torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=1e-5)


@kernels
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_autocast_does_not_reach_the_statistics(kernel: str, dtype: torch.dtype, reduction: str) -> None:
    problem = Problem(torch.randn(40, 8), torch.randint(4, (40,)))
    outside, inside = problem.leaves(), problem.leaves()
    expected = loss_of("sincere", outside, kernel=kernel, reduction=reduction)
    with torch.autocast("cpu", dtype=dtype):
        actual = loss_of("sincere", inside, kernel=kernel, reduction=reduction)
    assert actual.dtype == torch.float32
    assert torch.equal(actual, expected)
    expected.sum().backward()
    actual.sum().backward()
    assert torch.equal(inside.embeddings.grad, outside.embeddings.grad)


def test_autocast_step_of_a_model() -> None:
    """As in a training loop: a layer runs in bfloat16 and hands its output to the loss."""
    layer, images, labels = nn.Linear(10, 8), torch.randn(300, 10), torch.randint(5, (300,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        embeddings = layer(images)
        loss = sincere_loss(embeddings, labels)
    loss.backward()
    assert embeddings.dtype == torch.bfloat16
    assert loss.dtype == torch.float32
    full = sincere_loss(layer(images), labels)
    assert abs(loss - full) < 0.05
    assert layer.weight.grad.isfinite().all()


@pytest.mark.slow
@kernels
@pytest.mark.parametrize("loss", ["sincere", *(pytest.param(name, marks=SLOW) for name in LOSSES if name != "sincere")])
def test_compiled_step_gives_the_same_gradients(loss: str, kernel: str) -> None:
    """Graph breaks are allowed; `aot_eager` traces forward and backward without needing a C++ compiler."""
    torch.compiler.reset()
    layer, images = nn.Linear(10, 8).double(), torch.randn(12, 2, 10, dtype=torch.float64)
    labels = torch.randint(4, (12,))

    def step(images: Tensor) -> Tensor:
        return loss_of(loss, Problem(layer(images), labels), kernel=kernel)

    expected = torch.autograd.grad(step(images), layer.weight)
    actual = torch.autograd.grad(torch.compile(step, backend="aot_eager")(images), layer.weight)
    torch.testing.assert_close(actual, expected)


def test_learned_temperature() -> None:
    temperature = nn.Parameter(torch.tensor([0.5]))
    criterion = SINCERELoss(temperature)
    assert list(criterion.parameters()) == [temperature]
    embeddings, labels = torch.eye(4).repeat_interleave(3, dim=0), torch.arange(12) // 3
    optimiser = torch.optim.SGD(criterion.parameters(), lr=0.05)
    before = criterion(embeddings, labels)
    before.backward()
    optimiser.step()
    assert criterion(embeddings, labels) < before, "perfect classes: a smaller temperature lowers the loss"
