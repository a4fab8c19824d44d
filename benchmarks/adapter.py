"""`python -m benchmarks.adapter`: time and memory of an adapter on ready-made features. Writes results/adapter.json.

Speed: 50,000 x 1,280 features of 10 classes, batches of 4,096 with two views, against the same loop with
pytorch-metric-learning's SupConLoss: same head, optimiser, dropout and batches. Its epochs are timed singly, because 30
would take half an hour. Accuracy: 20,000 x 768 features of 20 classes, against logistic regression.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from torch.nn.functional import dropout, normalize

import sincere
from benchmarks.measure import write
from sincere.models.heads import mlp
from sincere.workflows.train import TrainResult

EPOCHS, BATCH, DROPOUT = 30, 4096, 0.5
Arrays = dict[str, NDArray[Any]]


def gaussian_classes(n: int, d: int, n_classes: int, *, spread: float, seed: int = 0) -> Arrays:
    """Return features and labels of classes around random centres, with a fifth more samples for testing."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(n_classes, d)).astype(np.float32)
    arrays: Arrays = {}
    for part, size in (("train", n), ("test", n // 5)):
        labels = np.arange(size) % n_classes
        noise = generator.standard_normal((size, d), dtype=np.float32)
        arrays |= {f"{part}_features": centres[labels] + spread * noise, f"{part}_labels": labels}
    return arrays


def train_adapter(arrays: Arrays, folder: Path, **settings: Any) -> tuple[float, TrainResult]:
    """Train with `sincere.train`; return the seconds of all of it, and the result."""
    start = time.perf_counter()
    result = sincere.train(data=arrays, out=folder, quiet=True, **settings)
    return time.perf_counter() - start, result


def plain_loop(arrays: Arrays, n_epochs: int) -> float:
    """Return the seconds of training with pytorch-metric-learning's loss."""
    from pytorch_metric_learning.losses import SupConLoss

    torch.manual_seed(0)
    features, labels = (torch.from_numpy(arrays[f"train_{name}"]) for name in ("features", "labels"))
    head = mlp(features.shape[1], 128)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3, weight_decay=0.01)
    criterion = SupConLoss(temperature=0.1)
    start = time.perf_counter()
    for _ in range(n_epochs):
        for rows in torch.randperm(len(labels))[: len(labels) // BATCH * BATCH].split(BATCH):
            views = dropout(features[rows].repeat(2, 1), DROPOUT)
            loss = criterion(normalize(head(views), dim=1), labels[rows].repeat(2))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
    return time.perf_counter() - start


def measure_speed(rounds: int) -> dict[str, Any]:
    """Time 30 epochs of ours and one of the plain loop, in turns."""
    arrays = gaussian_classes(50_000, 1280, 10, spread=4.0)
    ours, theirs, training = [], [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            seconds, result = train_adapter(
                arrays, Path(folder) / "run", loss="supcon", epochs=EPOCHS, batch_size=BATCH, feature_dropout=DROPOUT
            )
        ours.append(seconds)
        training.append(result.seconds)
        theirs.append(EPOCHS * plain_loop(arrays, 1))
    return {
        "shape": [50_000, 1280],
        "epochs": EPOCHS,
        "batch_size": BATCH,
        "all_seconds": ours,
        "training_seconds": training,
        "plain_seconds": theirs,
        "times_faster": float(np.median(np.array(theirs) / np.array(ours))),
        "peak_bytes_beyond_features": peak_bytes(),
    }


def peak_bytes() -> int:
    """Return the memory that training takes beyond the imports and the features, from a process of its own."""
    code = "from benchmarks.adapter import _print_peak; _print_peak()"
    return int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def _print_peak() -> None:
    small = gaussian_classes(400, 1280, 10, spread=4.0)
    options: dict[str, Any] = {"loss": "supcon", "epochs": 1, "feature_dropout": DROPOUT}
    with tempfile.TemporaryDirectory() as folder:
        train_adapter(small, Path(folder) / "small", **options)  # imports and starts everything
        arrays = gaussian_classes(50_000, 1280, 10, spread=4.0)
        gc.collect()
        process, done = psutil.Process(), threading.Event()
        sizes = [process.memory_info().rss]

        def watch() -> None:
            while not done.wait(0.02):
                sizes.append(process.memory_info().rss)

        watcher = threading.Thread(target=watch)
        watcher.start()
        train_adapter(arrays, Path(folder) / "run", batch_size=BATCH, **options)
        done.set()
        watcher.join()
    print(max(sizes) - sizes[0])


def measure_accuracy() -> dict[str, Any]:
    """Train on synthetic features with default settings, against logistic regression."""
    from sklearn.linear_model import LogisticRegression

    arrays = gaussian_classes(20_000, 768, 20, spread=7.0)
    with tempfile.TemporaryDirectory() as folder:
        seconds, result = train_adapter(arrays, Path(folder) / "run")
        evaluated = sincere.evaluate(Path(folder) / "run", data=arrays, quiet=True, report=False)
    start = time.perf_counter()
    model = LogisticRegression(max_iter=1000).fit(arrays["train_features"], arrays["train_labels"])
    accuracy = float(model.score(arrays["test_features"], arrays["test_labels"]))
    return {
        "shape": [20_000, 768],
        "n_classes": 20,
        "epochs": result.epochs,
        "seconds": seconds,
        "metrics": {name: x.estimate for name, x in evaluated.rows[0].metrics.items()},
        "logistic_regression": accuracy,
        "logistic_regression_seconds": time.perf_counter() - start,
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    results = {"accuracy": measure_accuracy(), "speed": measure_speed(rounds)}
    print(write("adapter", results), results)


if __name__ == "__main__":
    main()
