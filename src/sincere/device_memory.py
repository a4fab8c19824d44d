"""Free memory of a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    import torch


def free_bytes(device: torch.device) -> int:
    """Return the free memory of a device in bytes; devices that share the system's memory have that of the system."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)
