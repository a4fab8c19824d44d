"""The branch of the losses for accelerators, without one: no step waits for the device, and results agree.

Two ways. On the CPU, with that branch forced and under a guard that rejects every reading of a value, forward and
backward run for real. On fake CUDA tensors, which have a device, a type and a shape but no values, forward and the
gradient functions of the kernels run (autograd's own engine needs a driver).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode

from sincere import MemoryQueue, SINCERELoss, sincere_loss
from sincere.loss_catalog import LOSSES
from sincere.losses.inputs import check_inputs
from sincere.losses.kernels.row_blocks import row_block_losses
from sincere.losses.pairs import contrast_batch
from sincere.losses.queue import queued_loss
from sincere.losses.targeted import targeted_loss
from sincere.losses.targets import uniform_targets
from tests.losses.problems import KERNELS, PROBLEMS, Problem, loss_of
from tests.losses.process_cases import Case, batch, start
from tests.no_synchronisation import SynchronisationError, no_synchronisation

# All but `targeted`, whose module matches targets to class means on the CPU; its function is tested below.
every_loss = pytest.mark.parametrize("name", [name for name, loss in LOSSES.items() if not loss.needs_classes])
kernels = pytest.mark.parametrize("kernel", KERNELS)


@pytest.fixture(autouse=True)
def described_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a driver would say about the memory of a GPU, from which the size of blocks follows."""
    properties = SimpleNamespace(total_memory=16 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)


def method(name: str) -> dict[str, str]:
    """Return the options of a loss over sets: its exact form reads one number back, as documented."""
    return {"method": "auto"} if LOSSES[name].over_sets else {}


def value_and_gradients(call: Callable[..., Tensor], problem: Problem, **options: Any) -> list[Tensor]:
    leaves = problem.leaves()
    loss = call(leaves, **options)
    return [loss.detach(), *torch.autograd.grad(loss.sum(), leaves.differentiable, allow_unused=True)]


