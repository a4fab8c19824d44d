"""Processes that share a batch, and what each of them checks against one process on the whole batch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sincere import SetSINCERELoss, TargetedLoss
from sincere.loss_catalog import LOSSES
from sincere.losses.distributed import ring
from sincere.losses.kernels import select

D, VIEWS, N_IMAGES = 5, 2, 24
EXCHANGES = ("gather", "ring")
REDUCTIONS = ("mean", "sum", "none")


@dataclass(frozen=True)
class Case:
    loss: str
    exchange: str
    even: bool
    unlabelled: bool
    dtype: torch.dtype = torch.float64
    reduction: str = "mean"
    labels: str = "classes"  # or "ignored", "weights", "sets", "probabilities"

    def sizes(self, n_processes: int) -> list[int]:
        if self.even:
            return [N_IMAGES // n_processes] * n_processes
        return [1] * (n_processes - 1) + [N_IMAGES - n_processes + 1]

    def own(self, rank: int, n_processes: int) -> slice:
        """Where the images of a process are in the whole batch."""
        sizes = self.sizes(n_processes)
        return slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))


BOTH = (True, False)
PLAIN = [name for name, loss in LOSSES.items() if loss.is_plain]
CASES = [Case(*values) for values in product(PLAIN, EXCHANGES, BOTH, BOTH, (torch.float64, torch.float32))]
EXACT_CASES = [case for case in CASES if case.dtype == torch.float64]
REDUCED_CASES = [
    Case(loss, exchange, False, True, reduction=reduction)
    for loss, exchange, reduction in product(PLAIN, EXCHANGES, REDUCTIONS[1:])
]
LABEL_CASES = [
    Case(loss, exchange, False, True, reduction=reduction, labels=labels)
    for loss, exchange, reduction, labels in product(
        ("sincere", "supcon", "eps-supinfonce"),
        EXCHANGES,
        ("mean", "none"),
        ("ignored", "weights", "sets", "probabilities"),
    )
]
# The ring has no form of the others.
RELATED_CASES = [
    Case(loss, "gather", False, True, reduction=reduction)
    for loss, reduction in product(
        [name for name, loss in LOSSES.items() if loss.takes_label_sets and name not in PLAIN], ("mean", "none")
    )
]


def run(rank: int, n_processes: int, meeting: str, function: Any) -> None:
    """Join the other processes, run a function with this one's rank, and end this process.

    DDP keeps gloo's threads alive after its process group is destroyed. If one of them needs Python's lock while Python
    shuts down, the process aborts ("terminate called without an active exception"): so it ends without shutting down.
    """
    torch.set_num_threads(1)
    store = dist.FileStore(meeting, n_processes)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=n_processes, timeout=timedelta(seconds=120))
    try:
        function(rank, n_processes)
    finally:
        dist.destroy_process_group()
    os._exit(0)


def start(n_processes: int, folder: Path, function: Any) -> None:
    """Run a function in several processes; raises what one of them raises."""
    torch.multiprocessing.spawn(run, (n_processes, str(folder / "meeting"), function), nprocs=n_processes)


def batch(case: Case) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    images = torch.randn(N_IMAGES, VIEWS, 7, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 4, (N_IMAGES,), generator=generator)
    if case.unlabelled:
        labels[::3] = -1
    if case.labels == "ignored":
        labels[1::4] = -100
    if case.labels in ("sets", "probabilities"):
        labels = (torch.rand(N_IMAGES, 4, generator=generator) < 0.4).double()
        labels[::5] = 0
    if case.labels == "probabilities":
        labels = labels / labels.sum(dim=1, keepdim=True).clamp_min(1)
    return images.to(case.dtype), labels


def upstream(case: Case) -> Tensor:
    """What each anchor's loss is multiplied with where the losses are not reduced."""
    return torch.linspace(-1.0, 2.0, N_IMAGES * VIEWS, dtype=case.dtype).view(N_IMAGES, VIEWS)


def model(dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, D)).to(dtype)
    network.register_parameter("temperature", nn.Parameter(torch.tensor(0.2, dtype=dtype)))
    return network


def criterion(case: Case, temperature: Any, **options: Any) -> Any:
    """Return the loss of a case as a function of embeddings and labels."""
    if case.loss == "k-positives":
        options["draw"] = 11
    module = LOSSES[case.loss].load()(
        temperature, reduction=case.reduction, soft=case.labels == "probabilities", **options
    )
    if not LOSSES[case.loss].needs_labels:
        return lambda embeddings, labels, weights: module(embeddings, key_weights=weights)
    return lambda embeddings, labels, weights: module(embeddings, labels, key_weights=weights)


def weights_of(case: Case) -> Tensor:
    """Weights of the images as keys."""
    return torch.linspace(0.5, 3.0, N_IMAGES, dtype=case.dtype)


def one_process(case: Case) -> tuple[Tensor, list[Tensor]]:
    images, labels = batch(case)
    network = model(case.dtype)
    weights = weights_of(case) if case.labels == "weights" else None
    value = criterion(case, network.temperature)(network(images), labels, weights)
    value.backward(upstream(case) if case.reduction == "none" else None)
    return value.detach(), [parameter.grad for parameter in network.parameters()]


