"""Lower bounds for the time of the Triton kernels on GPUs that are not here: arithmetic, not measurement.

For n rows of d dimensions in blocks of R rows, each kernel makes, of n^2 pairs:

    products        2 n^2 d operations for each GEMM, at the rate of its type
    exponentials    1 per pair for the denominators, 2 for the gradient, at 16 per clock and multiprocessor
    other           about 6 and 16 operations per pair, at the rate of the float32 lanes
    traffic         every block of rows reads all n columns from the level-2 cache: n / R * n * d * bytes

A kernel takes at least the largest of its four times, as if the others were hidden behind it, and a step the sum over
its kernels. Positives (n^2 / classes pairs) and the sort are left out: at 100 classes a few percent.
"""

from __future__ import annotations

from typing import Any

import torch

from sincere.losses.kernels.triton_ops import choose_blocks

D = 128
SIZES = (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
# Vendor's data sheets: dense rates per second, multiprocessors, boost clock, float32 lanes. The bandwidth of the
# level-2 cache is 5,120 bytes per clock in the A100's white paper; the same is assumed for the H100.
GPUS: dict[str, dict[str, float]] = {
    "A100": {"bfloat16": 312e12, "tf32": 156e12, "float32": 19.5e12, "processors": 108, "clock": 1.41e9, "lanes": 64},
    "H100": {"bfloat16": 989e12, "tf32": 494e12, "float32": 67e12, "processors": 132, "clock": 1.83e9, "lanes": 128},
}
CACHE_BYTES_PER_CLOCK = 5120
EXPONENTIALS_PER_CLOCK = 16
TYPES = {  # type, whether in tf32, rates of the two products of the gradient
    "bfloat16": (torch.bfloat16, False, ("bfloat16", "tf32")),
    "float32 in tf32": (torch.float32, True, ("tf32", "tf32")),
    "float32": (torch.float32, False, ("float32", "float32")),
}


def kernel_times(gpu: dict[str, float], kind: str, n: int, *, gradient: bool) -> dict[str, float]:
    """Return the seconds that each unit needs for one kernel."""
    dtype, tf32, rates = TYPES[kind]
    blocks = choose_blocks(dtype, D, tf32=tf32, gradient=gradient)
    pairs, clock = float(n) * n, gpu["clock"]
    products = 2 * pairs * D * sum(1 / gpu[rate] for rate in (rates if gradient else rates[:1]))
    # A tile of columns is read once for both products, unless the gradient needs it in another form.
    reads = 2 if gradient and blocks.out != blocks.chunk else 1
    traffic = reads * n / blocks.rows * n * D * dtype.itemsize
    return {
        "products": products,
        "exponentials": pairs * (2 if gradient else 1) / (EXPONENTIALS_PER_CLOCK * gpu["processors"] * clock),
        "other": pairs * (16 if gradient else 6) / (gpu["lanes"] * gpu["processors"] * clock),
        "cache": traffic / (CACHE_BYTES_PER_CLOCK * clock),
    }


def memory_bytes(kind: str, n: int) -> int:
    """Return the bytes besides the input: rows, unit rows and gradient in float32, the gradient and rows sorted."""
    itemsize = TYPES[kind][0].itemsize
    return n * D * (4 * 4 + 2 * itemsize) + 20 * 4 * n


def rooflines() -> list[dict[str, Any]]:
    """Return the least time of value and gradient of a batch against itself, and what bounds it."""
    rows = []
    for name, gpu in GPUS.items():
        for kind in TYPES:
            for n in SIZES:
                parts = [kernel_times(gpu, kind, n, gradient=gradient) for gradient in (False, True)]
                rows.append(
                    {
                        "gpu": name,
                        "type": kind,
                        "n": n,
                        "d": D,
                        "least_ms": sum(max(part.values()) for part in parts) * 1e3,
                        "bounds": [max(part, key=lambda unit: part[unit]) for part in parts],
                        "seconds": parts,
                        "memory_bytes": memory_bytes(kind, n),
                        "matrix_bytes": 4 * n * n,
                    }
                )
    return rows
