"""`python -m benchmarks.kill_and_resume`: SIGKILL a run at 20 random moments, resume it each time, compare the weights.

Writes results/kill_and_resume.json; exits with 1 if a weight or a row differs from the uninterrupted run.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from benchmarks.measure import write

TIMED = ("images_per_second", "data_wait_share", "seconds")


def rows(folder: Path) -> list[dict[str, Any]]:
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [{key: value for key, value in json.loads(line).items() if key not in TIMED} for line in lines]


def step_reached(folder: Path) -> int:
    """Return the step of the newest checkpoint, 0 if there is none."""
    return max((int(path.stem.split("-")[1]) for path in folder.glob("checkpoints/step-*.pt")), default=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0, help="random seed of the moments")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    whole, parts = folder / "whole", folder / "parts"
    settings = ["--data", "digits", "--validation", "0.1", "--validate-every", "5"]
    command = [sys.executable, "-m", "sincere.cli", "train", "--quiet", "--checkpoint-minutes", "0.002"]
    first = [*command, *settings, "--epochs", str(options.epochs)]
    began = time.monotonic()
    subprocess.run([*first, "--out", str(whole)], check=True)
    training = json.loads((whole / "summary.json").read_text())["seconds"]
    starting = time.monotonic() - began - training  # imports, loading, final evaluation
    generator, steps, before_first = random.Random(options.seed), list[int](), 0
    command_now = [*first, "--out", str(parts)]
    while len(steps) < options.kills:
        process = subprocess.Popen(command_now)
        # Kill it a random number of steps later or, one time in five, while it is still starting.
        wanted = step_reached(parts) + generator.randint(1, options.epochs * 5 // options.kills)
        early = time.monotonic() + generator.uniform(0, starting) if generator.random() < 0.2 else math.inf
        while process.poll() is None and step_reached(parts) < wanted and time.monotonic() < early:
            time.sleep(0.002)
        time.sleep(generator.uniform(0, 0.1))
        if process.poll() is not None:
            break
        process.kill()
        process.wait()
        steps.append(step_reached(parts))
        if (parts / "config.toml").exists():
            command_now = [*command, "--resume", "--out", str(parts)]
        else:
            before_first += 1
            command_now = [*first, "--overwrite", "--out", str(parts)]
    subprocess.run(command_now, check=True)
    one, other = (load_file(path / "model.safetensors") for path in (whole, parts))
    same = one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    counts = {"kills": len(steps), "before_first_write": before_first, "steps": steps}
    checks = {"same_weights": same, "same_rows": rows(whole) == rows(parts)}
    write("kill_and_resume", {**counts, **checks})
    print({**counts, **checks})
    sys.exit(not (all(checks.values()) and len(steps) == options.kills))


if __name__ == "__main__":
    main()
