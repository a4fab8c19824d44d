"""Figures of a search: accuracy against each setting, the plane of two settings, live curves, importance."""

from __future__ import annotations

from typing import Any

import altair as alt

from sincere.loss_catalog import loss_title
from sincere.records.search import Dimension, SearchResults, TrialRow
from sincere.report.figure import Figure, panel
from sincere.report.result_figures import epoch_axis
from sincere.report.theme import INK, loss_colours

STATES = ("complete", "pruned")
MOST_CURVES = 60  # of a loss


def settings_figure(results: SearchResults) -> Figure:
    """Plot the accuracy of each trial against each searched number, one panel per setting."""
    dimensions = {d.name: d for found in results.losses for d in found.space if d.is_numeric and not d.is_fixed}
    panels = []
    for name, dimension in dimensions.items():
        rows = [_point(trial) for trial in _drawn(results) if name in trial.settings]
        points = (
            alt.Chart(alt.Data(values=rows))
            .mark_point(size=55, strokeWidth=1.6)
            .encode(
                x=_axis(dimension),
                y=alt.Y("value:Q", title="1-NN, held out", scale=_scale(results)).axis(format="%"),
                color=_colour(results),
                fillOpacity=alt.condition("datum.state === 'complete'", alt.value(0.75), alt.value(0)),
                fill=_colour(results),
                tooltip=_tooltip(results),
            )
        )
        text = f"1-NN accuracy on held-out {results.noun} against {dimension.title}; one mark per trial"
        panels.append(panel([points], dimension.title, text))
    return Figure("settings", tuple(panels))


def plane_figure(results: SearchResults) -> Figure:
    """Plot the accuracy of the trials over the first two searched numbers, one panel per loss."""
    panels = []
    for found in results.losses:
        numbers = [dimension for dimension in found.space if dimension.is_numeric and not dimension.is_fixed]
        if len(numbers) < 2:
            continue
        x, y = numbers[:2]
        rows = [_point(trial) for trial in _drawn(results) if trial.loss == found.loss]
        scale = _scale(results, scheme="viridis")
        color = alt.Color("value:Q", title="1-NN", scale=scale, legend=alt.Legend(format=".1%", gradientLength=120))
        marks = (
            alt.Chart(alt.Data(values=rows))
            .mark_point(size=130, filled=True, opacity=1)
            .encode(
                x=_axis(x),
                y=_axis(y, vertical=True),
                color=color,
                shape=alt.Shape("state:N", title=None).scale(domain=list(STATES), range=["circle", "cross"]),
                tooltip=_tooltip(results),
            )
        )
        best = [row for row in rows if row["trial"] == found.trial]
        ring = (
            alt.Chart(alt.Data(values=best))
            .mark_point(size=330, filled=False, strokeWidth=2.2, color=INK)
            .encode(x=_axis(x), y=_axis(y, vertical=True))
        )
        text = f"1-NN accuracy of {loss_title(found.loss)} over {x.title} and {y.title}; the best trial has a ring"
        panels.append(panel([marks, ring], loss_title(found.loss), text, height=260))
    return Figure("plane", tuple(panels))


def live_figure(results: SearchResults) -> Figure:
    """Plot the live accuracy of each trial against epochs, one panel per loss; pruned trials end early."""
    panels = []
    for found in results.losses:
        trials = [trial for trial in results.of_loss(found.loss) if len(trial.curve) > 1][:MOST_CURVES]
        rows = [
            {**_point(trial), "epoch": epoch, "live": value, "best": trial.number == found.trial}
            for trial in trials
            for epoch, value in trial.curve
        ]
        if not rows:
            continue
        lines = (
            alt.Chart(alt.Data(values=rows))
            .mark_line(point={"size": 12})
            .encode(
                x=epoch_axis([row["epoch"] for row in rows]),
                y=alt.Y("live:Q", title="live 1-NN").scale(zero=False).axis(format="%"),
                detail="trial:N",
                color=alt.value(_colours(results)[found.loss]),
                strokeDash=alt.StrokeDash("state:N", title=None).scale(domain=list(STATES), range=[[1, 0], [4, 3]]),
                strokeWidth=alt.condition("datum.best", alt.value(3), alt.value(1)),
                opacity=alt.condition("datum.best", alt.value(1), alt.value(0.55)),
                tooltip=[*_tooltip(results), "epoch:Q", alt.Tooltip("live:Q", format=".1%")],
            )
        )
        text = f"Live 1-NN accuracy of the trials of {loss_title(found.loss)} against epochs; the best one is thick"
        panels.append(panel([lines], loss_title(found.loss), text))
    return Figure("live", tuple(panels))


def importance_figure(results: SearchResults) -> Figure:
    """Plot how much of the differences between trials each setting explains, one panel per loss."""
    panels = []
    for found in results.losses:
        if not found.importance:
            continue
        rows = [{"setting": name.replace("_", " "), "share": share} for name, share in found.importance.items()]
        bars = (
            alt.Chart(alt.Data(values=rows))
            .mark_bar(color=_colours(results)[found.loss], height={"band": 0.6})
            .encode(
                x=alt.X("share:Q", title="share explained").scale(domain=[0, 1]).axis(format="%"),
                y=alt.Y("setting:N", title=None, sort="-x"),
                tooltip=["setting:N", alt.Tooltip("share:Q", format=".0%")],
            )
        )
        text = f"Importance of each setting for {loss_title(found.loss)}"
        panels.append(panel([bars], loss_title(found.loss), text, height=40 + 34 * len(rows)))
    return Figure("importance", tuple(panels))


def _drawn(results: SearchResults) -> list[TrialRow]:
    return [trial for trial in results.trials if trial.value is not None]


def _point(trial: TrialRow) -> dict[str, Any]:
    about = {"loss": loss_title(trial.loss), "trial": trial.number, "state": trial.state, "value": trial.value}
    return {**trial.settings, **about}


def _axis(dimension: Dimension, *, vertical: bool = False) -> Any:
    kind = alt.Y if vertical else alt.X
    if dimension.values:
        ordered = sorted(map(float, dimension.values))
        axis = alt.Axis(labelAngle=0, grid=False)
        return kind(f"{dimension.name}:O", title=dimension.title, sort=ordered, axis=axis)
    scale = alt.Scale(type="log" if dimension.log else "linear", domain=[dimension.low, dimension.high], nice=False)
    return kind(f"{dimension.name}:Q", title=dimension.title, scale=scale).axis(tickCount=5, grid=False)


def _scale(results: SearchResults, **options: Any) -> alt.Scale:
    """Return the scale of accuracies: that of complete trials; pruned ones may have had far less by then."""
    values = [trial.value for trial in results.trials if trial.state == "complete" and trial.value is not None]
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = 0.08 * (high - low) or 0.005
    return alt.Scale(domain=[max(0.0, low - room), min(1.0, high + room)], clamp=True, nice=False, **options)


def _colours(results: SearchResults) -> dict[str, str]:
    return loss_colours([found.loss for found in results.losses])


def _colour(results: SearchResults) -> alt.Color:
    colours = _colours(results)
    domain, shown = [loss_title(loss) for loss in colours], list(colours.values())
    return alt.Color("loss:N", title=None).scale(domain=domain, range=shown)


def _tooltip(results: SearchResults) -> list[Any]:
    names = dict.fromkeys(dimension.name for found in results.losses for dimension in found.space)
    settings = [alt.Tooltip(f"{name}:N", title=name.replace("_", " ")) for name in names]
    return ["loss:N", "trial:N", "state:N", *settings, alt.Tooltip("value:Q", title="1-NN", format=".2%")]
