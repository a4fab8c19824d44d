"""`python -m benchmarks.half_hour`: train `small` on CIFAR-10, for half an hour on two CPU cores.

Runs `sincere train` with the settings below; writes results/half_hour.json and docs/figures/half-hour.svg.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import RESULTS, write
from sincere.report.figure_files import save_figure
from sincere.report.theory_figures import training_figure

SETTINGS = (
    "--n-views 1 --augmentation light --learning-rate 0.1 --weight-decay 0.1 --validation 0.02 --validate-every 2"
)
FIGURES = Path(__file__).parents[1] / "docs" / "figures"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cifar10", default="data/cifar10.npz")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--draw", action="store_true", help="only draw the figure of the stored result")
    options = parser.parse_args()
    if not options.draw:
        words = ["train", "--data", options.cifar10, *SETTINGS.split(), "--epochs", str(options.epochs)]
        out = Path(tempfile.mkdtemp()) / "run"
        began = time.monotonic()
        subprocess.run([sys.executable, "-m", "sincere.cli", *words, "--out", str(out)], check=True)
        seconds = time.monotonic() - began
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        summary = json.loads((out / "summary.json").read_text())
        write("half_hour", {"command": " ".join(["sincere", *words]), "wall_seconds": seconds, **summary, "rows": rows})
    stored = json.loads((RESULTS / "half_hour.json").read_text())
    save_figure(training_figure(stored["rows"]), FIGURES, "half-hour", formats=("svg",))
    print(f"1-NN {stored['knn1_test']:.4f} after {stored['wall_seconds'] / 60:.1f} minutes")


if __name__ == "__main__":
    main()
