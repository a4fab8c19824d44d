"""Time and memory of the losses on this machine, and their bounds where the divergence is known."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch
from torch import Tensor

from sincere.catalog import LOSSES
from sincere.device_memory import peak_bytes
from sincere.records.manifest import make_manifest, now
from sincere.records.reproduction import BoundRow, CostRow, Measurements
from sincere.theory.sweeps import gaussian_sweep

SIZES = (512, 1024, 2048, 4096, 8192)
COMPARED = ("supcon", "sincere")
N_CLASSES, DIM, TEMPERATURE, ROUNDS = 10, 128, 0.1, 5


def measure_losses() -> Measurements:
    """Measure time, memory and bounds; takes less than a minute."""
    started = now()
    costs = [
        CostRow(loss=loss, n=n, seconds=seconds, peak_bytes=_peak_bytes_apart(loss, n))
        for n in SIZES
        for loss, seconds in _seconds_in_turns(n).items()
    ]
    return Measurements(
        costs=tuple(costs), bounds=known_bounds(), manifest=make_manifest(seed=0, device="cpu", started=started)
    )


def known_bounds() -> tuple[BoundRow, ...]:
    """Return loss and bounds for two Gaussians and growing numbers of negatives."""
    rows: dict[float, dict[str, float]] = {}
    for row in gaussian_sweep():
        if row["varied"] == "n_noise":
            found = rows.setdefault(row["value"], {})
            found[row["quantity"]] = row["nats"]
            if row["quantity"] == "loss":
                found["standard_error"] = row["standard_error"]
    return tuple(
        BoundRow(
            n_noise=int(n),
            divergence=found["symmetrised KL"],
            loss=found["loss"],
            standard_error=found["standard_error"],
            bound=found["bound (paper)"],
            tighter_bound=found["bound (tighter)"],
        )
        for n, found in rows.items()
    )


def _seconds_in_turns(n: int) -> dict[str, float]:
    """Return the median time of a step of each loss; they take turns, so that other load hits both."""
    embeddings, labels = _problem(n)
    times: dict[str, list[float]] = {loss: [] for loss in COMPARED}
    for number in range(ROUNDS + 1):
        for loss, found in times.items():
            start = time.perf_counter()
            _step(loss, embeddings, labels)
            if number:  # the first one allocates memory
                found.append(time.perf_counter() - start)
    return {loss: statistics.median(found) for loss, found in times.items()}


def _peak_bytes_apart(loss: str, n: int) -> int:
    """Return the peak memory of a step, measured in a process of its own: a high-water mark never falls."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_peak_bytes, loss, n).result()


def _peak_bytes(loss: str, n: int) -> int:
    _step(loss, *_problem(SIZES[0] // 2))  # loads the libraries
    embeddings, labels = _problem(n)
    before = peak_bytes()
    _step(loss, embeddings, labels)
    return peak_bytes() - before


def _problem(n: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    embeddings = torch.randn(n, DIM, generator=generator).requires_grad_()
    return embeddings, torch.randint(N_CLASSES, (n,), generator=generator)


def _step(loss: str, embeddings: Tensor, labels: Tensor) -> None:
    embeddings.grad = None
    LOSSES[loss].load()(temperature=TEMPERATURE)(embeddings, labels).backward()
