"""Optimizers: SGD as in the paper, Muon for short runs from scratch, AdamW for pretrained encoders and adapters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sincere import checks
from sincere.catalog import OPTIMIZERS
from sincere.errors import InputValueError

ENCODER = "encoder."  # prefix of its parameters in an embedding model
VECTOR_LEARNING_RATE = 0.1  # of norms and biases under Muon, whose own rate is on another scale


@dataclass(frozen=True)
class OptimizerSettings:
    """Settings of an optimizer: see the training settings of the same names."""

    name: str = "sgd"
    learning_rate: float = 0.5
    encoder_lr: float | None = None
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 1e-4
    decay_norms_and_biases: bool = True


def make_optimizer(model: nn.Module, settings: OptimizerSettings) -> torch.optim.Optimizer:
    """Return an optimizer whose parameter groups have their peak learning rate under "peak".

    The parameters of `model.encoder` have a learning rate of their own if `encoder_lr` is set.

    Raises:
        InputValueError: There are no parameters to train, or there is no such optimizer.
    """
    checks.choice("train", "optimizer", settings.name, OPTIMIZERS)
    trainable = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if not trainable:
        raise InputValueError("train: the model has no weights that can be trained; choose another head or encoder")
    rate = settings.learning_rate
    encoder_rate = rate if settings.encoder_lr is None else settings.encoder_lr
    if encoder_rate == rate:
        groups = _groups([p for _, p in trainable], settings, 1.0)
    else:
        own = [p for name, p in trainable if name.startswith(ENCODER)]
        others = [p for name, p in trainable if not name.startswith(ENCODER)]
        groups = [*_groups(others, settings, 1.0), *_groups(own, settings, encoder_rate / rate)]
    optimizer: torch.optim.Optimizer
    if settings.name == "muon":
        optimizer = Muon(groups, lr=rate, momentum=settings.momentum)
    elif settings.name == "adamw":
        optimizer = torch.optim.AdamW(groups, lr=rate, betas=(settings.momentum, 0.999))
    else:
        optimizer = torch.optim.SGD(groups, lr=rate, momentum=settings.momentum, nesterov=settings.nesterov)
    for group in optimizer.param_groups:
        group["peak"] = group["lr"]
    return optimizer


def _groups(parameters: list[nn.Parameter], settings: OptimizerSettings, factor: float) -> list[dict[str, Any]]:
    """Return matrices and vectors as parameter groups, with the learning rate times `factor`."""
    # Class tokens and position embeddings, (1, n, d), are not linear maps: they are optimised as vectors.
    matrices = [p for p in parameters if p.ndim > 1 and len(p) > 1]
    vectors = [p for p in parameters if p.ndim <= 1 or len(p) == 1]
    rate, decay = settings.learning_rate * factor, settings.weight_decay
    groups: list[dict[str, Any]] = [
        {"params": matrices, "lr": rate, "weight_decay": decay},
        {"params": vectors, "lr": rate, "weight_decay": decay if settings.decay_norms_and_biases else 0.0},
    ]
    if settings.name == "muon":
        groups[1].update(lr=VECTOR_LEARNING_RATE * factor, weight_decay=0.0)
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
