"""`python -m benchmarks.scaling`: communication and memory of the loss over processes, and memory of micro-batches.

Measures the bytes that each process receives and its peak memory, with 2, 4 and 8 processes and gloo, and compares the
bytes with the formulas in docs/guides/devices.md. Writes results/scaling.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from torch import Tensor

from benchmarks.measure import write
from sincere.device_memory import peak_bytes
from sincere.loss_catalog import LOSSES
from sincere.losses.functional import sincere_loss
from sincere.models.embedding import build_model
from sincere.records.model import ModelSpec
from sincere.training.micro_batches import backward_in_micro_batches

N, D, N_CLASSES, BYTES = 16_384, 128, 10, 4
PROCESSES = (2, 4, 8)
WIDE = (4096, 16_384)  # rows and dimensions for which embeddings, not blocks of similarities, dominate the memory
TRIPS = {"sincere": 3, "supcon": 2}
ROOT = Path(__file__).parents[1]


def expected_rows(loss: str, exchange: str, n_processes: int, n: int) -> int:
    """Return how many embeddings a process receives in a step, by the formulas in docs/guides/devices.md."""
    others = n - n // n_processes
    return others * (2 if exchange == "gather" else TRIPS[loss])


def counted(received: list[int], d: int) -> Callable[[], None]:
    """Patch torch.distributed to count the bytes of embeddings that this process receives; return the undo function."""
    real = dist.all_gather, dist.reduce_scatter, dist.batch_isend_irecv

    def all_gather(parts: list[Tensor], own: Tensor, group: Any = None) -> Any:
        if own.is_floating_point() and own.ndim == 2 and own.shape[1] == d:
            received[0] += (len(parts) - 1) * own.nbytes
        return real[0](parts, own, group)

    def reduce_scatter(own: Tensor, parts: list[Tensor], group: Any = None) -> Any:
        received[0] += (len(parts) - 1) * own.nbytes
        return real[1](own, parts, group=group)

    def send_and_receive(operations: list[Any]) -> Any:
        received[0] += sum(o.tensor.nbytes for o in operations if o.op is dist.irecv)
        return real[2](operations)

    replaced = {"all_gather": all_gather, "reduce_scatter": reduce_scatter, "batch_isend_irecv": send_and_receive}
    before = {name: getattr(dist, name) for name in replaced}
    for name, function in replaced.items():
        setattr(dist, name, function)

    def undo() -> None:
        for name, function in before.items():
            setattr(dist, name, function)

    return undo


def one_process(rank: int, n_processes: int, loss: str, exchange: str, folder: str, shape: tuple[int, int]) -> None:
    """Run a step on the part of one process and write the bytes received and the memory."""
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=n_processes)
    criterion = LOSSES[loss].load()(group="world", exchange=exchange)
    criterion(torch.randn(8, shape[1], requires_grad=True), torch.arange(8) % 2).backward()
    n = shape[0] // n_processes
    z, labels = torch.randn(n, shape[1], requires_grad=True), torch.arange(n) % N_CLASSES
    received = [0]
    undo = counted(received, shape[1])
    before = peak_bytes()
    criterion(z, labels).backward()
    measured = {"received_bytes": received[0], "peak_extra_bytes": peak_bytes() - before}
    undo()
    Path(folder, f"{rank}.json").write_text(json.dumps(measured))
    dist.destroy_process_group()


def spread(n_processes: int, loss: str, exchange: str, shape: tuple[int, int] = (N, D)) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        words = ["--rank-of", str(n_processes), "--loss", loss, "--exchange", exchange, "--folder", folder]
        words += ["--shape", *map(str, shape)]
        command = [sys.executable, "-m", "benchmarks.scaling", *words]
        started = [subprocess.Popen([*command, "--rank", str(rank)], cwd=ROOT) for rank in range(n_processes)]
        if any(process.wait() for process in started):
            raise RuntimeError("a process failed")
        measured = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(n_processes)]
    expected = expected_rows(loss, exchange, n_processes, shape[0]) * shape[1] * BYTES
    received = {one["received_bytes"] for one in measured}
    if received != {expected}:
        raise RuntimeError(f"{loss}, {exchange}, {n_processes}: received {received}, expected {expected}")
    return {
        "n": shape[0],
        "d": shape[1],
        "n_processes": n_processes,
        "loss": loss,
        "variant": exchange,
        "received_bytes": expected,
        "peak_extra_bytes": max(one["peak_extra_bytes"] for one in measured),
    }


def micro_bytes(n: int, size: int) -> None:
    """Print the memory of one step of `small` on n CIFAR-sized images, `size` at a time."""
    spec = ModelSpec(encoder="small", channels=3, size=32, mean=(0.5,) * 3, std=(0.25,) * 3, norm="group")
    fabric = Fabric(accelerator="cpu", devices=1)
    model = fabric.setup(build_model(spec))
    labels = torch.arange(n) % N_CLASSES

    def step(count: int) -> None:
        def pieces() -> Iterator[Tensor]:
            for start in range(0, count, size):
                generator = torch.Generator().manual_seed(start)
                yield torch.rand(min(size, count - start) * 2, 3, 32, 32, generator=generator)

        backward_in_micro_batches(
            fabric, model, pieces, lambda rows: sincere_loss(rows.view(count, 2, -1), labels[:count])
        )

    step(8)
    before = peak_bytes()
    step(n)
    print(peak_bytes() - before)


def micro(n: int, size: int) -> dict[str, int]:
    command = [sys.executable, "-m", "benchmarks.scaling", "--micro", str(n), str(size)]
    printed = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout
    return {"batch": n, "micro_batch": size, "peak_extra_bytes": int(printed)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--rank-of", type=int)
    parser.add_argument("--loss")
    parser.add_argument("--exchange")
    parser.add_argument("--folder")
    parser.add_argument("--shape", type=int, nargs=2)
    parser.add_argument("--micro", type=int, nargs=2)
    options = parser.parse_args()
    if options.micro:
        return micro_bytes(*options.micro)
    if options.rank is not None:
        return one_process(options.rank, options.rank_of, options.loss, options.exchange, options.folder, options.shape)
    cases = [spread(n, loss, exchange) for loss in TRIPS for exchange in ("gather", "ring") for n in PROCESSES]
    cases += [spread(4, "sincere", exchange, WIDE) for exchange in ("gather", "ring")]
    pieces = [micro(n, size) for n, size in ((256, 256), (1024, 1024), (256, 64), (1024, 64), (4096, 64))]
    print(f"wrote {write('scaling', {'spread': cases, 'micro': pieces}).name}")


if __name__ == "__main__":
    main()
