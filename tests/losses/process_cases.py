"""What each process of `test_global_batch` runs: every case against one process on the whole batch."""

from __future__ import annotations

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
from sincere.losses.distributed.global_batch import VARIANTS, global_batch_loss
from sincere.losses.kernels import select

D, VIEWS, N_IMAGES = 5, 2, 24


@dataclass(frozen=True)
class Case:
    loss: str
    variant: str
    even: bool
    unlabelled: bool
    dtype: torch.dtype

    def sizes(self, n_processes: int) -> list[int]:
        if self.even:
            return [N_IMAGES // n_processes] * n_processes
        return [1] * (n_processes - 1) + [N_IMAGES - n_processes + 1]


DTYPES = (torch.float64, torch.float32)
CASES = [Case(*values) for values in product(LOSSES, VARIANTS[1:], (True, False), (True, False), DTYPES)]


def run(rank: int, n_processes: int, meeting: str, function: Any) -> None:
    """Join the other processes and run a function with this one's rank."""
    torch.set_num_threads(1)
    store = dist.FileStore(meeting, n_processes)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=n_processes, timeout=timedelta(seconds=120))
    try:
        function(rank, n_processes)
    finally:
        dist.destroy_process_group()


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


def model(dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, D)).to(dtype)
    network.register_parameter("temperature", nn.Parameter(torch.tensor(0.2, dtype=dtype)))
    return network


def one_process(case: Case) -> tuple[Tensor, list[Tensor]]:
    images, labels = batch(case)
    network = model(case.dtype)
    criterion = LOSSES[case.loss].load()(network.temperature)
    z = network(images)
    value = criterion(z) if case.loss == "infonce" else criterion(z, labels)
    value.backward()
    return value.detach(), [parameter.grad for parameter in network.parameters()]


def check_every_case(rank: int, n_processes: int) -> None:
    """As they would run on large batches, too: the tiled kernel for gather, many blocks for the ring."""
    for small in (False, True):
        if small:
            select._DENSE_PAIRS["cpu"] = 0
            ring.BLOCK_NUMBERS = 100
        exact = [case for case in CASES if case.dtype == torch.float64]
        check_cases(rank, n_processes, exact if small else CASES)


def check_cases(rank: int, n_processes: int, cases: list[Case]) -> None:
    for case in cases:
        expected, gradients = one_process(case)
        images, labels = batch(case)
        sizes = case.sizes(n_processes)
        own = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
        network = model(case.dtype)
        spread = nn.parallel.DistributedDataParallel(network)
        value = global_batch_loss(
            spread(images[own]), labels[own], loss=case.loss, temperature=network.temperature, variant=case.variant
        )
        value.backward()
        exact = 1e-10 if case.dtype == torch.float64 else 1e-5
        torch.testing.assert_close(value.detach(), expected, atol=exact, rtol=exact, msg=str(case))
        # The temperature does not pass through DDP's forward, so its hook has averaged it all the same.
        for parameter, gradient in zip(network.parameters(), gradients, strict=True):
            torch.testing.assert_close(parameter.grad, gradient, atol=exact, rtol=exact, msg=str(case))
