"""Which kernel computes a loss."""

from __future__ import annotations

import torch

KERNELS = ("auto", "dense", "tiled")

# Pairs (n x m) up to which the dense form is faster than the tiled one, by device type. The processor's figure is
# interpolated between measurements at n = 256 and 512 (docs/benchmarks.md: where `auto` switches). No accelerator could
# be measured, so elsewhere the dense form serves only batches whose matrices are too small to matter (4 MB each).
_DENSE_PAIRS = {"cpu": 352 * 352}
_DENSE_PAIRS_UNMEASURED = 1024 * 1024


def select(kernel: str, *, n_anchors: int, n_keys: int, device: torch.device) -> str:
    """Return "dense" or "tiled": the one asked for, or for "auto" the faster one for this size."""
    if kernel != "auto":
        return kernel
    limit = _DENSE_PAIRS.get(device.type, _DENSE_PAIRS_UNMEASURED)
    return "dense" if n_anchors * n_keys <= limit else "tiled"
