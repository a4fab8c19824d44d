"""Classify images with the model of a run: a table, JSON or CSV."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from typing import Any

from rich.table import Table
from rich.text import Text

from sincere.checks import printable
from sincere.data.given_images import NONE_READ
from sincere.errors import DataError
from sincere.messages import Messages
from sincere.settings.use_requests import PredictRequest
from sincere.training.progress import CountProgress
from sincere.workflows.model import SEPARATOR, load

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
        listed = list(rows)
        _print_table(listed, messages)
        n_unknown = sum(row["unknown"] for row in listed)
        of_all = f"{n_unknown:,} of {len(listed):,} {'image seems' if len(listed) == 1 else 'images seem'}"
        messages.say(f"{of_all} to be of an unknown class (p_known of {request.false_alarms:g} or less)")


def predictions(request: PredictRequest, messages: Messages) -> Iterator[Row]:
    """Yield file, label, confidence, whether it seems unknown, and nearest training images of each image.

    Where images may have several labels, also the score of each label that it gets.

    Raises:
        DataError: The folder holds no run, the run lacks what the classifier needs, or an image cannot be read.
    """
    model = load(request.run, device=request.machine.device)
    given = model.given_files(request.images)
    k, read = min(request.k, len(model.reference)), list[int]()
    messages.note(*model.too_few_to_reject(request.false_alarms))
    with CountProgress(messages, "classified images") as progress:
        for positions, outputs in model.outputs(given, skip_bad=request.skip_bad_images, progress=progress):
            named = model.named(model.classify(outputs, request.classifier))
            fits = model.fit(outputs, request.unknown_score).tolist()
            nearest = model.neighbours(outputs[:, : model.spec.dim], k)
            for row, position in enumerate(positions):
                near = zip(nearest.names[row], nearest.labels[row], nearest.similarities[row].tolist(), strict=True)
                scores = {label: round(score, 4) for label, score in named[row].items()}
                yield {
                    "file": printable(given.names[position]),
                    "label": SEPARATOR.join(scores),
                    "confidence": max(scores.values()),
                    **({"scores": scores} if model.has_label_sets else {}),
                    "p_known": round(fits[row], 4),
                    "unknown": fits[row] <= request.false_alarms,
                    "nearest": [
                        {"name": printable(name), "label": label, "similarity": round(similarity, 4)}
                        for name, label, similarity in near
                    ],
                }
            read += positions
    if not read:
        raise DataError(f"{request.verb}: {NONE_READ}")
    messages.note(*given.skipped_note(read))


def _print_csv(rows: Iterator[Row]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    facts, about_near = ("file", "label", "confidence", "p_known", "unknown"), ("name", "label", "similarity")
    for i, row in enumerate(rows):
        if i == 0:  # not before there is something to print
            numbers = range(1, len(row["nearest"]) + 1)
            writer.writerow([*facts, *(f"nearest_{number}_{name}" for number in numbers for name in about_near)])
        near = (one[name] for one in row["nearest"] for name in about_near)
        writer.writerow([*(row[name] for name in facts), *near])


def _neighbour(name: str, label: str, similarity: float) -> str:
    """Return a training image as the table shows it; its folder is its class in most data sets."""
    return f"{name} ({similarity:.2f})" if name.startswith(f"{label}/") else f"{name} ({label}, {similarity:.2f})"


def _print_table(rows: list[Row], messages: Messages) -> None:
    table = Table(box=None, header_style="bold")
    numbers = ("confidence", "p_known")
    for column in ("file", "label", *numbers, "nearest training images"):
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows[:MOST_SHOWN]:
        near = "\n".join(_neighbour(**one) for one in row["nearest"])
        label = f"unknown? ({row['label']})" if row["unknown"] else row["label"]
        shares = f"{row['confidence']:.1%}", f"{row['p_known']:.2f}"
        table.add_row(Text(row["file"]), Text(label), *shares, Text(near))  # names are no markup
    if rows:
        messages.console.print(table)
    if len(rows) > MOST_SHOWN:
        messages.note(f"{len(rows) - MOST_SHOWN:,} more images are not shown; --format csv prints all")
