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

from sincere.catalog import LOSSES
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

    def sizes(self, n_processes: int) -> list[int]:
        if self.even:
            return [N_IMAGES // n_processes] * n_processes
        return [1] * (n_processes - 1) + [N_IMAGES - n_processes + 1]

    def own(self, rank: int, n_processes: int) -> slice:
        """Where the images of a process are in the whole batch."""
        sizes = self.sizes(n_processes)
        return slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))


BOTH = (True, False)
CASES = [Case(*values) for values in product(LOSSES, EXCHANGES, BOTH, BOTH, (torch.float64, torch.float32))]
EXACT_CASES = [case for case in CASES if case.dtype == torch.float64]
REDUCED_CASES = [
    Case(loss, exchange, False, True, reduction=reduction)
    for loss, exchange, reduction in product(LOSSES, EXCHANGES, REDUCTIONS[1:])
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
    module = LOSSES[case.loss].load()(temperature, reduction=case.reduction, **options)
    return module if LOSSES[case.loss].needs_labels else lambda embeddings, labels: module(embeddings)


def one_process(case: Case) -> tuple[Tensor, list[Tensor]]:
    images, labels = batch(case)
    network = model(case.dtype)
    value = criterion(case, network.temperature)(network(images), labels)
    value.backward(upstream(case) if case.reduction == "none" else None)
    return value.detach(), [parameter.grad for parameter in network.parameters()]


def check_every_case(rank: int, n_processes: int) -> None:
    """As they would run on large batches, too: the tiled kernel for gather, many blocks for the ring."""
    check_cases(rank, n_processes, [*CASES, *REDUCED_CASES])
    select._DENSE_PAIRS["cpu"] = 0
    ring.BLOCK_ENTRIES = 100
    check_cases(rank, n_processes, [*EXACT_CASES, *REDUCED_CASES])


def check_cases(rank: int, n_processes: int, cases: list[Case]) -> None:
    """Compare value and every parameter's gradient of a small model under DDP."""
    for case in cases:
        expected, gradients = one_process(case)
        images, labels = batch(case)
        own = case.own(rank, n_processes)
        network = model(case.dtype)
        spread = nn.parallel.DistributedDataParallel(network)
        loss = criterion(case, network.temperature, group="world", exchange=case.exchange)
        value = loss(spread(images[own]), labels[own])
        each = case.reduction == "none"
        value.backward(upstream(case)[own] if each else None)
        exact = 1e-10 if case.dtype == torch.float64 else 1e-5
        torch.testing.assert_close(
            value.detach(), expected[own] if each else expected, atol=exact, rtol=exact, msg=str(case)
        )
        # The temperature does not pass through DDP's forward, so its hook has averaged it all the same.
        for parameter, gradient in zip(network.parameters(), gradients, strict=True):
            torch.testing.assert_close(parameter.grad, gradient, atol=exact * 10, rtol=exact, msg=str(case))
