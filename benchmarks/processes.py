"""`torchrun --nproc-per-node 8 -m benchmarks.processes`: parity and time of both exchanges, on GPUs with NCCL.

Every process holds a part of one batch. The value and the gradient of gather and ring are compared with those of the
whole batch in one process, first; then a step of each is timed. Without GPUs it runs on CPUs with gloo, which is how it
was tried; nobody has run it with NCCL yet. Prints a table and writes processes.json to the current folder.
"""

from __future__ import annotations

import argparse
import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks.measure import machine
from sincere import sincere_loss, supcon_loss
from sincere.workflows.loss_cases import make_batch
from sincere.workflows.timing import summary, time_in_turns

LOSSES = {"sincere": sincere_loss, "supcon": supcon_loss}
N_CLASSES, TOLERANCE = 100, 1e-4


def step(loss: Any, rows: Tensor, labels: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """Return the value of a loss and the gradient of the rows."""
    rows = rows.detach().requires_grad_()
    value = loss(rows, labels, **options)
    value.backward()
    assert rows.grad is not None
    return value.detach(), rows.grad


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max().clamp_min(1e-30))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--batch-sizes", type=int, nargs="+", default=[4096, 16384], help="embeddings of all processes together"
    )
    parser.add_argument("--dim", type=int, default=128, help="dimension")
    parser.add_argument("--seconds", type=float, default=5.0, help="shortest time of each size")
    options = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, n_processes = dist.get_rank(), dist.get_world_size()
    rows = []
    for n in options.batch_sizes:
        batch = make_batch(n, options.dim, N_CLASSES, device)
        own = torch.arange(n, device=device).tensor_split(n_processes)[rank]
        part, labels = batch.embeddings.detach()[own], batch.labels[own]
        for name, loss in LOSSES.items():
            value, gradient = step(loss, batch.embeddings, batch.labels)
            steps = {
                exchange: partial(step, loss, part, labels, group="world", exchange=exchange)
                for exchange in ("gather", "ring")
            }
            errors = {}
            for exchange, take in steps.items():
                found, found_gradient = take()
                error = max(relative_error(found, value), relative_error(found_gradient / n_processes, gradient[own]))
                worst = torch.tensor(error, device=device)
                dist.all_reduce(worst, dist.ReduceOp.MAX)
                errors[exchange] = worst.item()
                if errors[exchange] > TOLERANCE:
                    raise SystemExit(f"{name}, {exchange}, n = {n}: relative error {errors[exchange]:.1e}")
            # The same number of rounds in every process, or they would wait for each other for ever.
            once = time_in_turns(steps, seconds=0, least=3, device=device)
            rounds = torch.tensor(int(options.seconds * 1e3 / max(1e-3, sum(map(min, once.values())))), device=device)
            dist.broadcast(rounds, 0)
            times = time_in_turns(steps, seconds=0, warm_up=0, least=max(3, int(rounds)), device=device)
            for exchange, times_ms in times.items():
                about = {"loss": name, "exchange": exchange, "n": n, "relative_error": errors[exchange]}
                rows.append({**about, **summary(times_ms)})
                if rank == 0:
                    line = f"{name:8} {exchange:6} n = {n:>7,}: {rows[-1]['median_ms']:9.1f} ms"
                    print(f"{line}, relative error {errors[exchange]:.1e}", flush=True)
    if rank == 0:
        backend = {"backend": dist.get_backend(), "processes": n_processes, "d": options.dim}
        device_name = torch.cuda.get_device_name(device) if on_gpu else "cpu"
        content = {"machine": machine(), "device": device_name, **backend, "rows": rows}
        Path("processes.json").write_text(json.dumps(content, indent=1) + "\n")
        print("wrote processes.json")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
