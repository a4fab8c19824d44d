"""One step (value and gradient) of several implementations of a loss on the same batch, to be timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

Step = Callable[..., None]


@dataclass(frozen=True, eq=False)
class LabelledBatch:
    """Embeddings (n, d) that require a gradient, and labels."""

    embeddings: Tensor
    labels: Tensor


def make_batch(n: int, d: int, n_classes: int, device: torch.device | str = "cpu") -> LabelledBatch:
    """Return a random batch, the same for the same numbers on every device."""
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(n, d, generator=generator).to(device).requires_grad_()
    return LabelledBatch(embeddings, torch.randint(n_classes, (n,), generator=generator).to(device))


def step_of(loss: Callable[..., Tensor], **fixed: Any) -> Step:
    """Return one step (forward and backward) of a loss of this package."""

    def step(batch: LabelledBatch, **options: Any) -> None:
        batch.embeddings.grad = None
        loss(batch.embeddings, batch.labels, **fixed, **options).sum().backward()

    return step


def pytorch_metric_learning(batch: LabelledBatch, *, temperature: float = 0.1) -> None:
    """Take one step of that library's SupConLoss."""
    from pytorch_metric_learning.losses import SupConLoss

    batch.embeddings.grad = None
    SupConLoss(temperature=temperature)(batch.embeddings, batch.labels).backward()


@cache
def buffers(n: int, d: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the output matrices of the bare products, allocated once so that allocation is not timed."""
    return torch.empty(n, n, device=device), torch.empty(n, d, device=device)


def three_gemms(batch: LabelledBatch, **_: Any) -> None:
    """Compute only the matrix products of a loss that stores its similarity matrix: s = z z', s z and s' z."""
    z = batch.embeddings.detach()
    s, out = buffers(*z.shape, z.device)
    torch.mm(z, z.T, out=s)
    torch.mm(s, z, out=out)
    torch.mm(s.T, z, out=out)
