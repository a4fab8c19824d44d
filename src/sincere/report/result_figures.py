"""Figures of the results, as panels: responsive on the page, side by side in files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np

from sincere.catalog import loss_title
from sincere.records.histograms import Histogram
from sincere.records.results import Difference, MarginAbout, MetricAbout, Results
from sincere.report.evidence import Run, is_number
from sincere.report.map import Plane
from sincere.report.theme import BLUE, GREY, GROUND, INK, chart_config, class_colours, loss_colours

WIDTH, HEIGHT, COLUMNS = 300, 220, 3
MOST_EPOCHS = 300  # plotted of a run; more could not be distinguished
MOST_CLASSES = 30  # of a confusion matrix
MOST_COUNTED = 12  # classes up to which the cells of a confusion matrix show counts
MOST_LABELLED = 30  # classes up to which a map shows their names
EXCLUDES, INCLUDES = "excludes 0", "includes 0"  # of an interval
REPULSION, LIVE = "same-class pairs pushed apart", "live 1-NN accuracy"
SAME, OTHER = KINDS = ("same class", "another class")


@dataclass(frozen=True)
class Figure:
    """A figure of the page and of figures/.

    Attributes:
        name: Stem of its file names.
        panels: Charts, side by side or, on a narrow screen, stacked.
    """

    name: str
    panels: tuple[alt.LayerChart, ...]

    def joined(self) -> alt.ConcatChart:
        """Return all panels as one chart on a white background, for files."""
        charts = [panel.properties(width=WIDTH) for panel in self.panels]
        joined: alt.ConcatChart = alt.concat(*charts, columns=COLUMNS, spacing=36).resolve_scale(
            color="independent", x="independent"
        )
        joined.config = alt.Config.from_dict({**chart_config(dark=False), "background": "white"})
        return joined

    def specs(self) -> dict[str, dict[str, Any]]:
        """Return the Vega-Lite specification of each panel by the id of its element on the page."""
        specs = {}
        for i, panel in enumerate(self.panels):
            spec = panel.properties(width="container", autosize=alt.AutoSizeParams(type="fit-x", contains="padding"))
            specs[f"{self.name}-{i}"] = {k: v for k, v in spec.to_dict().items() if k not in ("$schema", "config")}
        return specs


def similarity_figure(runs: Sequence[Run]) -> Figure:
    """Plot similarities to the nearest image of the same and of another class, one panel per loss, as the paper does.

    All panels share their axes. Dashed rules are medians; the bar between them is the margin.
    """
    margins = [run.row.margin for run in runs]
    low = min(0.0, *(_lowest(histogram) for about in margins for histogram in (about.target, about.noise)))
    highest = max((bar["share"] for about in margins for bar in histogram_bars(about)), default=1.0)
    colours = loss_colours([run.row.loss for run in runs])
    x = alt.Scale(domain=[math.floor(5 * low) / 5, 1], nice=False)
    y = alt.Scale(domain=[0, 1.12 * highest], nice=False)
    panels = []
    for i, run in enumerate(runs):
        about, colour = run.row.margin, colours[run.row.loss]
        hue = alt.Color("kind:N", title=None).scale(domain=KINDS, range=[colour, GREY])
        # Named, so that the page can replace the bars by those of one class.
        bars = alt.Chart(alt.InlineData(values=histogram_bars(about), name=f"bars-{i}")).mark_bar(
            opacity=0.72, binSpacing=0
        )
        medians = alt.Chart(alt.InlineData(values=median_rules(about), name=f"medians-{i}"))
        layers = [
            bars.encode(
                x=alt.X("start:Q", title="cosine similarity", scale=x).axis(tickCount=6),
                x2="end:Q",
                y=alt.Y("share:Q", title="share of test images", scale=y).stack(None).axis(format="%", tickCount=4),
                y2=alt.Y2Datum(0),
                color=hue,
                tooltip=["kind:N", "start:Q", "end:Q", alt.Tooltip("share:Q", format=".1%")],
            ),
            medians.mark_rule(strokeDash=[4, 3], strokeWidth=1.5, color=INK).encode(
                x=alt.X("median:Q"), tooltip=["kind:N", alt.Tooltip("median:Q", format=".3f")]
            ),
            medians.mark_rule(strokeWidth=3, color=colour).encode(
                x=alt.X("noise:Q"), x2="target:Q", y=alt.value(5), tooltip=alt.Tooltip("margin:Q", format=".3f")
            ),
        ]
        name = loss_title(run.row.loss)
        panels.append(_panel(layers, name, f"Similarities under {name}", subtitle=margin_text(about)))
    return Figure("similarity", tuple(panels))


def histogram_bars(about: MarginAbout) -> list[dict[str, Any]]:
    """Return the bars of both histograms, without empty bins."""
    bars = []
    for kind, histogram in ((OTHER, about.noise), (SAME, about.target)):
        edges = np.linspace(histogram.low, histogram.high, len(histogram.counts) + 1).round(4)
        bars += [
            {"kind": kind, "start": float(edges[i]), "end": float(edges[i + 1]), "share": round(count / about.n, 5)}
            for i, count in enumerate(histogram.counts)
            if count
        ]
    return bars


def median_rules(about: MarginAbout) -> list[dict[str, Any]]:
    """Return the medians and the margin between them; nothing without images."""
    if about.margin is None:
        return []
    both = {"noise": about.noise_median, "target": about.target_median, "margin": about.margin}
    return [{"kind": SAME, "median": about.target_median, **both}, {"kind": OTHER, "median": about.noise_median}]


def margin_text(about: MarginAbout) -> str:
    """Return the margin and the medians as text."""
    if about.margin is None:
        return "no test images"
    return f"margin {about.margin:.3f} (medians {about.target_median:.3f} and {about.noise_median:.3f})"


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
    panels = []
    for loss, colour in colours.items():
        lines = alt.Chart(alt.Data(values=[row for row in rows if row["loss"] == loss])).mark_line(strokeWidth=2)
        encoded = lines.encode(
            x=alt.X("epoch:Q").axis(tickMinStep=1, tickCount=5, grid=False),
            y=alt.Y("nats:Q", title="nats", scale=scale),
            color=alt.Color("quantity:N", title=None, sort=None).scale(domain=quantities, range=[GREY, colour, GREY]),
            strokeDash=alt.StrokeDash("quantity:N", title=None, sort=None).scale(
                domain=quantities, range=[[6, 4], [1, 0], [2, 3]]
            ),
            detail="seed:N",
            tooltip=["quantity:N", "seed:N", "epoch:Q", alt.Tooltip("nats:Q", format=".3f")],
        )
        panels.append(_panel([encoded], loss_title(loss), f"Training loss of {loss_title(loss)} against epochs"))
    return Figure("training", tuple(panels))


def meters_figure(runs: Sequence[Run]) -> Figure:
    """Plot repulsion and live 1-NN accuracy against epochs, one line per run; a panel where there are values."""
    about = {REPULSION: ["repulsion_share"], LIVE: ["knn1_validation", "knn1_train"]}
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
        losses = [loss for loss in colours if any(row["loss"] == loss_title(loss) for row in rows)]
        lines = (
            alt.Chart(alt.Data(values=rows))
            .mark_line(strokeWidth=2, point={"size": 14})
            .encode(
                x=alt.X("epoch:Q").axis(tickMinStep=1, tickCount=5, grid=False),
                y=alt.Y("share:Q", title="share", scale=scale).axis(format="%"),
                color=alt.Color("loss:N", title=None).scale(
                    domain=[loss_title(loss) for loss in losses], range=[colours[loss] for loss in losses]
                ),
                detail="run:N",
                tooltip=["run:N", "epoch:Q", alt.Tooltip("share:Q", format=".1%")],
            )
        )
        panels.append(_panel([lines], title, f"{title}, against epochs"))
    return Figure("meters", tuple(panels))


def differences_figure(results: Results) -> Figure:
    """Plot paired differences between losses with their confidence intervals, one panel per metric."""
    panels = []
    for name, about in results.metrics.items():
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
    return _panel(layers, about.title, description, height=34 * len(rows))


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
        panels.append(_panel(layers, name, f"Confusion matrix of {name}", height=WIDTH))
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


def map_figure(planes: Sequence[Plane], class_names: Sequence[str]) -> Figure:
    """Plot the map of test embeddings coloured by class, one panel per loss; crosses are misclassified."""
    colour = alt.Color("class:N", legend=None).scale(domain=list(class_names), range=class_colours(len(class_names)))
    hidden = alt.Axis(labels=False, ticks=False, grid=False, domain=False, title=None)
    panels = []
    for plane in planes:
        embedding_map = plane.map
        labels, predictions = embedding_map.labels, embedding_map.predictions
        rows = [
            {"x": float(x), "y": float(y), "class": class_names[label], "right": bool(label == prediction)}
            for (x, y), label, prediction in zip(plane.unit.round(4), labels, predictions, strict=True)
        ]
        x, y = alt.X("x:Q", axis=hidden), alt.Y("y:Q", axis=hidden)
        points = alt.Chart(alt.Data(values=rows)).encode(x=x, y=y, color=colour)
        layers: list[alt.Chart] = [
            points.transform_filter("datum.right").mark_circle(size=14, opacity=1),
            points.transform_filter("!datum.right").mark_point(
                shape="cross", angle=45, size=70, filled=True, opacity=1
            ),
        ]
        if len(class_names) <= MOST_LABELLED:
            names = [
                {"class": class_names[label], "x": float(x), "y": float(y)}
                for label, (x, y) in plane.label_positions().items()
            ]
            words = alt.Chart(alt.Data(values=names)).encode(x=x, y=y, text="class:N")
            layers += [
                words.mark_text(fontSize=13, fontWeight=700, dy=-12, stroke=GROUND, strokeWidth=4, strokeOpacity=0.8),
                words.mark_text(fontSize=13, fontWeight=700, dy=-12),
            ]
        about = f"{embedding_map.method} map of the test embeddings of {loss_title(plane.loss)}"
        panels.append(_panel(layers, loss_title(plane.loss), about, subtitle=embedding_map.method, height=WIDTH))
    return Figure("map", tuple(panels))


def _panel(
    layers: Sequence[alt.Chart], title: str, description: str, *, subtitle: str = "", height: int = HEIGHT
) -> alt.LayerChart:
    shown = alt.TitleParams(title, subtitle=subtitle) if subtitle else alt.TitleParams(title)
    return alt.LayerChart(layer=list(layers)).properties(title=shown, description=description, height=height)


def _lowest(histogram: Histogram) -> float:
    filled = [i for i, count in enumerate(histogram.counts) if count]
    step = (histogram.high - histogram.low) / len(histogram.counts)
    return float(histogram.low + step * filled[0]) if filled else 0.0


def _thinned(rows: Sequence[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    """Return at most `MOST_EPOCHS` evenly spaced rows, including the first and the last."""
    if len(rows) <= MOST_EPOCHS:
        return rows
    return [rows[i] for i in np.linspace(0, len(rows) - 1, MOST_EPOCHS).round().astype(int)]
