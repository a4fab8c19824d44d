"""`python -m benchmarks.minutes --runs LOSS:MINUTES:SEED ...`: what `sincere train --minutes` reaches on CIFAR-10.

Each run is `sincere train` with default settings but for the loss, the minutes and `--settings`, in float32, then
`sincere evaluate` on the test part. Cross-entropy has the same network, with ten outputs in place of the embedding.
`--classes cat dog` is the paper's CIFAR-2. With `--epochs`, a run has as many epochs as another one that was planned by
minutes, perhaps on another machine. Interrupted runs are resumed. Adds them to results/minutes.json.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import altair as alt
from torch import Tensor
from torch.nn.functional import cross_entropy

import sincere
from benchmarks.measure import RESULTS, machine, write
from sincere.data.catalog import load_dataset
from sincere.loss_catalog import LOSSES, loss_title
from sincere.report.figure_files import save_figure

PRECISION = "32-true"
CROSS_ENTROPY = "cross-entropy"
COLOURS = {loss_title(name): LOSSES[name].colour for name in ("sincere", "supcon")} | {CROSS_ENTROPY: "#555555"}
FIGURES = Path(__file__).parents[1] / "docs" / "figures"


def class_scores_loss(embeddings: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of embeddings (n, n_views, n_classes), taken as class scores."""
    return cross_entropy(embeddings.flatten(0, 1), labels.repeat_interleave(embeddings.shape[1]))


def measure(
    data: Path,
    loss: str,
    minutes: float,
    seed: int,
    *,
    classes: list[str] | None,
    settings: dict[str, float],
    epochs: int | None,
    threads: int | None,
    folder: Path,
) -> dict[str, Any]:
    """Train and evaluate one run; return its results."""
    options: dict[str, Any] = {"data": data, "seed": seed, "precision": PRECISION, "classes": classes, **settings}
    options |= {"minutes": minutes} if epochs is None else {"epochs": epochs, "threads": threads}
    if loss == CROSS_ENTROPY:
        options |= {"loss": class_scores_loss, "dim": len(classes or load_dataset(data).class_names), "head": "linear"}
    else:
        options["loss"] = loss
    name = f"{loss}-{minutes:g}-{seed}" + (f"-{'-'.join(classes)}" if classes else "")
    name += "".join(f"-{key}-{value:g}" for key, value in settings.items())
    started = time.monotonic()
    out = folder / name
    resume = (out / "config.toml").exists()
    run = sincere.train(**options, out=out, resume=resume)
    wall_seconds = time.monotonic() - started
    results = sincere.evaluate(run=out, metrics=("margin", "knn"))
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    keys = ("epoch", "loss", "seconds", "images_per_second", "data_wait_share", "knn1_train")
    (row,) = results.rows
    return {
        "loss": loss,
        "minutes": minutes,
        "seed": seed,
        "classes": classes,
        "settings": settings,
        "machine": machine(),
        "epochs": run.epochs,
        "planned_by_minutes": epochs is None,
        "train_seconds": run.seconds,
        "wall_seconds": None if resume else wall_seconds,
        "train_loss": run.train_loss,
        "metrics": {name: asdict(row.metrics[name]) for name in ("knn1", "knn5", "margin")},
        "rows": [{key: r[key] for key in keys if key in r} for r in rows],
    }


def figure(runs: list[dict[str, Any]]) -> alt.HConcatChart:
    """Plot 1-NN accuracy and margin on CIFAR-10 against minutes of training.

    Runs with augmentation to their end are shown only where there is none with the default settings.
    """
    whole = [run for run in runs if run["classes"] is None and run["settings"].keys() <= {"unaugmented"}]
    by_default = {(run["loss"], run["minutes"]) for run in whole if not run["settings"]}
    points = [
        {"loss": loss_title(run["loss"]), "minutes": run["minutes"], "seed": run["seed"], **values}
        for run in whole
        if not run["settings"] or (run["loss"], run["minutes"]) not in by_default
        for values in [{name: run["metrics"][name]["estimate"] for name in ("knn1", "margin")}]
    ]
    titles = list(COLOURS)
    colour = alt.Color("loss:N", title=None, sort=titles).scale(domain=titles, range=list(COLOURS.values()))
    ticks = sorted({point["minutes"] for point in points})
    axis = alt.X("minutes:Q", title="minutes of training").scale(type="log", nice=False).axis(values=ticks)
    charts = []
    for name, title in (("knn1", "1-NN accuracy, test"), ("margin", "margin, test")):
        value = alt.Y(f"{name}:Q", title=None).scale(zero=False)
        base = alt.Chart(alt.Data(values=points), title=title)
        marks = base.mark_point(filled=True).encode(x=axis, y=value, color=colour)
        mean = alt.Y(f"mean({name}):Q", title=None).scale(zero=False)
        charts.append((marks + base.mark_line().encode(x=axis, y=mean, color=colour)).properties(width=300, height=220))
    return alt.hconcat(*charts, spacing=36)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cifar10", type=Path, default=Path("data/cifar10.npz"))
    parser.add_argument("--runs", nargs="+", required=True, metavar="LOSS:MINUTES:SEED", help="sincere:10:0")
    parser.add_argument("--classes", nargs="+", help="only these classes")
    parser.add_argument("--settings", nargs="+", default=[], metavar="NAME=NUMBER", help="in place of the defaults")
    parser.add_argument("--epochs", type=int, help="in place of those that fit into the minutes")
    parser.add_argument("--threads", type=int, help="with --epochs: CPU threads")
    parser.add_argument("--folder", type=Path, default=Path("runs/minutes"), help="where runs are kept")
    options = parser.parse_args()
    pairs = (text.split("=") for text in options.settings)
    settings = {name: float(value) if "." in value else int(value) for name, value in pairs}
    for text in options.runs:
        loss, minutes, seed = text.split(":")
        found = measure(
            options.cifar10,
            loss,
            float(minutes),
            int(seed),
            classes=options.classes,
            settings=settings,
            epochs=options.epochs,
            threads=options.threads,
            folder=options.folder,
        )
        path = RESULTS / "minutes.json"
        stored = json.loads(path.read_text())["runs"] if path.exists() else []
        same = ("loss", "minutes", "seed", "classes", "settings", "epochs")
        others = [run for run in stored if any(run.get(key) != found[key] for key in same)]
        write("minutes", {"runs": [*others, found]})
        save_figure(figure([*others, found]), FIGURES, "minutes", formats=("svg",))
        print(f"{text}: {found['epochs']} epochs, {found['metrics']}", flush=True)


if __name__ == "__main__":
    main()
