"""Whether the Triton kernel can run, without importing Triton."""

from __future__ import annotations

import os
from importlib.util import find_spec

import torch

from sincere.losses.pairs import Contrast

LARGEST_D = 1024
_IS_INSTALLED = find_spec("triton") is not None


def is_interpreted() -> bool:
    """Tell whether Triton runs its kernels in its interpreter, on the CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def triton_obstacle(contrast: Contrast, *, d: int, dtype: torch.dtype, device: torch.device) -> str | None:
    """Return why the Triton kernel cannot compute a contrast of rows of this dimension and type; None if it can."""
    if contrast.label_sets is not None:
        return "label sets are not supported"
    if not contrast.formula.is_plain:
        return "only SINCERE, SupCon, eps-SupInfoNCE and InfoNCE are supported"
    if dtype == torch.float64:
        return "float64 is not supported"
    if d > LARGEST_D:
        return f"d must be at most {LARGEST_D:,}; got {d:,}"
    if device.type != "cuda" and not is_interpreted():
        return f"it needs a CUDA device; the embeddings are on {device.type}"
    if device.type == "cuda" and torch.version.hip is not None:
        return "AMD GPUs are not supported"
    # Fake tensors have no device to ask.
    if device.type == "cuda" and torch.cuda.is_available() and torch.cuda.get_device_properties(device).major < 8:
        return "it needs a GPU of compute capability 8.0 (A100) or later"
    return None if _IS_INSTALLED else "Triton is not installed (`pip install triton`)"
