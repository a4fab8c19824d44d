"""`python -m benchmarks.label_sets`: time and memory of label sets beside those of one label per image.

SINCERE, value and gradient, 80 labels, three per row. Writes results/label_sets.json; `python -m benchmarks.tables`
turns it into a table of docs/explanation/loss-family.md.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from benchmarks.cases import make_label_sets
from benchmarks.measure import write
from benchmarks.memory import peak_extra_bytes
from sincere import sincere_loss
from sincere.workflows.loss_cases import LabelledBatch, make_batch, step_of
from sincere.workflows.timing import ratio, summary, time_in_turns

D, SIZES = 128, (1024, 8192)


def measure(n: int, seconds: float) -> dict[str, Any]:
    """Measure one step of both kinds of labels in turns, and their memory in processes of their own."""
    step = step_of(sincere_loss, kernel="tiled")
    batch = make_batch(n, D, 100)
    sets = LabelledBatch(batch.embeddings, make_label_sets(n))
    times_ms = time_in_turns(
        {"one label": partial(step, batch), "label sets": partial(step, sets)}, seconds=seconds, least=5
    )
    result = {
        "n": n,
        "cases": {case: summary(t) for case, t in times_ms.items()},
        "times_slower": ratio(times_ms["one label"], times_ms["label sets"]),
        "extra_bytes": {
            "one label": peak_extra_bytes(n, kernel="tiled"),
            "label sets": peak_extra_bytes(n, kernel="label-sets"),
        },
    }
    print(f"n = {n:,}: label sets take {result['times_slower']:.2f} times as long; {result['extra_bytes']}", flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="minimum time for each size")
    options = parser.parse_args()
    results = [measure(n, options.seconds) for n in SIZES]
    print(f"wrote {write('label_sets', {'d': D, 'sizes': results}).name}")


if __name__ == "__main__":
    main()
