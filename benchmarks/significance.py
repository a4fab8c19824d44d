"""`python -m benchmarks.significance`: false positives and coverage of the confidence intervals.

Trains one loss on the digits with ten seeds (in a temporary folder, or in `--folder`, where finished runs are reused)
and counts how often disjoint groups of its seeds are called different; then simulates the coverage of the interval over
a grid of variances. Writes results/significance.json.
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sincere
from benchmarks.measure import write
from sincere.errors import DataError
from sincere.records.arrays import PerImage
from sincere.records.results import MetricAbout, Results
from sincere.statistics.bootstrap import N_RESAMPLES, half_width
from sincere.statistics.comparison import compare_losses

N_RUNS, EPOCHS, GROUP = 10, 15, 3
DRAWS = 120  # random pairs of groups
METRICS = {
    "margin": MetricAbout(title="margin", share=False),
    "knn1": MetricAbout(title="1-NN accuracy", share=True),
}
N_IMAGES, REPETITIONS = 200, 20_000
IMAGE_STDS, SEED_STDS, SEEDS = (0.0, 0.5, 1.0, 2.0), (0.0, 0.03, 0.1, 0.3), (3, 4, 5, 7, 10)


def trained(folder: Path) -> list[PerImage]:
    """Train a run for each seed, unless it is there already, and return the values of its test images."""
    found = []
    for seed in range(N_RUNS):
        run = folder / f"sincere-{seed}"
        try:
            row = Results.read(run).rows[0]
            if not row.finished or row.epochs != EPOCHS or row.seed != seed or not row.metrics.keys() >= set(METRICS):
                raise DataError(f"{run}: is another run")
        except DataError:
            resume = (run / "config.toml").exists()
            sincere.train(data="digits", loss="sincere", seed=seed, epochs=EPOCHS, out=run, resume=resume, quiet=True)
            sincere.evaluate(run, metrics=("margin", "knn"), report=False, quiet=True)
        found.append(PerImage.read(run))
    return found


def called_different(runs: list[PerImage], one: tuple[int, ...], other: tuple[int, ...]) -> dict[str, bool]:
    """Return for each metric whether the difference between two groups of seeds is called significant."""
    paired = {("one", i): runs[run] for i, run in enumerate(one)}
    paired |= {("other", i): runs[run] for i, run in enumerate(other)}
    _, differences = compare_losses(paired, METRICS)
    return {difference.metric: difference.significant for difference in differences}


def all_called_different(runs: list[PerImage]) -> dict[str, int]:
    """Return, for each metric, how many of all pairs of disjoint groups of three seeds are called different.

    There are too many to compare one by one, so the runs are resampled once and the groups are combined from that.
    """
    groups = np.array(
        [
            (*one, *other)
            for one in combinations(range(N_RUNS), GROUP)
            for other in permutations([run for run in range(N_RUNS) if run not in one], GROUP)
            if one[0] < min(other)  # each pair once
        ]
    )
    one, other = groups[:, :GROUP], groups[:, GROUP:]
    n = len(runs[0].ids)
    chosen = np.random.default_rng(0).integers(n, size=(N_RESAMPLES, n))
    counts = {"pairs": len(groups)}
    for metric in METRICS:
        found = [run.values[metric] for run in runs]
        values = np.array([value(x) for x in found])
        resampled = np.array([value(x[chosen]) for x in found])  # (runs, resamples)
        differences = values[one] - values[other]
        image_variance = (resampled[one] - resampled[other]).mean(axis=1).var(axis=1, ddof=1)
        seed_variance = differences.var(axis=1, ddof=1) / GROUP
        half = half_width(image_variance, seed_variance, n_images=n, n_seeds=GROUP)
        counts[metric] = int((np.abs(differences.mean(axis=1)) > half).sum())
    return counts


def value(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return accuracies from (..., images), or margins from (..., images, 2)."""
    if values.shape[-1] != 2:
        accuracy: NDArray[np.float64] = values.mean(axis=-1)
        return accuracy
    medians = np.median(values, axis=-2)
    margin: NDArray[np.float64] = medians[..., 0] - medians[..., 1]
    return margin


