"""`python -m benchmarks.theory`: time of the diagnostics in `sincere.theory`. Writes results/theory.json."""

from __future__ import annotations

from functools import partial

import torch

from benchmarks.measure import write
from sincere.theory.coefficients import repulsion_meter
from sincere.theory.divergence import class_divergence_bounds
from sincere.workflows.loss_cases import make_batch
from sincere.workflows.timing import summary, time_in_turns


def main() -> None:
    z = make_batch(1024, 128, 1).embeddings.detach()
    meters = {
        f"repulsion_meter, 1,024 x 128, {c} classes": partial(repulsion_meter, z, torch.arange(1024) % c)
        for c in (2, 10, 100)
    }
    many = make_batch(50_000, 128, 10)
    embeddings, labels = many.embeddings.detach(), many.labels
    bounds = {
        "class_divergence_bounds, 50,000 x 128, 10 classes": partial(class_divergence_bounds, embeddings, labels),
        "the same with n_noise = 5,000": partial(class_divergence_bounds, embeddings, labels, n_noise=5000),
    }
    times_ms = {**time_in_turns(meters, seconds=5, warm_up=5), **time_in_turns(bounds, seconds=5, warm_up=1, least=3)}
    results = {name: summary(t) for name, t in times_ms.items()}
    for name, result in results.items():
        print(f"{name}: {result['median_ms']:,.1f} ms")
    print(f"wrote {write('theory', {'cases': results}).name}")


if __name__ == "__main__":
    main()
