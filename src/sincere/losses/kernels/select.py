"""The choice of a kernel, and its run."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sincere.errors import UnsupportedError
from sincere.losses.kernels.dense import dense_losses
from sincere.losses.kernels.tiled import TiledLosses
from sincere.losses.pairs import Contrast

# Pairs (n x m) up to which the dense form is faster than the tiled one, by device type. The CPU's value is interpolated
# between measurements at n = 256 and 512 (docs/reference/benchmarks.md: where `auto` switches). No accelerator could be
# measured, so elsewhere the dense form serves only batches whose matrices are too small to matter (4 MB each).
_DENSE_PAIRS = {"cpu": 352 * 352}
_DENSE_PAIRS_UNMEASURED = 1024 * 1024


def select(kernel: str, *, n_anchors: int, n_keys: int, device: torch.device) -> str:
    """Return "dense" or "tiled": the kernel requested, or for "auto" the faster one for this size."""
    if kernel != "auto":
        return kernel
    limit = _DENSE_PAIRS.get(device.type, _DENSE_PAIRS_UNMEASURED)
    return "dense" if n_anchors * n_keys <= limit else "tiled"


def weighted_losses(
    rows: Tensor,
    keys: Tensor | None,
    temperature: Tensor,
    contrast: Contrast,
    normalize: bool,
    weights: Tensor | None,
    kernel: str,
) -> Tensor:
    """Return weights . losses, or each anchor's loss where there are no weights, by the kernel requested."""
    losses: Tensor
    if select(kernel, n_anchors=len(rows), n_keys=contrast.n_keys, device=rows.device) == "tiled":
        differentiable = [x for x in (rows, keys, temperature) if x is not None and x.requires_grad]
        gradient = torch.is_grad_enabled() and bool(differentiable)
        # A compiler would unroll the loop over blocks: it runs as it is, and the graph breaks once around it.
        # Not a decorator: that alone would load the compiler with the package, which takes two seconds.
        run = torch.compiler.disable(_run_tiled) if torch.compiler.is_compiling() else _run_tiled
        losses = run(rows, keys, temperature, contrast, normalize, weights, gradient)
    else:
        with torch.autocast(rows.device.type, enabled=False):
            losses = dense_losses(rows, keys, temperature, contrast, normalize=normalize)
            losses = losses if weights is None else torch.dot(losses, weights)
    return losses


def _run_tiled(*arguments: Any) -> Tensor:
    try:
        losses: Tensor = TiledLosses.apply(*arguments)
    except RuntimeError as error:
        if "setup_context" in str(error):  # what torch says inside torch.func's transformations
            raise UnsupportedError('the tiled kernel does not run under torch.func; use kernel="dense"') from error
        raise
    return losses
