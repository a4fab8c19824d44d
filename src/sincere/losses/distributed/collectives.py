"""Rows that are spread over processes: gathered with their gradients, or sent around a ring."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor

from sincere.losses.kernels.result import refuse_second_derivative

Group: TypeAlias = "dist.ProcessGroup | None"  # None: the default process group
REFUSAL = "losses across processes have no second derivative; compute it with group=None"


_HOST_GROUPS: WeakKeyDictionary[dist.ProcessGroup, dist.ProcessGroup] = WeakKeyDictionary()


def share_numbers(numbers: Sequence[int], group: Group) -> list[list[int]]:
    """Return the integers that each process has, in order of rank.

    They travel from host to host, so that no process waits for its device to know how large the parts of others are.
    """
    own = torch.tensor(numbers)
    everyone = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everyone, own, host_group(group))
    return [each.tolist() for each in everyone]


def host_group(group: Group) -> Group:
    """Return the group, or one of the same processes for CPU tensors where it has none (NCCL), made at first use."""
    if "cpu:" in dist.get_backend_config(group):
        return group
    key = group or dist.group.WORLD
    assert key is not None  # there is a default group where None stands for it
    if key not in _HOST_GROUPS:
        made = dist.new_group(dist.get_process_group_ranks(key), backend="gloo", use_local_synchronization=True)
        assert isinstance(made, dist.ProcessGroup)  # this process is a member
        _HOST_GROUPS[key] = made
    return _HOST_GROUPS[key]


def sizes_of(n: int, group: Group) -> list[int]:
    """Return how many rows each process holds, in order of rank."""
    return [size for (size,) in share_numbers([n], group)]


def gather(rows: Tensor, sizes: list[int], group: Group) -> Tensor:
    """Return the rows of all processes in order of rank, without a graph; processes may hold different numbers."""
    most = max(sizes)
    padded = rows.new_zeros(most, *rows.shape[1:])
    padded[: len(rows)] = rows.detach()
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded, group)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


class GatherRows(torch.autograd.Function):
    """Rows of all processes; the gradient of a process's rows is the sum of those that all processes have for them."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: list[int], group: Group) -> Tensor:
        """Return the rows of all processes in order of rank."""
        ctx.sizes, ctx.group = sizes, group
        ctx.save_for_backward(rows)
        return gather(rows, sizes, group)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, None, None]:
        """Return the sum over the processes of the gradient at this process's rows."""
        upstream = upstream.detach()
        rank = dist.get_rank(ctx.group)
        most = max(ctx.sizes)
        parts = [part.new_zeros(most, *part.shape[1:]) for part in upstream.split(ctx.sizes)]
        for padded, part in zip(parts, upstream.split(ctx.sizes), strict=True):
            padded[: len(part)] = part
        own = torch.empty_like(parts[0])
        dist.reduce_scatter(own, parts, group=ctx.group)
        return refuse_second_derivative(own[: ctx.sizes[rank]], REFUSAL, *ctx.saved_tensors), None, None


class TotalLoss(torch.autograd.Function):
    """The sum of the processes' shares of a loss; its gradient makes DDP's average of gradients their sum."""

    @staticmethod
    def forward(ctx: Any, share: Tensor, group: Group) -> Tensor:
        """Return the sum, the same in every process."""
        ctx.n_processes = dist.get_world_size(group)
        total = share.detach().clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        """Scale by the number of processes, which DDP divides by."""
        return upstream * ctx.n_processes, None


class ScaledGradient(torch.autograd.Function):
    """Identity whose gradient is multiplied by the number of processes, which DDP divides by."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, n_processes: int) -> Tensor:
        """Return the losses as they are."""
        ctx.n_processes = n_processes
        return losses.view_as(losses)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        """Scale by the number of processes."""
        return upstream * ctx.n_processes, None


def around_the_ring(rows: Tensor, sizes: list[int], group: Group) -> Iterator[tuple[int, Tensor]]:
    """Yield (rank, its rows) for every process, the own first; the next rows travel while one is worked on.

    Two blocks of rows exist at a time.
    """
    rank, n = dist.get_rank(group), len(sizes)
    after, before = ((rank + step) % n for step in (1, -1))
    ranks = [dist.get_global_rank(group, peer) if group is not None else peer for peer in (after, before)]
    block = rows.detach().contiguous()
    for step in range(n):
        source = (rank - step) % n
        if step == n - 1:
            yield source, block
            return
        coming = block.new_empty(sizes[(source - 1) % n], *block.shape[1:])
        work = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, block, ranks[0], group), dist.P2POp(dist.irecv, coming, ranks[1], group)]
        )
        yield source, block
        for part in work:
            part.wait()
        block = coming