def check_every_case(rank: int, n_processes: int) -> None:
    """As they would run on large batches, too: the tiled kernel for gather, many blocks for the ring."""
    check_cases(rank, n_processes, [*CASES, *REDUCED_CASES, *LABEL_CASES, *RELATED_CASES])
    select._DENSE_PAIRS["cpu"] = 0
    ring.BLOCK_ENTRIES = 100
    check_cases(rank, n_processes, [*EXACT_CASES, *REDUCED_CASES, *LABEL_CASES, *RELATED_CASES])
    check_targets(rank, n_processes)
    check_sets(rank, n_processes)
    check_sums(rank, n_processes)


def check_cases(rank: int, n_processes: int, cases: list[Case]) -> None:
    """Compare value and every parameter's gradient of a small model under DDP."""
    for case in cases:
        expected, gradients = one_process(case)
        images, labels = batch(case)
        own = case.own(rank, n_processes)
        network = model(case.dtype)
        spread = nn.parallel.DistributedDataParallel(network)
        loss = criterion(case, network.temperature, group="world", exchange=case.exchange)
        weights = weights_of(case)[own] if case.labels == "weights" else None
        value = loss(spread(images[own]), labels[own], weights)
        each = case.reduction == "none"
        value.backward(upstream(case)[own] if each else None)
        exact = 1e-10 if case.dtype == torch.float64 else 1e-5
        torch.testing.assert_close(
            value.detach(), expected[own] if each else expected, atol=exact, rtol=exact, msg=str(case)
        )
        # The temperature does not pass through DDP's forward, so its hook has averaged it all the same.
        for parameter, gradient in zip(network.parameters(), gradients, strict=True):
            torch.testing.assert_close(parameter.grad, gradient, atol=exact * 10, rtol=exact, msg=str(case))


def check_targets(rank: int, n_processes: int) -> None:
    """Value, gradient and state of a loss with targets are those of one process, step after step."""
    case = Case("targeted", "gather", even=False, unlabelled=True, labels="ignored")
    x, labels = batch(case)
    own = case.own(rank, n_processes)
    for reduction, kept, kernel in [("mean", True, "dense"), ("none", False, "tiled"), ("sum", True, "tiled")]:
        options = {"n_classes": 4, "dim": 7, "n_positives": 2, "reduction": reduction, "kernel": kernel}
        options |= {"positives_in_denominator": kept, "target_weight": 0.5}
        alone = TargetedLoss(0.3, **options, draw=3).double()
        shared = TargetedLoss(0.3, **options, draw=3 + rank, group="world").double()  # the first process's draw counts
        for step in range(3):
            whole, part = (rows.clone().requires_grad_() for rows in (x + step, x[own] + step))
            expected, value = alone(whole, labels), shared(part, labels[own])
            torch.testing.assert_close(value, expected[own] if reduction == "none" else expected)
            expected.sum().backward()
            value.sum().backward()
            torch.testing.assert_close(part.grad / n_processes, whole.grad[own])
        for name, value in alone.state_dict().items():
            assert torch.equal(shared.state_dict()[name], value), name


def check_sets(rank: int, n_processes: int) -> None:
    """Value and gradients of the loss over sets, that of the temperature included, are those of one process."""
    reductions = product(("exact", "saddle", "auto"), REDUCTIONS, ("classes", "ignored"), (True, False))
    for method, reduction, labelled, even in reductions:
        case = Case("set-sincere", "gather", even=even, unlabelled=True, labels=labelled, reduction=reduction)
        x, labels = batch(case)
        own = case.own(rank, n_processes)
        values, gradients = [], []
        for rows, classes, group in ((x, labels, None), (x[own], labels[own], "world")):
            leaves = [rows.clone().requires_grad_(), torch.tensor(0.3, dtype=x.dtype, requires_grad=True)]
            loss = SetSINCERELoss(leaves[1], method=method, reduction=reduction, group=group)
            value = loss(leaves[0], classes)
            part = upstream(case) if group is None else upstream(case)[own]
            gradients.append(torch.autograd.grad(value, leaves, part if reduction == "none" else None))
            values.append(value)
        torch.testing.assert_close(values[1], values[0][own] if reduction == "none" else values[0])
        torch.testing.assert_close(gradients[1][0] / n_processes, gradients[0][0][own])
        total = gradients[1][1].clone()
        dist.all_reduce(total)
        torch.testing.assert_close(total / n_processes, gradients[0][1])


def check_sums(rank: int, n_processes: int) -> None:
    """The sum for partly labelled data, too."""
    case = Case("sum", "gather", even=False, unlabelled=True)
    x, labels = batch(case)
    own = case.own(rank, n_processes)
    for name in ("0.35*sincere+0.65*infonce", "set-sincere+0.5*infonce"):
        whole, part = (rows.clone().requires_grad_() for rows in (x, x[own]))
        expected, value = (
            LOSSES[name].load()(0.2)(whole, labels),
            LOSSES[name].load()(0.2, group="world")(part, labels[own]),
        )
        torch.testing.assert_close(value, expected)
        expected.backward()
        value.backward()
        torch.testing.assert_close(part.grad / n_processes, whole.grad[own])
