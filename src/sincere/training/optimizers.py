"""Optimizers: SGD as in the paper, and Muon for short runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sincere import checks
from sincere.catalog import OPTIMIZERS

VECTOR_LEARNING_RATE = 0.1  # of norms and biases under Muon, whose own rate is on another scale


@dataclass(frozen=True)
class OptimizerSettings:
    """Settings of an optimizer: see the training settings of the same names."""

    name: str = "sgd"
    learning_rate: float = 0.5
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 1e-4
    decay_norms_and_biases: bool = True


def make_optimizer(model: nn.Module, settings: OptimizerSettings) -> torch.optim.Optimizer:
    """Return an optimizer whose parameter groups have their peak learning rate under "peak"."""
    checks.choice("train", "optimizer", settings.name, OPTIMIZERS)
    trainable = [p for p in model.parameters() if p.requires_grad]
    # Class tokens and position embeddings, (1, n, d), are not linear maps: they are optimised as vectors.
    matrices = [p for p in trainable if p.ndim > 1 and len(p) > 1]
    vectors = [p for p in trainable if p.ndim <= 1 or len(p) == 1]
    rate, decay = settings.learning_rate, settings.weight_decay
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": decay},
        {"params": vectors, "weight_decay": decay if settings.decay_norms_and_biases else 0.0},
    ]
    optimizer: torch.optim.Optimizer
    if settings.name == "muon":
        groups[1].update(lr=VECTOR_LEARNING_RATE, weight_decay=0.0)
        optimizer = Muon(_non_empty(groups), lr=rate, momentum=settings.momentum)
    else:
        optimizer = torch.optim.SGD(_non_empty(groups), lr=rate, momentum=settings.momentum, nesterov=settings.nesterov)
    for group in optimizer.param_groups:
        group["peak"] = group["lr"]
    return optimizer


def _non_empty(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [group for group in groups if group["params"]]


class Muon(torch.optim.Optimizer):
    """SGD with Nesterov momentum, with the update of each matrix replaced by the nearest semi-orthogonal matrix.

    Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/. The weight of a convolution is treated as a matrix
    with a row per filter. Vectors (norms, biases) take plain Nesterov steps. Updates are scaled by sqrt(rows / columns)
    where that exceeds 1. Weight decay is decoupled: w <- w (1 - lr * weight_decay). torch.optim.Muon takes
    two-dimensional weights only.
    """

    def __init__(self, params: Iterable[Any], lr: float, momentum: float = 0.9, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Take one step; `closure` is not used."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        gradient, momentum = parameter.grad, group["momentum"]
        assert gradient is not None
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        buffer = state["momentum_buffer"].mul_(momentum).add_(gradient)
        update = gradient.add(buffer, alpha=momentum)
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        rate = group["lr"]
        if parameter.ndim > 1:
            update = orthogonalized(update.flatten(1)).view_as(parameter)
            rate *= max(1.0, len(parameter) / parameter[0].numel()) ** 0.5
        parameter.add_(update, alpha=-rate)


def orthogonalized(matrix: Tensor, *, steps: int = 5) -> Tensor:
    """Return approximately U V' for a matrix U S V', by a quintic Newton-Schulz iteration; singular values end near 1.

    The iteration runs on the Gram matrix of the shorter side, so that the longer side takes part in two products only.
    """
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    wide = wide.float() / (wide.float().norm() + 1e-7)
    gram = wide @ wide.T
    product = torch.eye(len(gram), device=gram.device)
    for _ in range(steps):
        factor = (2.0315 * gram @ gram).sub_(gram, alpha=4.7750)
        factor.diagonal().add_(3.4445)
        product, gram = factor @ product, factor @ gram @ factor
    wide = product @ wide
    result: Tensor = wide if matrix.shape[0] <= matrix.shape[1] else wide.T
    return result.to(matrix.dtype)
