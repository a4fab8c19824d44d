"""Extra memory of one loss step: its peak beyond the memory in use before the step.

`python -m benchmarks.memory --n 8192 --kernel tiled` prints the bytes. Each case is measured in a fresh process,
because the high-water mark of resident memory never falls, and an allocator keeps the pages of a larger case.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import torch

from benchmarks.cases import MEMORY_CASES
from sincere.device_memory import peak_bytes
from sincere.workflows.loss_cases import make_batch


def peak_extra_bytes(
    n: int,
    *,
    kernel: str,
    n_classes: int = 100,
    temperature: float = 0.1,
    reduction: str = "mean",
    d: int = 128,
    n_threads: int = 0,
) -> int:
    """Measure value and gradient of SINCERE, or another case of `MEMORY_CASES`, in a fresh process.

    `n_threads` is the number of torch's threads, 0 for torch's default. Tiles grow with it: one tile fills the level-2
    caches of all threads.
    """
    options = {
        "n": n,
        "kernel": kernel,
        "n-classes": n_classes,
        "temperature": temperature,
        "reduction": reduction,
        "d": d,
        "n-threads": n_threads,
    }
    arguments = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "benchmarks.memory", *arguments]
    return int(subprocess.run(command, check=True, cwd=root, stdout=subprocess.PIPE, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, required=True)
    parser.add_argument("--kernel", choices=MEMORY_CASES, required=True)
    parser.add_argument("--n-classes", type=int, default=100)
    parser.add_argument("--temperature", type=float, default=0.1)
    parser.add_argument("--reduction", default="mean")
    parser.add_argument("--d", type=int, default=128)
    parser.add_argument("--n-threads", type=int, default=0, help="threads of torch; 0: torch's default")
    options = parser.parse_args()
    if options.n_threads:
        torch.set_num_threads(options.n_threads)
    case = MEMORY_CASES[options.kernel]
    settings = {"temperature": options.temperature, "reduction": options.reduction}
    case(make_batch(256, options.d, 10), **settings)  # libraries load and threads start here
    batch = make_batch(options.n, options.d, options.n_classes)
    before = peak_bytes()
    case(batch, **settings)
    print(peak_bytes() - before)


if __name__ == "__main__":
    main()
