"""Figures of the results: curves, differences, confusion matrices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt
import numpy as np

from sincere.loss_catalog import loss_title
from sincere.records.results import Difference, MetricAbout, Results
from sincere.report.evidence import Run, is_number
from sincere.report.figure import WIDTH, Figure, panel
from sincere.report.tables import brief_metrics
from sincere.report.theme import BLUE, GREY, GROUND, loss_colours

MOST_EPOCHS = 300  # plotted of a run; more could not be distinguished
MOST_CLASSES = 30  # of a confusion matrix
MOST_COUNTED = 12  # classes up to which the cells of a confusion matrix show counts
EXCLUDES, INCLUDES = "excludes 0", "includes 0"  # of an interval
REPULSION, LIVE = "same-class pairs pushed apart", "live 1-NN accuracy"
LIVE_NAMES = [f"{name}_{part}" for name in ("knn1", "knn1_shares_label") for part in ("validation", "train")]


def curves_figure(runs: Sequence[Run]) -> Figure:
    """Plot the training loss with its chance level and floor against epochs, one panel per loss, one line per seed."""
    quantities = ["chance", "loss", "floor"]
    colours = loss_colours([run.row.loss for run in runs])
    rows = [
        {"loss": run.row.loss, "seed": run.row.seed, "epoch": row["epoch"], "quantity": name, "nats": row[name]}
        for run in runs
        for row in _thinned(run.log)
        for name in quantities
        if is_number(row.get(name))
    ]
    if not rows:
        return Figure("training", ())
    values = [row["nats"] for row in rows]
    scale = alt.Scale(domain=[min(0.0, *values), max(values)])
    epochs = epoch_axis([row["epoch"] for row in rows])
    point = {"size": 30} if len({row["epoch"] for row in rows}) == 1 else False  # a line needs two
    panels = []
    for loss, colour in colours.items():
        if not any(row["loss"] == loss for row in rows):  # raw features are not trained
            continue
        lines = alt.Chart(alt.Data(values=[row for row in rows if row["loss"] == loss])).mark_line(
            strokeWidth=2, point=point
        )
        encoded = lines.encode(
            x=epochs,
            y=alt.Y("nats:Q", title="nats", scale=scale),
            color=alt.Color("quantity:N", title=None, sort=None).scale(domain=quantities, range=[GREY, colour, GREY]),
            strokeDash=alt.StrokeDash("quantity:N", title=None, sort=None).scale(
                domain=quantities, range=[[6, 4], [1, 0], [2, 3]]
            ),
            detail="seed:N",
            tooltip=["quantity:N", "seed:N", "epoch:Q", alt.Tooltip("nats:Q", format=".3f")],
        )
        panels.append(panel([encoded], loss_title(loss), f"Training loss of {loss_title(loss)} against epochs"))
    return Figure("training", tuple(panels))


def epoch_axis(epochs: Sequence[float]) -> alt.X:
    """Return the axis of these epochs, with ticks at about five whole ones."""
    first, last = math.floor(min(epochs)), math.ceil(max(epochs))
    scale = 10 ** math.floor(math.log10(max(last - first, 1)))
    step = max(1, next(scale * part for part in (0.2, 0.5, 1, 2) if (last - first) / (scale * part) <= 5))
    ticks = [int(step * i) for i in range(math.ceil(first / step), math.floor(last / step) + 1)]
    domain = [first, last] if first < last else [first - 1, first + 1]  # a single epoch is in the middle
    axis = alt.Axis(values=ticks, format="d", grid=False)
    return alt.X("epoch:Q", axis=axis, scale=alt.Scale(domain=domain, nice=False))


def meters_figure(runs: Sequence[Run]) -> Figure:
    """Plot repulsion and live 1-NN accuracy against epochs, one line per run; a panel where there are values."""
    about = {REPULSION: ["repulsion_share"], LIVE: LIVE_NAMES}
    colours = loss_colours([run.row.loss for run in runs])
    panels = []
    for title, keys in about.items():
        rows = [
            {"run": run.name, "loss": loss_title(run.row.loss), "epoch": row["epoch"], "share": row[key]}
            for run in runs
            for key in keys
            for row in _thinned([row for row in run.log if is_number(row.get(key))])
        ]
        if not rows:
            continue
        highest = max(row["share"] for row in rows)
        # Repulsion is compared with 0, and may be 0 throughout; accuracies are compared with each other, near 1.
        scale = alt.Scale(domain=[0, max(0.05, highest)]) if title == REPULSION else alt.Scale(zero=False)
        epochs = epoch_axis([row["epoch"] for row in rows])
        losses = [loss for loss in colours if any(row["loss"] == loss_title(loss) for row in rows)]
        lines = (
            alt.Chart(alt.Data(values=rows))
            .mark_line(strokeWidth=2, point={"size": 14})
            .encode(
                x=epochs,
                y=alt.Y("share:Q", title="share", scale=scale).axis(format="%"),
                color=alt.Color("loss:N", title=None).scale(
                    domain=[loss_title(loss) for loss in losses], range=[colours[loss] for loss in losses]
                ),
                detail="run:N",
                tooltip=["run:N", "epoch:Q", alt.Tooltip("share:Q", format=".1%")],
            )
        )
        panels.append(panel([lines], title, f"{title}, against epochs"))
    return Figure("meters", tuple(panels))


def differences_figure(results: Results) -> Figure:
    """Plot paired differences between losses with their confidence intervals, one panel per metric of the summary."""
    panels = []
    for name in brief_metrics(results):
        about = results.metrics[name]
        differences = [difference for difference in results.differences if difference.metric == name]
        if differences:
            panels.append(_forest_plot(differences, about))
    return Figure("differences", tuple(panels))


def _forest_plot(differences: Sequence[Difference], about: MetricAbout) -> alt.LayerChart:
    scale = 100 if about.share else 1
    rows = [
        {
            "pair": f"{loss_title(d.a)} minus {loss_title(d.b)}",
            "interval": EXCLUDES if d.significant else INCLUDES,
            **{end: scale * getattr(d, end) for end in ("estimate", "low", "high")},
        }
        for d in differences
    ]
    base = alt.Chart(alt.Data(values=rows)).encode(
        y=alt.Y("pair:N", title=None, sort=None).axis(labelLimit=220, ticks=False, domain=False, labelPadding=8),
        color=alt.Color("interval:N", legend=None).scale(domain=[EXCLUDES, INCLUDES], range=[BLUE, GREY]),
        tooltip=["pair:N", *(alt.Tooltip(f"{end}:Q", format=".3f") for end in ("estimate", "low", "high"))],
    )
    unit = "percentage points" if about.share else "difference"
    layers = [
        alt.Chart(alt.Data(values=[{"zero": 0}])).mark_rule(color=GREY, strokeDash=[4, 3]).encode(x="zero:Q"),
        base.mark_rule(strokeWidth=2.5).encode(x=alt.X("low:Q", title=unit).axis(tickCount=5), x2="high:Q"),
        base.mark_circle(size=70, opacity=1).encode(x="estimate:Q"),
    ]
    description = f"Paired differences in {about.title} between losses with 95% confidence intervals"
    return panel(layers, about.title, description, height=34 * len(rows))


def confusion_figure(runs: Sequence[Run], class_names: Sequence[str]) -> Figure:
    """Plot the class against the 1-NN prediction, one panel per loss; of many classes, the most confused ones."""
    kept = confused_classes(runs, len(class_names))
    names, shown = [class_names[i] for i in kept], set(kept)
    colours = loss_colours([run.row.loss for run in runs])
    plain: dict[str, Any] = {
        "labelLimit": 110,
        "grid": False,
        "domain": False,
        "ticks": False,
        "labelOverlap": False,
        "labelPadding": 5,
    }
    across = alt.Axis(labelAngle=0 if len(names) * max(map(len, names)) <= 30 else -90, **plain)
    panels = []
    for run in runs:
        totals = [of_class.n_test for of_class in run.row.classes]
        cells = [
            {"class": class_names[i], "predicted": class_names[j], "images": n, "share": round(n / totals[i], 5)}
            for i, j, n in run.row.confusion
            if i in shown and j in shown
        ]
        base = alt.Chart(alt.Data(values=cells)).encode(
            x=alt.X("predicted:N", sort=None, scale=alt.Scale(domain=names), axis=across, title="1-NN prediction"),
            y=alt.Y("class:N", sort=None, scale=alt.Scale(domain=names), axis=alt.Axis(**plain), title="class"),
            tooltip=["class:N", "predicted:N", "images:Q", alt.Tooltip("share:Q", format=".1%")],
        )
        # The square root keeps single mistakes visible beside the diagonal; opacity suits both themes.
        strength = alt.Opacity("share:Q", legend=None).scale(type="sqrt", domain=[0, 1], range=[0.08, 1])
        layers = [base.mark_rect(color=colours[run.row.loss]).encode(opacity=strength)]
        if len(kept) <= MOST_COUNTED:
            full = alt.when("datum.share > 0.3").then(alt.value(GROUND)).otherwise(alt.value(GREY))
            layers.append(base.mark_text(fontSize=11, fontWeight=600).encode(text="images:Q", color=full))
        name = loss_title(run.row.loss)
        panels.append(panel(layers, name, f"Confusion matrix of {name}", height=WIDTH))
    return Figure("confusion", tuple(panels))


def confused_classes(runs: Sequence[Run], n_classes: int) -> list[int]:
    """Return the classes that a confusion matrix shows, ascending: all, or those with the most mistakes."""
    if n_classes <= MOST_CLASSES:
        return list(range(n_classes))
    mistakes = np.zeros(n_classes, dtype=np.int64)
    for run in runs:
        cells = np.array([cell for cell in run.row.confusion if cell[0] != cell[1]], dtype=np.int64).reshape(-1, 3)
        for end in (0, 1):
            np.add.at(mistakes, cells[:, end], cells[:, 2])
    return sorted(int(i) for i in np.argsort(-mistakes, kind="stable")[:MOST_CLASSES])


def _thinned(rows: Sequence[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    """Return at most `MOST_EPOCHS` evenly spaced rows, including the first and the last."""
    if len(rows) <= MOST_EPOCHS:
        return rows
    return [rows[i] for i in np.linspace(0, len(rows) - 1, MOST_EPOCHS).round().astype(int)]
