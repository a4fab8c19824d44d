"""`python -m benchmarks.tuned --cifar10 FILE --out DIR`: losses on frozen lite0 features, each at its own best.

`sincere search` over a grid of temperatures and learning rates with the default epsilon, then `sincere compare --tuned`
with three seeds. Both resume if they are interrupted; `sincere search --worker --out DIR/search` in another terminal
helps. Writes results/tuned.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import sincere
from benchmarks.frozen import compact
from benchmarks.measure import write

SPACE = ("temperature=0.05,0.1,0.2", "learning_rate=0.0003,0.001,0.003")
EPOCHS, SEEDS = 10, (0, 1, 2)


def main() -> None:
    """Search, compare and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cifar10", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--threads", type=int, help="CPU threads of a trial; 1 where workers help")
    arguments = parser.parse_args()
    options = {"data": arguments.cifar10, "freeze": True, "epochs": EPOCHS, "threads": arguments.threads}
    found = sincere.search(**options, grid="space", space=SPACE, out=arguments.out / "search")
    assert found is not None
    tuned = sincere.compare(
        tuned=arguments.out / "search", data=arguments.cifar10, seeds=SEEDS, out=arguments.out / "comparison"
    )
    trials = [trial.model_dump(mode="json", exclude={"curve"}) for trial in found.trials]
    losses = [of_loss.model_dump(mode="json") for of_loss in found.losses]
    search = {"trials": trials, "losses": losses, "n_train": found.n_train, "n_validation": found.n_validation}
    print(write("tuned", {"search": {**search, "notes": list(found.notes)}, "comparison": compact(tuned)}))


if __name__ == "__main__":
    main()
