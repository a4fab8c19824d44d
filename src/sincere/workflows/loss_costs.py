"""What the losses cost on this machine, and how they meet the theory: bounds and gradient coefficients."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import torch
from torch import Tensor

from sincere.device_memory import peak_bytes
from sincere.loss_catalog import LOSSES
from sincere.records.manifest import make_manifest, now
from sincere.records.reproduction import CostRow, Costs
from sincere.report.reproduction_contents import CoefficientRange, KnownBound
from sincere.theory.coefficients import gradient_coefficients
from sincere.theory.sweeps import coefficient_ranges, gaussian_sweep

SIZES = (512, 1024, 2048, 4096, 8192)
COMPARED = ("supcon", "sincere")
N_POSITIVES = (1, 2, 8, 32, 128)
N_CLASSES, DIM, TEMPERATURE, REPETITIONS = 10, 128, 0.1, 5


def measure_costs() -> Costs:
    """Measure time and memory; takes less than a minute."""
    started = now()
    rows = [
        CostRow(loss=loss, n=n, seconds=seconds, peak_bytes=_peak_bytes_apart(loss, n))
        for n in SIZES
        for loss, seconds in _seconds_in_turns(n).items()
    ]
    manifest = make_manifest(seed=0, device="cpu", started=started)
    del manifest["command"]
    return Costs(rows=tuple(rows), manifest=manifest)


def known_bounds() -> tuple[KnownBound, ...]:
    """Return loss and bounds for two Gaussians and growing numbers of negatives; takes seconds."""
    values: dict[int, dict[str, float]] = {}
    for row in gaussian_sweep():
        if row["varied"] == "n_noise":
            of_size = values.setdefault(int(row["value"]), {})
            of_size[row["quantity"]] = row["nats"]
            if row["quantity"] == "loss":
                of_size["standard_error"] = row["standard_error"]
    return tuple(
        KnownBound(
            n_noise=n,
            divergence=of_size["symmetrised KL"],
            loss=of_size["loss"],
            standard_error=of_size["standard_error"],
            bound=of_size["bound (paper)"],
            tighter_bound=of_size["bound (tighter)"],
        )
        for n, of_size in values.items()
    )


def coefficient_extremes() -> tuple[CoefficientRange, ...]:
    """Return the paper's ranges of the gradient coefficient on a positive, and what batches made for it reach."""
    names = {LOSSES[name].title: name for name in COMPARED}
    ranges = []
    for row in coefficient_ranges(N_POSITIVES):
        loss, n = names[row["loss"]], row["n_partners"]
        lowest, highest = (_coefficient(loss, n, towards) for towards in (-1.0, 1.0))
        ranges.append(CoefficientRange(loss, n, row["low"], row["high"], lowest=lowest, highest=highest))
    return tuple(ranges)


def _coefficient(loss: str, n_positives: int, towards: float) -> float:
    """Return the coefficient on one positive at `towards` the anchor, 1 or -1, with all other items opposite to it."""
    labels = torch.tensor([0] * (1 + n_positives) + [1])  # the anchor, its positives, a negative
    embeddings = torch.full((len(labels), 1), -towards, dtype=torch.float64)
    embeddings[0], embeddings[1] = 1.0, towards
    return float(gradient_coefficients(embeddings, labels, loss=loss, temperature=TEMPERATURE)[0, 1])


def _seconds_in_turns(n: int) -> dict[str, float]:
    """Return the median time of a step of each loss; they take turns, so that other load hits both."""
    embeddings, labels = _problem(n)
    times: dict[str, list[float]] = {loss: [] for loss in COMPARED}
    for repetition in range(REPETITIONS + 1):
        for loss, of_loss in times.items():
            start = time.perf_counter()
            _step(loss, embeddings, labels)
            if repetition:  # the first one allocates memory
                of_loss.append(time.perf_counter() - start)
    return {loss: statistics.median(of_loss) for loss, of_loss in times.items()}


def _peak_bytes_apart(loss: str, n: int) -> int:
    """Return the peak memory of a step, measured in a process of its own: a high-water mark never falls."""
    command = [sys.executable, "-m", __name__, loss, str(n)]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def _peak_bytes(loss: str, n: int) -> int:
    """Return the peak memory of a step in this process."""
    _step(loss, *_problem(SIZES[0] // 2))  # loads the libraries
    embeddings, labels = _problem(n)
    before = peak_bytes()
    _step(loss, embeddings, labels)
    return max(0, peak_bytes() - before)  # Linux counts to some hundred kilobytes: for small n its mark may even fall


def _problem(n: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    embeddings = torch.randn(n, DIM, generator=generator).requires_grad_()
    return embeddings, torch.randint(N_CLASSES, (n,), generator=generator)


def _step(loss: str, embeddings: Tensor, labels: Tensor) -> None:
    embeddings.grad = None
    LOSSES[loss].load()(temperature=TEMPERATURE)(embeddings, labels).backward()


if __name__ == "__main__":
    print(_peak_bytes(sys.argv[1], int(sys.argv[2])))
