"""Micro-batches give the gradient of the whole batch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from sincere.losses.functional import sincere_loss
from sincere.models.embedding import build_model
from sincere.records.model import ModelSpec
from sincere.training.micro_batches import backward_in_micro_batches

N, VIEWS = 32, 2


def network(norm: str = "group", *, dropout: bool = False) -> nn.Module:
    spec = ModelSpec(encoder="small", channels=1, size=8, mean=(0.5,), std=(0.5,), dim=6, norm=norm)
    model = build_model(spec).double()
    if dropout:
        model.head = nn.Sequential(nn.Dropout(0.5), model.head)
    return model.train()


def images() -> Tensor:
    return torch.rand(N * VIEWS, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def loss(rows: Tensor) -> Tensor:
    return sincere_loss(rows.view(N, VIEWS, -1), torch.arange(N) % 5)


def uses_micro_batches(model: nn.Module, n_pieces: int) -> tuple[Tensor, list[Tensor]]:
    fabric = Fabric(accelerator="cpu", devices=1)
    wrapped = fabric.setup(model)
    size = -(-N // n_pieces) * VIEWS

    def pieces() -> Iterator[Tensor]:
        return iter(images().split(size))

    value, _ = backward_in_micro_batches(fabric, wrapped, pieces, loss)
    return value, [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("n_pieces", [1, 2, 7, 16])
def test_the_gradient_is_that_of_the_whole_batch(n_pieces: int) -> None:
    whole = network()
    expected = loss(whole(images()))
    expected.backward()
    value, gradients = uses_micro_batches(network(), n_pieces)
    torch.testing.assert_close(value, expected.detach(), atol=1e-10, rtol=1e-10)
    for gradient, parameter in zip(gradients, whole.parameters(), strict=True):
        assert parameter.grad.abs().max() > 0
        torch.testing.assert_close(gradient, parameter.grad, atol=1e-10, rtol=1e-10)


def test_dropout_is_the_same_in_both_passes() -> None:
    """The value is computed in the first pass, the gradient in the second: a step along it must lower that value."""
    torch.manual_seed(7)
    model = network(dropout=True)
    value, gradients = uses_micro_batches(model, 4)
    step = 1e-6
    with torch.no_grad():
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter -= step * gradient
            parameter.grad = None
    squares = sum(float(gradient.square().sum()) for gradient in gradients)
    torch.manual_seed(7)
    network(dropout=True)  # consumes the random numbers of its initialisation
    after, _ = uses_micro_batches(model, 4)
    assert float(value - after) == pytest.approx(step * squares, rel=1e-2)


def test_running_statistics_count_each_micro_batch_once() -> None:
    once, pieced = network("batch"), network("batch")
    for piece in images().split(16):
        once(piece)
    uses_micro_batches(pieced, 4)
    for name, value in once.state_dict().items():
        if "running" in name:
            torch.testing.assert_close(pieced.state_dict()[name], value)
    assert all(m.momentum == 0.1 for m in pieced.modules() if isinstance(m, nn.BatchNorm2d))


def test_group_norms_replace_all_batch_norms() -> None:
    model = network("group")
    kinds = {type(module) for module in model.modules()}
    assert nn.GroupNorm in kinds
    assert nn.BatchNorm2d not in kinds
    alone, together = model(images()[:1]), model(images())[:1]
    torch.testing.assert_close(alone, together)
