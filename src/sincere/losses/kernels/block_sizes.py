"""How large a block may be, from the size of the problem and of the machine's caches or memory."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import torch

# Used where the operating system does not tell (containers, macOS): common sizes, on the small side.
_FALLBACK_L2_BYTES = 512 * 1024
_FALLBACK_L3_BYTES = 8 * 1024**2


@cache
def cache_bytes(level: int) -> int:
    """Return the size in bytes of the first CPU's level-2 or level-3 cache."""
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            if int((folder / "level").read_text()) == level:
                return int((folder / "size").read_text().strip().removesuffix("K")) * 1024
        except (OSError, ValueError):
            break
    return _FALLBACK_L2_BYTES if level == 2 else _FALLBACK_L3_BYTES


def tile_side(n: int, itemsize: int) -> int:
    """Return the side of the square tiles into which the CPU cuts a symmetric n x n matrix.

    One tile fills the level-2 caches of the threads that share it, so what is written by one operation is read
    from there by the next. Tiles are of even size, so the last is no sliver.
    """
    side = math.isqrt(cache_bytes(2) * torch.get_num_threads() // itemsize)
    side = max(128, min(side, 2048))
    return math.ceil(n / math.ceil(n / side))


def block_rows(n: int, m: int, itemsize: int, device: torch.device) -> int:
    """Return how many rows of an n x m matrix to hold at once: half the last cache, or 1/64 of a device's memory.

    On the CPU between 64 rows, below which the products become inefficient, and 256, above which nothing is
    gained: measured at m = 1,024 to 16,384.
    """
    if device.type == "cuda":
        budget = torch.cuda.get_device_properties(device).total_memory // 64
    elif device.type == "cpu":
        budget = cache_bytes(3) // 2
    else:
        budget = 256 * 1024**2
    rows = budget // (m * itemsize)
    return min(n, max(64, min(rows, 256)) if device.type == "cpu" else max(1, rows))
