"""`python -m benchmarks.kill_and_resume`: SIGKILL a run at 20 random moments, resume it each time, compare the weights.

Writes results/kill_and_resume.json; exits with 1 if a weight or a row differs from the uninterrupted run.
"""

from __future__ import annotations

import argparse
import json
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    whole, parts = folder / "whole", folder / "parts"
    settings = ["--data", "digits", "--validation", "0.1", "--validate-every", "5", "--checkpoint-minutes", "0.002"]
    command = [sys.executable, "-m", "sincere.cli", "train", "--quiet"]
    first = [*command, *settings, "--epochs", str(options.epochs)]
    began = time.monotonic()
    subprocess.run([*first, "--out", str(whole)], check=True)
    seconds = time.monotonic() - began
    generator, kills, before_first, next_command = random.Random(options.seed), 0, 0, [*first, "--out", str(parts)]
    while kills < options.kills:
        process = subprocess.Popen(next_command)
        try:
            process.wait(timeout=generator.uniform(0.5, 0.25 * seconds))
            break  # finished before it could be killed
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
        before_first += not (parts / "config.toml").exists()
        resume = [*command, "--resume", "--out", str(parts)]
        next_command = resume if (parts / "config.toml").exists() else next_command
    subprocess.run(next_command, check=True) if not (parts / "summary.json").exists() else None
    one, other = (load_file(path / "model.safetensors") for path in (whole, parts))
    same = one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    same_rows = rows(whole) == rows(parts)
    write(
        "kill_and_resume",
        {"kills": kills, "before_first_write": before_first, "same_weights": same, "same_rows": same_rows},
    )
    print(f"{kills} kills: weights {'the same' if same else 'DIFFER'}, rows {'the same' if same_rows else 'DIFFER'}")
    sys.exit(not (same and same_rows))


if __name__ == "__main__":
    main()
