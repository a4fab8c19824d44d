"""Classify images with the model of a run: a table, JSON or CSV."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from typing import Any

from rich.table import Table

from sincere.checks import printable
from sincere.messages import Messages
from sincere.settings.requests import PredictRequest
from sincere.training.progress import CountProgress
from sincere.workflows.model import load

MOST_SHOWN = 1000  # rows of a table in the terminal
Row = dict[str, Any]


def run_prediction(request: PredictRequest, messages: Messages | None = None) -> None:
    """Classify and print; rows of CSV are printed as they come."""
    messages = messages or Messages(quiet=request.quiet or request.format != "table")
    rows = predictions(request, messages)
    if request.format == "csv":
        _print_csv(rows)
    elif request.format == "json":
        print(json.dumps(list(rows), indent=1))
    else:
        _print_table(list(rows), messages)


def predictions(request: PredictRequest, messages: Messages) -> Iterator[Row]:
    """Yield file, label, confidence and nearest training images of each image.

    Raises:
        DataError: The folder holds no run, the run lacks what the classifier needs, or an image cannot be read.
    """
    model = load(request.run, device=request.machine.device)
    given = model.given_files(request.images)
    k, n_done = min(request.k, len(model.reference)), 0
    with CountProgress(messages, "classified images") as progress:
        for positions, outputs in model.outputs(given, skip_bad=request.skip_bad_images, progress=progress):
            confidences, labels = model.classify(outputs, request.classifier).max(dim=1)
            nearest = model.neighbours(outputs[:, : model.spec.dim], k)
            for row, position in enumerate(positions):
                near = zip(nearest.names[row], nearest.labels[row], nearest.similarities[row].tolist(), strict=True)
                yield {
                    "file": printable(given.names[position]),
                    "label": model.class_names[int(labels[row])],
                    "confidence": round(float(confidences[row]), 4),
                    "nearest": [
                        {"name": printable(name), "label": label, "similarity": round(similarity, 4)}
                        for name, label, similarity in near
                    ],
                }
            n_done += len(positions)
    messages.note(*given.skipped_note(n_done))


def _print_csv(rows: Iterator[Row]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["file", "label", "confidence", "nearest", "similarity"])
    for row in rows:
        near = row["nearest"]
        names, similarities = ";".join(one["name"] for one in near), ";".join(str(one["similarity"]) for one in near)
        writer.writerow([row["file"], row["label"], row["confidence"], names, similarities])


def _print_table(rows: list[Row], messages: Messages) -> None:
    table = Table(box=None, header_style="bold")
    for column in ("file", "label", "confidence", "nearest training images"):
        table.add_column(column, justify="right" if column == "confidence" else "left", overflow="fold")
    for row in rows[:MOST_SHOWN]:
        near = ", ".join(f"{one['name']} ({one['label']}, {one['similarity']:.2f})" for one in row["nearest"])
        table.add_row(row["file"], row["label"], f"{row['confidence']:.1%}", near)
    if rows:
        messages.console.print(table)
    if len(rows) > MOST_SHOWN:
        messages.note(f"{len(rows) - MOST_SHOWN:,} more images are not shown; --format csv prints all")
