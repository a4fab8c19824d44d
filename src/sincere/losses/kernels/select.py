"""The choice of a kernel, and its run."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sincere.errors import UnsupportedError
from sincere.losses.kernels.dense import dense_losses
from sincere.losses.kernels.tiled import TiledLosses
from sincere.losses.kernels.triton_support import triton_obstacle
from sincere.losses.pairs import Contrast

# Pairs (n x m) up to which the dense form is faster than the tiled one, by device type. The CPU's value is interpolated
# between measurements at n = 256 and 512 (docs/reference/benchmarks.md: where `auto` switches). No accelerator could be
# measured, so elsewhere the dense form serves only batches whose matrices are too small to matter (4 MB each).
_DENSE_PAIRS = {"cpu": 352 * 352}
_DENSE_PAIRS_UNMEASURED = 1024 * 1024


# Pairs above which the Triton kernel is taken on CUDA where it can run: not measured either.
_TRITON_PAIRS_UNMEASURED = 1024 * 1024


def select(kernel: str, *, n_anchors: int, n_keys: int, device: torch.device, runs_triton: bool = False) -> str:
    """Return "dense", "tiled" or "triton": the kernel requested, or for "auto" the one for this size and device.

    Args:
        kernel: The request.
        n_anchors: Number of anchors.
        n_keys: Number of keys.
        device: Where they are.
        runs_triton: Whether the Triton kernel can compute the problem.
    """
    if kernel != "auto":
        return kernel
    pairs = n_anchors * n_keys
    if runs_triton and device.type == "cuda" and pairs > _TRITON_PAIRS_UNMEASURED:
        return "triton"
    return "dense" if pairs <= _DENSE_PAIRS.get(device.type, _DENSE_PAIRS_UNMEASURED) else "tiled"


def weighted_losses(
    rows: Tensor,
    keys: Tensor | None,
    temperature: Tensor,
    contrast: Contrast,
    normalize: bool,
    weights: Tensor | None,
    kernel: str,
    operand_dtype: torch.dtype | None = None,
) -> Tensor:
    """Return weights . losses, or each anchor's loss where there are no weights, by the kernel requested.

    Args:
        rows: The anchors, in the type the statistics are computed in.
        keys: The keys; None for the anchors.
        temperature: Divides the similarities.
        contrast: Who is compared with whom, and how.
        normalize: Whether rows and keys are scaled to unit length.
        weights: Weight of each anchor's loss.
        kernel: "auto" or the name of one.
        operand_dtype: The type in which the caller gave rows and keys, if the same for both, which the Triton kernel
            multiplies in; None for that of the rows.

    Raises:
        UnsupportedError: The kernel requested cannot compute this; the message says why.
    """
    obstacle = None
    if kernel == "triton" or (kernel == "auto" and rows.device.type == "cuda"):
        obstacle = triton_obstacle(contrast, d=rows.shape[1], dtype=rows.dtype, device=rows.device)
    if kernel == "triton" and obstacle is not None:
        raise UnsupportedError(f'kernel="triton" cannot run: {obstacle}; kernel="auto" takes another')
    chosen = select(
        kernel, n_anchors=len(rows), n_keys=contrast.n_keys, device=rows.device, runs_triton=obstacle is None
    )
    losses: Tensor
    if chosen == "dense":
        with torch.autocast(rows.device.type, enabled=False):
            losses = dense_losses(rows, keys, temperature, contrast, normalize=normalize)
            return losses if weights is None else torch.dot(losses, weights)
    differentiable = [x for x in (rows, keys, temperature) if x is not None and x.requires_grad]
    gradient = torch.is_grad_enabled() and bool(differentiable)
    triton_dtype = (operand_dtype or rows.dtype) if chosen == "triton" else None
    # A compiler would unroll the loop over blocks: it runs as it is, and the graph breaks once around it.
    # Not a decorator: that alone would load the compiler with the package, which takes two seconds.
    run = torch.compiler.disable(_run_fused) if torch.compiler.is_compiling() else _run_fused
    losses = run(chosen, rows, keys, temperature, contrast, normalize, weights, gradient, triton_dtype)
    return losses


def _run_fused(kernel: str, *arguments: Any) -> Tensor:
    try:
        losses: Tensor = TiledLosses.apply(*arguments)
    except RuntimeError as error:
        if "setup_context" in str(error):  # what torch says inside torch.func's transformations
            message = f'the {kernel} kernel does not run under torch.func; use kernel="dense"'
            raise UnsupportedError(message) from error
        raise
    return losses