def false_positives(runs: list[PerImage]) -> dict[str, Any]:
    """Return how often groups of seeds of the same loss are called different, for groups of one seed and of three."""
    generator = np.random.default_rng(0)
    draws = [tuple(map(int, generator.permutation(N_RUNS)[: 2 * GROUP])) for _ in range(DRAWS)]
    of_one = [called_different(runs, (i,), (j,)) for i, j in combinations(range(N_RUNS), 2)]
    of_three = [called_different(runs, draw[:GROUP], draw[GROUP:]) for draw in draws]
    counted = [
        {"seeds": seeds, "drawn": drawn, "pairs": len(found), **{name: sum(x[name] for x in found) for name in METRICS}}
        for seeds, drawn, found in ((1, "all", of_one), (GROUP, "at random", of_three))
    ]
    return {
        "data": "digits",
        "loss": "sincere",
        "epochs": EPOCHS,
        "n_runs": N_RUNS,
        "n_test": len(runs[0].ids),
        "cases": [*counted, {"seeds": GROUP, "drawn": "all", **all_called_different(runs)}],
    }


def coverage(
    image_std: float, seed_std: float, both_std: float, n_seeds: int, *, repetitions: int = REPETITIONS, seed: int = 0
) -> float:
    """Return how often the confidence interval of a difference covers its true value, in a simulation.

    The difference on an image under a seed is the true value plus an effect of the image, an effect of the seed and an
    interaction of both: independent normal variables with these standard deviations.
    """
    generator = np.random.default_rng([seed, n_seeds])
    covered = 0
    for start in range(0, repetitions, 1000):
        n = min(1000, repetitions - start)
        values = image_std * generator.standard_normal((n, 1, N_IMAGES))
        values = values + seed_std * generator.standard_normal((n, n_seeds, 1))
        values = values + both_std * generator.standard_normal((n, n_seeds, N_IMAGES))
        per_seed = values.mean(axis=2)
        # The variance of a mean over infinitely many resamples, times the error of a finite number of resamples.
        resampled = generator.chisquare(N_RESAMPLES - 1, n) / (N_RESAMPLES - 1)
        image_variance = values.mean(axis=1).var(axis=1) / N_IMAGES * resampled
        seed_variance = per_seed.var(axis=1, ddof=1) / n_seeds
        half = half_width(image_variance, seed_variance, n_images=N_IMAGES, n_seeds=n_seeds)
        covered += int((np.abs(per_seed.mean(axis=1)) <= half).sum())
    return covered / repetitions


def simulated() -> dict[str, Any]:
    """Return the coverage over the grid, and for an interaction of image and seed alone."""
    cells = [
        {"n_seeds": n_seeds, "image_std": image, "seed_std": one, "coverage": coverage(image, one, 0.0, n_seeds)}
        for n_seeds in SEEDS
        for image in IMAGE_STDS
        for one in SEED_STDS
        if image or one
    ]
    both = [{"n_seeds": n_seeds, "coverage": coverage(0.0, 0.0, 1.0, n_seeds)} for n_seeds in SEEDS]
    return {"n_images": N_IMAGES, "repetitions": REPETITIONS, "cells": cells, "image_by_seed_only": both}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="folder of the runs; default: a temporary one")
    options = parser.parse_args()
    simulation = simulated()
    with tempfile.TemporaryDirectory() as temporary:
        runs = trained(options.folder or Path(temporary))
        found = false_positives(runs)
    path = write("significance", {"same_loss": found, "simulation": simulation})
    shares = [cell["coverage"] for cell in simulation["cells"]]
    print(f"wrote {path.name}: {found['cases']}; coverage {min(shares):.3f} to {max(shares):.3f}")


if __name__ == "__main__":
    main()
