"""`python -m benchmarks.set_loss`: time of the loss over sets beside SINCERE's, and the error of its saddle point.

One step is value and gradient. Writes results/set_loss.json; `python -m benchmarks.tables` turns it into a table of
docs/explanation/losses.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import write
from sincere import set_sincere_loss, sincere_loss
from sincere.workflows.loss_cases import LabelledBatch, make_batch, step_of
from sincere.workflows.timing import ratio, summary, time_in_turns

N, D = 1024, 128
BASELINE = "SINCERE"
STEPS: dict[str, Callable[..., None]] = {
    BASELINE: step_of(sincere_loss, kernel="tiled"),
    "saddle": step_of(set_sincere_loss, method="saddle"),
    "exact": step_of(set_sincere_loss, method="exact"),
}


def apart(batch: LabelledBatch) -> LabelledBatch:
    """Return the batch with class means added, as after some training: 1-NN would be right for nearly every row."""
    centres = torch.randn(int(batch.labels.max()) + 1, D, generator=torch.Generator().manual_seed(1))
    return LabelledBatch((batch.embeddings.detach() + 2 * centres[batch.labels]).requires_grad_(), batch.labels)


def measure(name: str, batch: LabelledBatch, seconds: float) -> dict[str, Any]:
    """Measure one step of each method and SINCERE in turns, and the largest difference between the methods."""
    times_ms = time_in_turns({case: partial(step, batch) for case, step in STEPS.items()}, seconds=seconds, least=7)
    slower = {case: ratio(times_ms[BASELINE], t) for case, t in times_ms.items() if case != BASELINE}
    each = [each_loss(batch, method) for method in ("saddle", "exact")]
    result = {
        "batch": name,
        "cases": {case: summary(t) for case, t in times_ms.items()},
        "times_slower": slower,
        "largest_error": float((each[0] - each[1]).abs().max()),
    }
    print(f"{name}: times SINCERE's {slower}, largest error {result['largest_error']:.1e}", flush=True)
    return result


@torch.no_grad()
def each_loss(batch: LabelledBatch, method: Any) -> Tensor:
    """Return the loss of each anchor in float64."""
    return set_sincere_loss(batch.embeddings.double(), batch.labels, method=method, reduction="none")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="minimum time for each batch")
    options = parser.parse_args()
    ten, many = make_batch(N, D, 10), make_batch(N, D, 1)
    eights = LabelledBatch(many.embeddings, torch.arange(N) // 8)  # 7 positives each: what "auto" computes exactly
    batches = {"10 classes": ten, "10 classes, apart": apart(ten), "128 classes of 8": eights}
    results = [measure(name, batch, options.seconds) for name, batch in batches.items()]
    print(f"wrote {write('set_loss', {'n': N, 'd': D, 'batches': results}).name}")


if __name__ == "__main__":
    main()
