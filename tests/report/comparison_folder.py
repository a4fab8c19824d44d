"""Writes a folder like the result of `sincere compare`, without training: values are random."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from math import log
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sincere.evaluation.margins import bins_for
from sincere.records.arrays import MAP, EmbeddingMap
from sincere.records.config import write_config
from sincere.records.estimates import Estimate
from sincere.records.histograms import Histogram
from sincere.records.label_issues import MOST_SHOWN, LabelList
from sincere.records.log import METRICS
from sincere.records.manifest import make_manifest, write_manifest
from sincere.records.results import (
    ClassRow,
    DataAbout,
    Difference,
    LossSummary,
    MarginAbout,
    MetricAbout,
    Results,
    Row,
    TrainLoss,
)
from sincere.settings.requests import RunSettings

SCRIPT = "<script>alert(1)</script>"
CLASSES = ("zero", SCRIPT, "two", "three", "four & more", 'fi"ve', "six", "seven", "eight", "nine")
HOSTILE_NAMES = (
    "\x1b[31mred",
    "a\nb",
    "\udcff",
    SCRIPT,
    "\u202eevil",
    "long " * 60,
    "x" * 300,
    "\x00",
    "\u2028",
    "&lt;",
)
LOSSES = ("sincere", "supcon", "eps-supinfonce")
NOISE_MEANS = {"sincere": 0.06, "supcon": 0.42, "eps-supinfonce": 0.05}
N_NEIGHBOURS = 5
METRICS_ABOUT = {
    "margin": MetricAbout(title="margin", share=False),
    "knn1": MetricAbout(title="1-NN accuracy", share=True),
}


def make_comparison(
    folder: Path,
    *,
    losses: Sequence[str] = LOSSES,
    seeds: Sequence[int] = (0,),
    class_names: Sequence[str] = CLASSES,
    n_test: int = 359,
    epochs: int = 40,
    side: int = 8,
    channels: int = 1,
    empty_classes: int = 0,
    texts: Sequence[str] | None = None,
    lowest: float = -1.0,
) -> Path:
    """Write results.json and the folders of the runs; the last `empty_classes` classes have no test images.

    With texts, repeated as often as needed, the samples are features, which have no thumbnails. All similarities are at
    least `lowest`.
    """
    labels = np.arange(n_test) % (len(class_names) - empty_classes)
    rows = [
        _write_run(
            folder,
            loss,
            seed,
            labels,
            class_names,
            epochs=epochs,
            pixels=(side, side, channels),
            texts=texts,
            lowest=lowest,
        )
        for seed in seeds
        for loss in losses
    ]
    results = make_results(rows, class_names, n_test)
    if texts is not None:
        results = results.model_copy(update={"data": results.data.model_copy(update={"noun": "samples"})})
    results.write(folder)
    return folder


def write_labels(
    run: Path, *, n: int = 3, pixels: bool = True, texts: Sequence[str] | None = None, **more: Any
) -> None:
    """Write the list of `n` samples whose label may be wrong into the folder of a run."""
    first = np.arange(min(n, MOST_SHOWN))
    content: dict[str, Any] = {
        "n_samples": 1438,
        "n_issues": n,
        "k": 71,
        "basis": "embeddings",
        "data": "made",
        "epochs": 40,
        "ids": 5000 + first,
        "labels": first % 10,
        "suggested": (first + 1) % 10,
        "agreement": first / 100,
        "is_test": first % 2 == 1,
        "thumbnails": np.full((len(first), 8, 8, 1), 90, dtype=np.uint8) if pixels else None,
        "texts": None if texts is None else _repeated(texts, len(first)),
    }
    LabelList(**{**content, **more}).write(run)


def make_results(rows: Sequence[Row], class_names: Sequence[str], n_test: int) -> Results:
    """Return results with these rows and the differences between every two losses."""
    losses = list(dict.fromkeys(row.loss for row in rows))
    seeds = tuple(dict.fromkeys(row.seed for row in rows))
    metrics = {loss: next(row.metrics for row in rows if row.loss == loss) for loss in losses}
    differences = [
        _difference(name, a, b, metrics[a][name].estimate - metrics[b][name].estimate)
        for name in METRICS_ABOUT
        for a, b in combinations(losses, 2)
    ]
    summaries = [
        LossSummary(
            loss=loss,
            seeds=seeds,
            metrics=metrics[loss],
            seed_std=dict.fromkeys(METRICS_ABOUT, 0.012) if len(seeds) > 1 else {},
            bold=("margin",) if len(losses) > 1 and metrics[loss]["margin"].estimate > 0.7 else (),
        )
        for loss in losses
    ]
    return Results(
        kind="comparison" if len(losses) > 1 else "evaluation",
        data=DataAbout(name="digits", class_names=tuple(class_names), n_train=1438, n_test=n_test, digest="made"),
        metrics=METRICS_ABOUT,
        rows=tuple(rows),
        differences=tuple(differences),
        summaries=tuple(summaries),
        scope="losses" if len(seeds) >= 3 else "trained models",
        notes=("the paper does not compare margins of eps-SupInfoNCE",),
        measuring={"metrics": list(METRICS_ABOUT), "n_resamples": 1000},
        manifest=_manifest("compare", 0),
    )


def _difference(name: str, a: str, b: str, estimate: float) -> Difference:
    low, high = estimate - 0.02, estimate + 0.02
    return Difference(metric=name, a=a, b=b, estimate=estimate, low=low, high=high, significant=low > 0 or high < 0)


def _write_run(
    folder: Path,
    loss: str,
    seed: int,
    labels: NDArray[np.int64],
    class_names: Sequence[str],
    *,
    epochs: int,
    pixels: tuple[int, int, int],
    texts: Sequence[str] | None,
    lowest: float,
) -> Row:
    generator = np.random.default_rng([seed, len(loss)])
    name = f"runs/{loss}-{seed}"
    run = folder / name
    run.mkdir(parents=True)
    settings = {**RunSettings.make(seed=seed, epochs=epochs).stored(), "loss": loss}
    write_config(settings, run)
    write_manifest(_manifest("train", seed), run)
    losses = _write_log(run, loss, epochs)
    n, n_classes = len(labels), len(class_names)
    target = 1 - generator.gamma(2, 0.02, n)
    noise = np.clip(generator.normal(NOISE_MEANS.get(loss, 0.2), 0.12, n), -1, 1)
    target, noise = (1 - (1 - values) * (1 - lowest) / 2 for values in (target, noise))
    bins = bins_for(target, noise)
    predictions = np.where(generator.random(n) < 0.03, generator.integers(n_classes, size=n), labels)
    found = _map(labels, predictions, n_classes, pixels, generator, spread=2.0 if loss == "supcon" else 1.0)
    if texts is not None:
        found = replace(found, thumbnails=None, texts=_repeated(texts, n), train_thumbnails=None,
                        train_texts=_repeated(texts, len(found.train_ids)))  # fmt: skip
    digest = found.write(run)
    accuracy = float((predictions == labels).mean())
    margin = make_margin(target, noise, bins)
    assert margin.margin is not None
    cells, images = np.unique(np.stack([labels, predictions], axis=1), axis=0, return_counts=True)
    return Row(
        loss=loss,
        seed=seed,
        metrics={
            "margin": Estimate(margin.margin, margin.margin - 0.01, margin.margin + 0.01),
            "knn1": Estimate(accuracy, accuracy - 0.01, min(1.0, accuracy + 0.01)),
        },
        train_loss=TrainLoss(first=losses[0], last=losses[-1]),
        seconds=43.2,
        epochs=epochs,
        finished=True,
        folder=name,
        margin=margin,
        classes=tuple(
            _class_row(class_names, c, target[labels == c], noise[labels == c], predictions[labels == c], bins)
            for c in range(n_classes)
        ),
        confusion=tuple((int(i), int(j), int(n)) for (i, j), n in zip(cells, images, strict=True)),
        settings=settings,
        files={MAP: digest},
    )


def _repeated(texts: Sequence[str], n: int) -> NDArray[np.str_]:
    return np.array([texts[i % len(texts)] for i in range(n)])


def make_margin(
    target: NDArray[np.float64], noise: NDArray[np.float64], bins: tuple[float, float, int] = (-1.0, 1.0, 100)
) -> MarginAbout:
    """Return the margin of these similarities, by default with histograms of 100 bins over [-1, 1]."""
    low, high, n_bins = bins
    counts = [np.histogram(values, bins=n_bins, range=(low, high))[0] for values in (target, noise)]
    histograms = [Histogram(low, high, tuple(map(int, values))) for values in counts]
    medians = [float(np.median(values)) if len(values) else None for values in (target, noise)]
    margin = None if medians[0] is None or medians[1] is None else medians[0] - medians[1]
    return MarginAbout(
        margin=margin,
        n=len(target),
        target_median=medians[0],
        noise_median=medians[1],
        target=histograms[0],
        noise=histograms[1],
    )


def _class_row(
    class_names: Sequence[str],
    label: int,
    target: NDArray[np.float64],
    noise: NDArray[np.float64],
    predictions: NDArray[np.int64],
    bins: tuple[float, float, int],
) -> ClassRow:
    has_images = len(target) > 0
    cap = log(len(target) * 9 + 2)
    return ClassRow(
        name=class_names[label],
        n_test=len(target),
        accuracy=float((predictions == label).mean()) if has_images else None,
        margin=make_margin(target, noise, bins),
        confused_with=class_names[(label + 1) % len(class_names)] if has_images else None,
        confused_share=0.4 if has_images else None,
        divergence=Estimate(0.8 * cap, 0.7 * cap, 0.9 * cap) if has_images else None,
        divergence_cap=cap if has_images else None,
    )


def _write_log(run: Path, loss: str, epochs: int) -> list[float]:
    chance, floor = 6.2, 3.9 if loss == "supcon" else -0.25 if loss == "eps-supinfonce" else 0.0
    rows, losses = [], []
    for epoch in range(1, epochs + 1):
        value = floor + (chance - floor) * 0.9**epoch
        row: dict[str, Any] = {"epoch": epoch, "seconds": 1.1 * epoch, "loss": value, "chance": chance, "floor": floor}
        if loss in ("sincere", "supcon"):
            row["repulsion_share"] = 0.3 * (1 - 0.9**epoch) if loss == "supcon" else 0.0
        if epoch % 10 == 0:
            row["knn1_train"] = 1 - 0.8**epoch
        rows.append(row)
        losses.append(value)
    (run / METRICS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return losses


def _map(
    labels: NDArray[np.int64],
    predictions: NDArray[np.int64],
    n_classes: int,
    pixels: tuple[int, int, int],
    generator: np.random.Generator,
    *,
    spread: float,
) -> EmbeddingMap:
    angles = 2 * np.pi * labels / n_classes
    points = 10 * np.stack([np.cos(angles), np.sin(angles)], axis=1) + spread * generator.normal(size=(len(labels), 2))
    train_labels = np.arange(3 * n_classes) % n_classes
    neighbours = generator.integers(len(train_labels), size=(len(labels), N_NEIGHBOURS))
    neighbours[:, 0] = predictions + n_classes * generator.integers(3, size=len(labels))  # the first decides
    patterns = np.random.default_rng(1).random((n_classes, *pixels))
    pixel_noise, train_noise = (np.random.default_rng(2).random((len(y), *pixels)) for y in (labels, train_labels))
    return EmbeddingMap(
        ids=1000 + np.arange(len(labels)),
        labels=labels,
        predictions=predictions,
        points=points.astype(np.float32),
        neighbours=neighbours,
        similarities=-np.sort(-generator.random(neighbours.shape), axis=1).astype(np.float32),
        train_ids=5000 + np.arange(len(train_labels)),
        train_labels=train_labels,
        thumbnails=(255 * (0.8 * patterns[labels] + 0.2 * pixel_noise)).astype(np.uint8),
        train_thumbnails=(255 * (0.8 * patterns[train_labels] + 0.2 * train_noise)).astype(np.uint8),
        method="t-SNE",
    )


@cache  # reading the git commit takes time
def _manifest(verb: str, seed: int) -> dict[str, Any]:
    return {**make_manifest(seed=seed, device="cpu"), "command": ["sincere", verb, "--data", "my photos/<b>"]}


def chart_rows(spec: dict[str, Any], layer: int = 0) -> list[dict[str, Any]]:
    """Return the data of a layer of a chart; Altair moves data that all layers share to the top level."""
    rows: list[dict[str, Any]] = spec["layer"][layer].get("data", spec.get("data"))["values"]
    return rows
