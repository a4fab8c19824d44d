"""`python -m benchmarks.evaluation`: time of the neighbour search, compared with faiss, and of the bootstrap.

Writes results/evaluation.json and results/bootstrap.json; with `--bootstrap` only the latter. `--memory` prints the
memory of the search beyond its input in bytes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import faiss
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.measure import write
from sincere.device_memory import peak_bytes
from sincere.evaluation.neighbours import find_neighbours
from sincere.statistics.bootstrap import intervals
from sincere.workflows.timing import ratio, summary, time_in_turns

N_TEST, N_TRAIN, D, N_CLASSES = 10_000, 50_000, 128, 10
N_LOSSES, N_SEEDS, N_RESAMPLES = 3, 3, 1000


def embeddings(n: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(N_CLASSES, (n,), generator=generator)
    centres = torch.randn(N_CLASSES, D, generator=torch.Generator().manual_seed(0))
    return normalize(centres[labels] + 1.5 * torch.randn(n, D, generator=generator), dim=1), labels


def search_times(seconds: float) -> dict[str, object]:
    train, test = embeddings(N_TRAIN, 1), embeddings(N_TEST, 2)
    index = faiss.IndexFlatIP(D)
    index.add(train[0].numpy())
    cases: dict[str, Callable[[], object]] = {
        "neighbours and margins": partial(find_neighbours, *test, *train, ks=(1, 5)),
        "faiss IndexFlatIP, k = 5": partial(index.search, test[0].numpy(), 5),
    }
    times = time_in_turns(cases, seconds=seconds, warm_up=1)
    ours, theirs = times.values()
    return {"cases": {name: summary(t) for name, t in times.items()}, "time_over_faiss": 1 / ratio(ours, theirs)}


def bootstrap_times(seconds: float) -> dict[str, dict[str, float | int]]:
    generator = np.random.default_rng(0)
    right = generator.random((N_LOSSES, N_SEEDS, N_TEST)) < 0.9
    similarities = generator.random((N_LOSSES, N_SEEDS, N_TEST, 2))
    cases = {
        "accuracies": partial(intervals, list(right), n_resamples=N_RESAMPLES),
        "margins": partial(intervals, list(similarities), n_resamples=N_RESAMPLES),
    }
    return {name: summary(t) for name, t in time_in_turns(cases, seconds=seconds, warm_up=1).items()}


def search_bytes() -> int:
    """Measure the memory of the search in a fresh process, because the high-water mark never falls."""
    command = [sys.executable, "-m", "benchmarks.evaluation", "--memory"]
    root = Path(__file__).parents[1]
    return int(subprocess.run(command, check=True, cwd=root, stdout=subprocess.PIPE, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--bootstrap", action="store_true")
    parser.add_argument("--seconds", type=float, default=30.0, help="minimum time for each group of cases")
    options = parser.parse_args()
    if options.memory:
        train, test = embeddings(N_TRAIN, 1), embeddings(N_TEST, 2)
        find_neighbours(test[0][:8], test[1][:8], train[0][:500], train[1][:500])  # libraries load here
        before = peak_bytes()
        find_neighbours(*test, *train, ks=(1, 5))
        print(peak_bytes() - before)
        return
    resampling = {
        "n_test": N_TEST,
        "n_losses": N_LOSSES,
        "n_seeds": N_SEEDS,
        "n_resamples": N_RESAMPLES,
        "cases": bootstrap_times(options.seconds),
    }
    print(f"wrote {write('bootstrap', resampling).name}: {resampling}")
    if options.bootstrap:
        return
    search = {**search_times(options.seconds), "peak_extra_bytes": search_bytes()}
    results = {"n_test": N_TEST, "n_train": N_TRAIN, "d": D, "search": search}
    print(f"wrote {write('evaluation', results).name}: {search}")


if __name__ == "__main__":
    main()
