"""`python -m benchmarks.load`: time and size of the report and of results.json for many classes and images.

Nothing is trained: the values are random.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sincere.evaluation.margins import class_margins, margin
from sincere.records.arrays import MAP, EmbeddingMap
from sincere.records.estimates import Estimate
from sincere.records.results import (
    REPORT,
    RESULTS,
    ClassRow,
    DataAbout,
    Difference,
    LossSummary,
    MetricAbout,
    Results,
    Row,
    TrainLoss,
)
from sincere.report.page import write_report
from sincere.workflows.class_table import margin_about
from sincere.workflows.measure import MOST_TRAIN_THUMBNAILS, TRAIN_THUMBNAIL

LOSSES = ("sincere", "supcon", "eps-supinfonce")
N_POINTS, SIDE = 2000, 32  # of the map
METRICS = {"margin": MetricAbout(title="margin", share=False), "knn1": MetricAbout(title="1-NN accuracy", share=True)}

Labels = NDArray[np.int64]


def report_load(folder: Path, *, n_classes: int, n_test: int, losses: Sequence[str] = LOSSES) -> dict[str, float]:
    """Write results of this size and their report; return seconds and megabytes."""
    start = time.perf_counter()
    make_results(folder, n_classes=n_classes, n_test=n_test, losses=losses).write(folder)
    written = time.perf_counter()
    Results.read(folder)
    read = time.perf_counter()
    write_report(folder, figures=False)
    reported = time.perf_counter()
    write_report(folder, figures=True)
    return {
        "making and writing results, s": written - start,
        "reading results, s": read - written,
        "report, s": reported - read,
        "report with figures, s": time.perf_counter() - reported,
        "report.html, MB": (folder / REPORT).stat().st_size / 1e6,
        "results.json, MB": (folder / RESULTS).stat().st_size / 1e6,
    }


def make_results(folder: Path, *, n_classes: int, n_test: int, losses: Sequence[str]) -> Results:
    """Return results with a row for each loss, and write the maps."""
    names = tuple(f"class {i} of a data set" for i in range(n_classes))
    labels = np.arange(n_test) % n_classes
    rows = [_row(folder, loss, labels, names, seed) for seed, loss in enumerate(losses)]
    return Results(
        kind="comparison",
        data=DataAbout(name="many", class_names=names, n_train=10 * n_test, n_test=n_test, digest="made"),
        metrics=METRICS,
        rows=tuple(rows),
        differences=tuple(
            Difference(metric=metric, a=a, b=b, estimate=0.0, low=-0.1, high=0.1, significant=False)
            for metric in METRICS
            for i, a in enumerate(losses)
            for b in losses[i + 1 :]
        ),
        summaries=tuple(
            LossSummary(loss=row.loss, seeds=(0,), metrics=row.metrics, seed_std={}, bold=()) for row in rows
        ),
        measuring={},
        manifest={},
    )


def _row(folder: Path, loss: str, labels: Labels, names: tuple[str, ...], seed: int) -> Row:
    generator = np.random.default_rng(seed)
    n, n_classes = len(labels), len(names)
    target, noise = 1 - generator.gamma(2, 0.1, n), np.clip(generator.normal(0.3, 0.2, n), -1, 1)
    predictions = np.where(generator.random(n) < 0.3, generator.integers(n_classes, size=n), labels)
    margins = class_margins(target, noise, labels, n_classes)
    cells, images = np.unique(np.stack([labels, predictions], axis=1), axis=0, return_counts=True)
    run = f"runs/{loss}-0"
    (folder / run).mkdir(parents=True)
    return Row(
        loss=loss,
        seed=0,
        metrics={name: Estimate(0.5, 0.4, 0.6) for name in METRICS},
        train_loss=TrainLoss(first=6.0, last=1.0),
        seconds=3600.0,
        epochs=100,
        finished=True,
        folder=run,
        margin=margin_about(margin(target, noise)),
        classes=tuple(
            ClassRow(
                name=name,
                n_test=found.n,
                accuracy=0.7,
                margin=margin_about(found),
                confused_with=names[(label + 1) % n_classes],
                confused_share=0.123456789,
                divergence=Estimate(1.23456789, 1.12345678, 1.3456789),
                divergence_cap=5.123456789,
            )
            for label, (name, found) in enumerate(zip(names, margins, strict=True))
        ),
        confusion=tuple((int(i), int(j), int(k)) for (i, j), k in zip(cells, images, strict=True)),
        settings={"loss": loss},
        files={MAP: _write_map(folder / run, labels[:N_POINTS], predictions[:N_POINTS], generator)},
    )


def _write_map(run: Path, labels: Labels, predictions: Labels, generator: np.random.Generator) -> str:
    n, n_train = len(labels), 5 * len(labels)  # training images that are nearest to a point: all different
    first = np.arange(n_train).reshape(n, 5, order="F")
    train_labels = generator.integers(labels.max() + 1, size=n_train)
    train_labels[:n] = predictions
    return EmbeddingMap(
        ids=np.arange(n),
        labels=labels,
        predictions=predictions,
        points=generator.normal(size=(n, 2)).astype(np.float32),
        neighbours=first,
        similarities=generator.random((n, 5)).astype(np.float32),
        train_ids=generator.permutation(10 * n_train)[:n_train],
        train_labels=train_labels,
        thumbnails=_photos(n, SIDE, generator),
        train_thumbnails=_photos(MOST_TRAIN_THUMBNAILS, TRAIN_THUMBNAIL, generator),
        method="t-SNE",
        texts=np.array([f"photos/class {label} of a data set/{i:08d}.jpg" for i, label in enumerate(labels)]),
        train_texts=np.array(
            [f"photos/class {label} of a data set/{i:08d}.jpg" for i, label in enumerate(train_labels)]
        ),
    ).write(run)


def _photos(n: int, side: int, generator: np.random.Generator) -> NDArray[np.uint8]:
    """Return pictures with edges and shading but without pixel noise, which no photo has."""
    y, x = np.mgrid[:side, :side] / side
    pictures = np.empty((n, side, side, 3))
    for picture in pictures:
        a, b, c, d = generator.normal(size=(4, 3)) * 3
        picture[:] = np.sin(a * x[..., None] + 2 * b) + np.cos(c * y[..., None] + d * x[..., None])
        for _ in range(4):  # things with edges
            cx, cy, radius = generator.random(3)
            picture[(x - cx) ** 2 + (y - cy) ** 2 < 0.15 * radius**2] += generator.normal(size=3)
    return (127.5 * (1 + np.tanh(pictures / 2))).astype(np.uint8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="folder for the report; default: a temporary one")
    options = parser.parse_args()
    for n_classes in (1000, 5000):
        with tempfile.TemporaryDirectory() as temporary:
            folder = (options.folder or Path(temporary)) / str(n_classes)
            folder.mkdir(parents=True)
            found = report_load(folder, n_classes=n_classes, n_test=50_000)
        print(f"{len(LOSSES)} losses, {n_classes:,} classes, 50,000 test images")
        for name, value in found.items():
            print(f"  {name}: {value:.1f}")


if __name__ == "__main__":
    main()
