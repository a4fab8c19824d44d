"""The cases of the loss benchmark: one step (value and gradient) of each implementation, on the same batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from sincere import sincere_loss, supcon_loss


@dataclass(frozen=True, eq=False)
class Batch:
    """Embeddings (n, d) that require a gradient, and labels."""

    embeddings: Tensor
    labels: Tensor


def make_batch(n: int, d: int, n_classes: int) -> Batch:
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(n, d, generator=generator, requires_grad=True)
    return Batch(embeddings, torch.randint(n_classes, (n,), generator=generator))


Step = Callable[..., None]


def step_of(loss: Callable[..., Tensor], **fixed: Any) -> Step:
    """Return one step (forward and backward) of a loss of this package."""

    def step(batch: Batch, **options: Any) -> None:
        batch.embeddings.grad = None
        loss(batch.embeddings, batch.labels, **fixed, **options).sum().backward()

    return step


def value_only(batch: Batch, **options: Any) -> None:
    with torch.no_grad():
        sincere_loss(batch.embeddings, batch.labels, kernel="tiled", **options)


def pytorch_metric_learning(batch: Batch, *, temperature: float = 0.1, reduction: str = "mean") -> None:
    from pytorch_metric_learning.losses import SupConLoss

    batch.embeddings.grad = None
    SupConLoss(temperature=temperature)(batch.embeddings, batch.labels).backward()


@cache
def buffers(n: int, d: int) -> tuple[Tensor, Tensor]:
    """Return the output matrices of the bare products, allocated once so that allocation is not timed."""
    return torch.empty(n, n), torch.empty(n, d)


def three_gemms(batch: Batch, **_: Any) -> None:
    """Compute only the matrix products of a loss that stores its similarity matrix: s = z z', s z and s' z."""
    z = batch.embeddings.detach()
    s, out = buffers(*z.shape)
    torch.mm(z, z.T, out=s)
    torch.mm(s, z, out=out)
    torch.mm(s.T, z, out=out)


LOSS_CASES: dict[str, Step] = {
    "tiled": step_of(sincere_loss, kernel="tiled"),
    "dense": step_of(sincere_loss, kernel="dense"),
    "supcon-tiled": step_of(supcon_loss, kernel="tiled"),
    "supcon-dense": step_of(supcon_loss, kernel="dense"),
    "pytorch-metric-learning": pytorch_metric_learning,
    "three-gemms": three_gemms,
    "tiled-value-only": value_only,
}
