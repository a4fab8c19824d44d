"""What all kernels with a gradient of their own share: their result, and the refusal of second derivatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sincere.errors import UnsupportedError
from sincere.shapes import KeyRows, PerAnchor, Rows


@dataclass(frozen=True, eq=False)
class LossAndGradient:
    """The losses of a batch and, where weights were given, the gradient of weights . losses.

    Attributes:
        losses: Loss of each anchor, 0 where it has no positive.
        log_denominators: Log-sum-exp over the denominator without the positive at hand: L_i over the negatives, or
            D_i over all other items where positives are part of the denominator.
        anchor_gradient: Gradient at the compared anchors times the temperature. Where the anchors are the keys, the
            sum of both parts.
        key_gradient: The same at separate keys.
        similarity_gradient: sum_ij (d(weights . losses) / d s_ij) s_ij, without dimensions. Minus this, divided by
            the temperature, is the gradient at the temperature.
    """

    losses: PerAnchor
    log_denominators: PerAnchor
    anchor_gradient: Rows | None = None
    key_gradient: KeyRows | None = None
    similarity_gradient: Tensor | None = None


def refuse_second_derivative(gradient: Tensor | None, message: str, *inputs: Tensor | None) -> Tensor | None:
    """Return a gradient whose own derivative, with respect to any of these inputs, raises UnsupportedError.

    Otherwise it would count as a constant, and a gradient penalty would silently be wrong.
    """
    if gradient is None or not torch.is_grad_enabled():
        return gradient
    refused: Tensor = _OnceDifferentiable.apply(gradient, message, *inputs)
    return refused


class _OnceDifferentiable(torch.autograd.Function):
    """Identity whose derivative is refused with a message that names the remedy."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, message: str, *inputs: Tensor | None) -> Tensor:
        ctx.message = message
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> None:
        raise UnsupportedError(ctx.message)
