"""Micro-batches give the loss and the gradients of the whole batch, in anyone's loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sincere import cached_backward, sincere_loss
from sincere.errors import InputTypeError, InputValueError
from tests.losses.process_cases import start

N = 24
LABELS = torch.arange(N) % 5


def network(*, dropout: float = 0.0, dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(0)
    layers = (nn.Linear(6, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(dropout), nn.Linear(32, 8))
    return nn.Sequential(*layers).to(dtype)


def inputs(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(N, 6, generator=torch.Generator().manual_seed(1), dtype=dtype)


def loss(embeddings: Tensor) -> Tensor:
    return sincere_loss(embeddings, LABELS)


def gradients(model: nn.Module) -> list[Tensor]:
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("micro_batch", [1, 5, 8, 24, 100])
def test_gradients_are_those_of_the_whole_batch(micro_batch: int) -> None:
    whole, cached = network(), network()
    expected = loss(whole(inputs()))
    expected.backward()
    value = cached_backward(cached, inputs(), loss, micro_batch=micro_batch)
    assert not value.requires_grad
    torch.testing.assert_close(value, expected.detach(), atol=1e-12, rtol=1e-12)
    for own, other in zip(gradients(cached), gradients(whole), strict=True):
        assert other.abs().max() > 1e-4
        torch.testing.assert_close(own, other, atol=1e-12, rtol=1e-12)


def test_gradients_are_added() -> None:
    model = network()
    cached_backward(model, inputs(), loss, micro_batch=5)
    once = [gradient.clone() for gradient in gradients(model)]
    cached_backward(model, inputs(), loss, micro_batch=5)
    for own, first in zip(gradients(model), once, strict=True):
        torch.testing.assert_close(own, 2 * first)


def test_a_graph_of_one_micro_batch_at_a_time() -> None:
    sizes: list[int] = []
    model = network()
    model.register_forward_hook(lambda module, given, output: sizes.append(len(output) * output.requires_grad))
    cached_backward(model, inputs(), loss, micro_batch=10)
    assert sizes == [0, 0, 0, 10, 10, 4]


def test_dropout_is_the_same_in_both_passes() -> None:
    """A loss that draws random numbers of its own does not disturb it."""
    model = network(dropout=0.5)
    passes: list[Tensor] = []
    model[3].register_forward_hook(lambda module, given, output: passes.append(output.detach()))
    torch.manual_seed(3)
    cached_backward(model, inputs(), lambda z: loss(z) + 0 * torch.rand(7).sum(), micro_batch=10)
    assert all(torch.equal(first, second) for first, second in zip(passes[:3], passes[3:], strict=True))
    assert not torch.equal(passes[0], passes[1])
    after = torch.rand(3)
    torch.manual_seed(3)
    with torch.no_grad():
        for piece in inputs().split(10):
            model(piece)
    torch.rand(7)
    assert torch.equal(torch.rand(3), after)  # the generator has advanced once


def test_inputs_by_name() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, *, first: Tensor, second: Tensor) -> Tensor:
            return self.inner(first + second)

    whole, cached = network(), Sum()
    loss(whole(2 * inputs())).backward()
    cached_backward(cached, {"first": inputs(), "second": inputs()}, loss, micro_batch=7)
    for own, other in zip(gradients(cached), gradients(whole), strict=True):
        torch.testing.assert_close(own, other, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_with_a_scaler(dtype: torch.dtype) -> None:
    """The gradients of the usual loop with autocast, also where unscaled ones would underflow."""
    whole, cached = network(dtype=torch.float32), network(dtype=torch.float32)
    data = inputs(torch.float32)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)

    def tiny(embeddings: Tensor) -> Tensor:
        return 1e-8 * loss(embeddings)

    with torch.autocast("cpu", dtype=dtype):
        expected = tiny(whole(data).float())
    scaler.scale(expected).backward()
    with torch.autocast("cpu", dtype=dtype):
        value = cached_backward(cached, data, tiny, micro_batch=N, scale=scaler.scale)
        pieced = cached_backward(network(dtype=torch.float32), data, tiny, micro_batch=7, scale=scaler.scale)
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(pieced, expected.detach(), rtol=1e-3, atol=0)
    for own, other in zip(gradients(cached), gradients(whole), strict=True):
        assert other.abs().max() > 1e-6  # scaled
        torch.testing.assert_close(own, other)


def test_running_statistics_count_each_micro_batch_once() -> None:
    def normed() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8, momentum=None), nn.Linear(8, 4)).double()

    once, cached = normed(), normed()
    for piece in inputs().split(8):
        once(piece)
    cached_backward(cached, inputs(), loss, micro_batch=8)
    for name, value in once.state_dict().items():
        torch.testing.assert_close(cached.state_dict()[name], value, msg=name)
    assert once.state_dict()["1.num_batches_tracked"] == 3
    cached.eval()  # running statistics are used, not replaced by those of the micro-batch
    before = cached[1].running_mean.clone()
    value = cached_backward(cached, inputs(), loss, micro_batch=8)
    torch.testing.assert_close(value, loss(cached(inputs())).detach())
    assert torch.equal(cached[1].running_mean, before)


def check_processes(rank: int, n_processes: int) -> None:
    """Gradients are averaged once; parts may be of different sizes, in different numbers of micro-batches."""
    alone, spread = network(), nn.parallel.DistributedDataParallel(network())
    loss(alone(inputs())).backward()
    own = slice(0, 5) if rank == 0 else slice(5, N)
    synced: list[bool] = []
    spread.module.register_forward_hook(
        lambda module, given, output: synced.append(spread.require_backward_grad_sync and output.requires_grad)
    )
    value = cached_backward(spread, inputs()[own], lambda z: sincere_loss(z, LABELS[own], group="world"), micro_batch=4)
    torch.testing.assert_close(value, loss(alone(inputs())).detach())
    assert synced[-1]
    assert sum(synced) == 1
    for own_gradient, other in zip(gradients(spread), gradients(alone), strict=True):
        torch.testing.assert_close(own_gradient, other, atol=1e-12, rtol=1e-12)


def test_processes_average_once(tmp_path: Path) -> None:
    start(2, tmp_path, check_processes)


class WithTemperature(nn.Module):
    """A network that holds the temperature of its loss, which its own forward does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.network, self.temperature = network(), nn.Parameter(torch.tensor(0.1, dtype=torch.float64))

    def forward(self, rows: Tensor) -> Tensor:
        return self.network(rows)


