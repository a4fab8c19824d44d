"""The exact loss and its gradient together, with nothing n x n in memory: the autograd function of all such kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sincere import host
from sincere.losses.kernels.normalize import scaled_rows, unit_rows, unit_rows_backward
from sincere.losses.kernels.result import LossAndGradient, refuse_second_derivative
from sincere.losses.kernels.row_blocks import row_block_losses
from sincere.losses.kernels.symmetric_tiles import similarity_limit, symmetric_tile_losses
from sincere.losses.pairs import Contrast
from sincere.shapes import KeyRows, PerAnchor, Rows

REFUSAL = 'the {} kernel has no second derivative; ask for it with kernel="dense"'


class TiledLosses(torch.autograd.Function):
    """Losses of each anchor, or their weighted sum.

    With `weights` the gradient is computed with the value and kept until backward, which only scales it. Without,
    each anchor's loss is returned and backward computes the blocks again, because it must know the upstream gradient
    first.

    `wants_gradient` comes from outside: inside, no_grad and grad mode look the same. `triton_dtype` is the type of the
    rows in the Triton kernel, None for the tiled kernel.
    """

    @staticmethod
    def forward(
        ctx: Any,
        embeddings: Rows,
        keys: KeyRows | None,
        temperature: Tensor,
        contrast: Contrast,
        normalize: bool,
        weights: PerAnchor | None,
        wants_gradient: bool,
        triton_dtype: torch.dtype | None,
    ) -> Tensor:
        """Return the losses (n,), or weights . losses with the gradient at hand."""
        ctx.contrast, ctx.normalize, ctx.triton_dtype = contrast, normalize, triton_dtype
        now = weights if wants_gradient else None
        key_gradient = keys is not None and ctx.needs_input_grad[1]
        problem = (embeddings, keys, temperature, contrast, normalize, triton_dtype)
        losses, *gradients = _differentiate(*problem, now, with_key_gradient=key_gradient)
        ctx.save_for_backward(embeddings, keys, temperature, *gradients)
        return losses if weights is None else torch.dot(losses, weights)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients for embeddings, keys and temperature."""
        embeddings, keys, temperature, *kept = ctx.saved_tensors
        needs = ctx.needs_input_grad[:3]
        with torch.no_grad():
            if kept[0] is None:
                problem = (embeddings, keys, temperature, ctx.contrast, ctx.normalize, ctx.triton_dtype)
                _, *gradients = _differentiate(*problem, upstream, with_key_gradient=needs[1])
            else:
                gradients = [None if g is None else g * upstream for g in kept]
        inputs = (embeddings, keys, temperature)
        results = [
            g.to(given) if need and g is not None else None
            for g, given, need in zip(gradients, inputs, needs, strict=True)
        ]
        refusal = REFUSAL.format("tiled" if ctx.triton_dtype is None else "triton")
        results = [refuse_second_derivative(g, refusal, *inputs) for g in results]
        return (*results, None, None, None, None, None)


def _differentiate(
    embeddings: Rows,
    keys: KeyRows | None,
    temperature: Tensor,
    contrast: Contrast,
    normalize: bool,
    triton_dtype: torch.dtype | None,
    weights: PerAnchor | None,
    with_key_gradient: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Return the losses and, with weights, the gradients of weights . losses for embeddings, keys, temperature."""
    with torch.autocast(embeddings.device.type, enabled=False):
        z, lengths = unit_rows(embeddings) if normalize else (embeddings, None)
        k, key_lengths = (keys, None) if keys is None or not normalize else unit_rows(keys)
        if triton_dtype is None:
            result = tiled_losses(z, k, temperature, contrast, weights, with_key_gradient=with_key_gradient)
        else:
            from sincere.losses.kernels.triton import triton_losses  # registers operators, which most never need

            rows = scaled_rows(embeddings, z if normalize else None, triton_dtype)
            key_rows = None if keys is None else scaled_rows(keys, k if normalize else None, triton_dtype)
            result = triton_losses(rows, key_rows, temperature, contrast, weights, with_key_gradient=with_key_gradient)
        if result.anchor_gradient is None or result.similarity_gradient is None:
            return result.losses, None, None, None
        d_embeddings = _back_to_input(result.anchor_gradient, z, lengths, temperature)
        d_keys = None
        if k is not None and result.key_gradient is not None:
            d_keys = _back_to_input(result.key_gradient, k, key_lengths, temperature)
        return result.losses, d_embeddings, d_keys, -result.similarity_gradient / temperature


def _back_to_input(gradient: Rows, z: Rows, lengths: Tensor | None, temperature: Tensor) -> Rows:
    """Carry the gradient of a `LossAndGradient` back to the rows the caller gave; overwrites it."""
    d_z = gradient.div_(temperature)
    return d_z if lengths is None else unit_rows_backward(d_z, z, lengths)


def tiled_losses(
    z: Rows,
    keys: KeyRows | None,
    temperature: Tensor,
    contrast: Contrast,
    weights: PerAnchor | None,
    *,
    with_key_gradient: bool = False,
) -> LossAndGradient:
    """Return the losses of unit (or given) rows and, with `weights`, the gradient, in the form that suits the problem.

    Symmetric tiles serve a batch of classes against itself on the CPU, with equal weights and while the similarities
    are small enough; row blocks serve all else.
    """
    inverse_temperature = temperature.reciprocal()
    is_small = False
    if host.reads_back(z.device):
        longest, longest_key = (torch.linalg.vector_norm(x, dim=1).max() for x in (z, z if keys is None else keys))
        is_small = bool(longest * longest_key * inverse_temperature <= similarity_limit(z.dtype))
    if is_small and keys is None and contrast.has_classes and contrast.key_bias is None:
        return symmetric_tile_losses(z, float(inverse_temperature), contrast, weights)
    return row_block_losses(
        z, keys, inverse_temperature, contrast, weights, with_key_gradient=with_key_gradient, is_small=is_small
    )