def assert_same_without_reading(
    call: Callable[..., Tensor], problem: Problem, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> None:
    expected = value_and_gradients(call, problem, **options)
    with no_synchronisation(monkeypatch):
        found = value_and_gradients(call, problem, **options)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


@every_loss
@kernels
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_no_loss_reads_values_back(name: str, kernel: str, reduction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call = lambda problem, **options: loss_of(name, problem, **method(name), **options)  # noqa: E731
    assert_same_without_reading(call, PROBLEMS["views"], monkeypatch, kernel=kernel, reduction=reduction)


@kernels
@pytest.mark.parametrize("problem", [name for name in PROBLEMS if PROBLEMS[name].keys is not None])
def test_nor_with_keys(problem: str, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call = lambda problem, **options: loss_of("sincere", problem, **options)  # noqa: E731
    assert_same_without_reading(call, PROBLEMS[problem], monkeypatch, kernel=kernel)


@kernels
@pytest.mark.parametrize(
    "options", [{}, {"soft": True}, {"label_similarity": "tanimoto"}], ids=["sets", "soft", "tanimoto"]
)
def test_nor_with_label_sets(options: dict[str, Any], kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(13, 4, generator=generator) < 0.4).double()
    labels[3] = -100
    if options.get("soft"):
        labels[labels > 0] = 0.2
    problem = Problem(torch.randn(13, 2, 5, generator=generator, dtype=torch.float64), labels)
    call = lambda problem, **more: sincere_loss(  # noqa: E731
        problem.embeddings, problem.labels, temperature=problem.temperature, **options, **more
    )
    assert_same_without_reading(call, problem, monkeypatch, kernel=kernel)


@kernels
def test_nor_with_weights_and_ignored_rows(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = PROBLEMS["views"]
    labels = problem.labels.clone()
    labels[2] = -100
    problem = Problem(problem.embeddings, labels)
    weights = torch.rand(len(labels), generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.5
    call = lambda problem, **more: sincere_loss(  # noqa: E731
        problem.embeddings, problem.labels, temperature=problem.temperature, key_weights=weights, **more
    )
    assert_same_without_reading(call, problem, monkeypatch, kernel=kernel)


@kernels
def test_nor_with_targets(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = PROBLEMS["views"]
    targets = uniform_targets(10, problem.embeddings.shape[-1])
    call = lambda problem, **more: targeted_loss(  # noqa: E731
        problem.embeddings, problem.labels, temperature=problem.temperature, targets=targets, draw=3, **more
    )
    assert_same_without_reading(call, problem, monkeypatch, kernel=kernel)


def test_nor_with_a_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    results = []
    for guarded in (False, True):
        generator.manual_seed(0)
        queue, criterion = MemoryQueue(30, 5), SINCERELoss(reduction="sum")
        gradients = []
        for _ in range(4):  # the queue is full after the third
            z = torch.randn(6, 2, 5, generator=generator).requires_grad_()
            labels = torch.randint(-1, 3, (6,), generator=generator)

            def step(z: Tensor = z, labels: Tensor = labels) -> Tensor:
                queued_loss(criterion, queue, z, labels).backward()  # noqa: B023
                queue.enqueue(z, labels)  # noqa: B023
                assert z.grad is not None
                return z.grad

            if guarded:
                with no_synchronisation(monkeypatch):
                    gradients.append(step())
            else:
                gradients.append(step())
        results.append(torch.stack(gradients))
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.sum().item(),
        lambda x: bool((x > 0).any()),
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: x.tolist(),
        lambda x: torch.unique(x),
        lambda x: torch.arange(3).repeat_interleave(x.long().clamp(0, 2)[:3]),
        lambda x: int(x.argmax()),
        lambda x: x.cpu(),
        lambda x: x.index_put_((x > 0,), x[:2]),
    ],
)
def test_the_guard_catches_a_synchronisation(read: Callable[[Tensor], Any]) -> None:
    with pytest.raises(SynchronisationError), no_synchronisation():
        read(torch.linspace(-1.0, 1.0, 4))


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_guard_catches_one_put_into_a_loss(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = PROBLEMS["rows"]
    monkeypatch.setattr("sincere.losses.compute.check_inputs", reads_first)
    with pytest.raises(SynchronisationError), no_synchronisation(monkeypatch):
        loss_of("sincere", problem, kernel=kernel)


def reads_first(caller: str, formula: Any, embeddings: Tensor, labels: Tensor, *rest: Any, **options: Any) -> Any:
    assert int(labels.max()) >= -1
    return check_inputs(caller, formula, embeddings, labels, *rest, **options)


@every_loss
@kernels
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_forward_on_fake_cuda_tensors(name: str, kernel: str, reduction: str) -> None:
    with FakeTensorMode(), no_synchronisation():
        problem = Problem(torch.empty(40, 2, 8, device="cuda"), torch.empty(40, dtype=torch.long, device="cuda"))
        loss = loss_of(name, problem, kernel=kernel, reduction=reduction, **method(name))
    assert loss.device.type == "cuda"
    assert loss.dtype == torch.float32
    assert loss.shape == ((40, 2) if reduction == "none" else ())


@kernels
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_forward_on_fake_cuda_tensors_of_other_types(dtype: torch.dtype, kernel: str) -> None:
    with FakeTensorMode(), no_synchronisation():
        keys = torch.empty(50, 8, device="cuda", dtype=dtype)
        loss = sincere_loss(
            torch.empty(40, 8, device="cuda", dtype=dtype),
            torch.empty(40, dtype=torch.int32, device="cuda"),
            keys=keys,
            key_labels=torch.empty(50, dtype=torch.int16, device="cuda"),
            anchor_index=torch.empty(40, dtype=torch.long, device="cuda"),
            key_weights=torch.empty(50, device="cuda"),
            temperature=torch.empty((), device="cuda"),
            kernel=kernel,
        )
    assert loss.device.type == "cuda"
    assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


@pytest.mark.parametrize("name", [name for name, loss in LOSSES.items() if loss.is_plain])
def test_gradient_functions_on_fake_cuda_tensors(name: str) -> None:
    formula = LOSSES[name].formula()
    assert formula is not None
    with FakeTensorMode(), no_synchronisation():
        z = torch.empty(40, 8, device="cuda")
        labels = torch.empty(40, dtype=torch.long, device="cuda")
        contrast = contrast_batch(formula, labels, n_views=1, dtype=z.dtype)
        weights = contrast.weights("mean")
        result = row_block_losses(z, None, torch.empty((), device="cuda"), contrast, weights, rows_per_block=16)
    for tensor, shape in ((result.losses, (40,)), (result.anchor_gradient, (40, 8)), (result.similarity_gradient, ())):
        assert tensor is not None
        assert (tensor.device.type, tensor.shape) == ("cuda", shape)


def check_processes_without_reading(rank: int, n_processes: int) -> None:
    """A step of each exchange, and of a queue, in a process whose values cannot be read."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for loss, exchange in product(("sincere", "supcon", "k-positives"), ("gather", "ring")):
            if exchange == "ring" and not LOSSES[loss].is_plain:
                continue
            case = Case(loss, exchange, even=False, unlabelled=True)
            embeddings, labels = batch(case)
            own = case.own(rank, n_processes)
            whole, part = (x.clone().requires_grad_() for x in (embeddings, embeddings[own]))
            options = {"draw": 3} if loss == "k-positives" else {}
            make = LOSSES[loss].load()
            make(0.2, **options)(whole, labels).backward()
            with no_synchronisation(monkeypatch):
                make(0.2, group="world", exchange=exchange, **options)(part, labels[own]).backward()
            torch.testing.assert_close(part.grad / n_processes, whole.grad[own])
        queue = MemoryQueue(2 * len(embeddings), embeddings.shape[-1], group="world")
        with no_synchronisation(monkeypatch):
            for _ in range(3):
                part = embeddings[own].float().requires_grad_()
                queued_loss(SINCERELoss(reduction="sum"), queue, part, labels[own]).backward()
                queue.enqueue(part, labels[own])


def test_nor_across_processes(tmp_path: Path) -> None:
    start(2, tmp_path, check_processes_without_reading)