def check_a_temperature_of_the_model(rank: int, n_processes: int) -> None:
    alone, spread = WithTemperature(), nn.parallel.DistributedDataParallel(WithTemperature())
    sincere_loss(alone(inputs()), LABELS, temperature=alone.temperature).backward()
    own = slice(0, 5) if rank == 0 else slice(5, N)
    options = {"temperature": spread.module.temperature, "group": "world"}
    for _ in range(2):
        spread.zero_grad()
        cached_backward(spread, inputs()[own], lambda z: sincere_loss(z, LABELS[own], **options), micro_batch=4)
        for own_gradient, other in zip(gradients(spread), gradients(alone), strict=True):
            torch.testing.assert_close(own_gradient, other, atol=1e-12, rtol=1e-12)


def test_processes_average_the_gradient_of_a_temperature(tmp_path: Path) -> None:
    start(2, tmp_path, check_a_temperature_of_the_model)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"micro_batch": 0}, InputValueError, "micro_batch must be an integer of at least 1; got 0"),
        ({"inputs": [1, 2]}, InputTypeError, "inputs must be a torch.Tensor, or tensors by name; got list"),
        (
            {"inputs": {"a": torch.zeros(3, 6), "b": torch.zeros(2)}},
            InputValueError,
            "inputs must have the same number of rows, at least 1; got (3, 6), (2,)",
        ),
        ({"inputs": {}}, InputValueError, "inputs must have the same number of rows, at least 1; got none"),
        (
            {"loss": lambda z: z},
            InputValueError,
            "the output of the loss must be a number with a gradient; got shape (24, 8)",
        ),
        (
            {"loss": lambda z: z.detach().sum()},
            InputValueError,
            "the output of the loss must be a number with a gradient; got one without a gradient",
        ),
        (
            {"model": lambda: nn.Flatten(0)},
            InputValueError,
            "the output of the model must have a row for each of 10 inputs; got shape (60,)",
        ),
    ],
)
def test_wrong_arguments(change: dict[str, Any], error: type[Exception], message: str) -> None:
    make: Callable[[], nn.Module] = change.get("model", network)
    arguments = {"inputs": inputs(), "loss": loss, "micro_batch": 10, **change, "model": make()}
    with pytest.raises(error) as caught:
        cached_backward(**arguments)
    assert str(caught.value) == f"cached_backward: {message}"


@pytest.mark.parametrize("scaled", [False, True])
def test_parameters_of_the_loss_get_their_gradient(scaled: bool) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=scaled)
    whole, cached = network(), network()
    learned = [nn.Parameter(torch.tensor(0.1, dtype=torch.float64)) for _ in range(2)]
    scaler.scale(sincere_loss(whole(inputs()), LABELS, temperature=learned[0])).backward()
    loss = lambda embeddings: sincere_loss(embeddings, LABELS, temperature=learned[1])  # noqa: E731
    cached_backward(cached, inputs(), loss, micro_batch=5, scale=scaler.scale if scaled else None)
    assert learned[0].grad is not None
    assert learned[0].grad.abs() > 1e-4
    expected, found = ([*gradients(model), own.grad] for model, own in zip((whole, cached), learned, strict=True))
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other, atol=1e-9, rtol=1e-12)
