"""Figures: rows of results in, an Altair chart out, fit for a page and for a paper."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from sincere.records.files import write_atomic
from sincere.records.results import FIGURE_FORMATS
from sincere.report.theme import BLUE, GREEN, GREY, ORANGE

Row = dict[str, Any]
AXIS_TITLES = {
    "n_noise": "noise items |N|",
    "dimension": "dimension",
    "separation": "separation per dimension",
}


def bounds_figure(rows: Sequence[Row]) -> alt.HConcatChart:
    """Loss, both bounds and the divergence as |N|, dimension and separation vary, one panel each.

    Args:
        rows: As `theory.sweeps.gaussian_sweep` returns them.
    """
    quantities = ["loss", "bound (tighter)", "bound (paper)", "symmetrised KL"]
    colour = alt.Color("quantity:N", sort=quantities, title=None).scale(
        domain=quantities, range=[BLUE, GREEN, ORANGE, GREY]
    )
    dash = alt.StrokeDash("quantity:N", sort=quantities, title=None).scale(
        domain=quantities, range=[[1, 0], [6, 3], [2, 2], [8, 3, 2, 3]]
    )
    panels = []
    for varied, title in AXIS_TITLES.items():
        panel_rows = [row for row in rows if row["varied"] == varied]
        scale = alt.Scale() if varied == "separation" else alt.Scale(type="log", base=2)
        panels.append(
            alt.Chart(alt.Data(values=panel_rows), title=f"varying {title}")
            .mark_line(point=alt.OverlayMarkDef(size=18), clip=True)
            .encode(
                x=alt.X("value:Q", title=title, scale=scale).axis(labelOverlap="greedy", labelSeparation=6),
                y=alt.Y("nats:Q", title="nats", scale=alt.Scale(domain=[0, 7])),
                color=colour,
                strokeDash=dash,
                tooltip=["quantity:N", "value:Q", "nats:Q", "standard_error:Q"],
            )
            .properties(width=230, height=230)
        )
    return alt.hconcat(*panels, spacing=36)


def coefficient_range_figure(rows: Sequence[Row]) -> alt.HConcatChart:
    """The range of the gradient's scalar on a partner against |P|, a panel per loss: above 0 a class repels itself.

    Args:
        rows: As `theory.sweeps.coefficient_ranges` returns them.
    """
    zero = alt.Chart(alt.Data(values=[{"zero": 0}])).mark_rule(strokeDash=[4, 3], color=GREY).encode(y="zero:Q")
    panels = []
    for loss, colour in (("SINCERE", BLUE), ("SupCon", ORANGE)):
        base = alt.Chart(alt.Data(values=[row for row in rows if row["loss"] == loss])).encode(
            x=alt.X("n_partners:Q", title="partners |P|", scale=alt.Scale(type="log", base=2)).axis(
                labelOverlap="greedy"
            )
        )
        scale = alt.Scale(domain=[-1, 1])
        band = base.mark_area(opacity=0.35, color=colour).encode(
            y=alt.Y("low:Q", title="scalar on a partner, per anchor", scale=scale),
            y2="high:Q",
            tooltip=["loss:N", "n_partners:Q", "low:Q", "high:Q"],
        )
        edges = [base.mark_line(color=colour).encode(y=alt.Y(f"{end}:Q", scale=scale)) for end in ("low", "high")]
        panels.append(alt.LayerChart(layer=[band, *edges, zero], title=loss).properties(width=300, height=220))
    return alt.hconcat(*panels, spacing=36)


def training_figure(rows: Sequence[Row]) -> alt.HConcatChart:
    """A run's loss between its chance level and floor, and its live 1-NN accuracy, against minutes of training.

    Args:
        rows: Of metrics.jsonl.
    """
    levels = ["chance", "loss", "floor"]
    losses = [{"minutes": row["seconds"] / 60, "quantity": name, "nats": row[name]} for row in rows for name in levels]
    live = [
        {"minutes": row["seconds"] / 60, "accuracy": value, "on": key.removeprefix("knn1_")}
        for row in rows
        for key, value in row.items()
        if key.startswith("knn1_")
    ]
    minutes = alt.X("minutes:Q", title="minutes of training")
    colour = alt.Color("quantity:N", sort=levels, title=None).scale(domain=levels, range=[GREY, BLUE, GREEN])
    left = alt.Chart(alt.Data(values=losses), title="loss").mark_line(point=True)
    right = alt.Chart(alt.Data(values=live), title="live 1-NN accuracy").mark_line(point=True, color=ORANGE)
    return alt.hconcat(
        left.encode(x=minutes, y=alt.Y("nats:Q", title="nats"), color=colour).properties(width=300, height=220),
        right.encode(
            x=minutes,
            y=alt.Y("accuracy:Q", title="share", scale=alt.Scale(zero=False)),
            tooltip=["on:N", "minutes:Q", "accuracy:Q"],
        ).properties(width=300, height=220),
        spacing=36,
    )


def vega_lite_version() -> str:
    """Return the version that Altair writes for, as vl-convert names it."""
    return ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])


def save_figure(
    chart: alt.TopLevelMixin, folder: Path, name: str, *, formats: Sequence[str] = FIGURE_FORMATS
) -> list[Path]:
    """Write a chart as PNG, SVG and PDF atomically, without a browser, and return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    svg = vl_convert.vegalite_to_svg(chart.to_dict(), vl_version=vega_lite_version())  # once: most of the time is here
    paths = []
    for suffix in formats:
        path = folder / f"{name}.{suffix}"
        if suffix == "svg":
            write_atomic(path, svg)
        else:
            draw = partial(vl_convert.svg_to_png, scale=2.0) if suffix == "png" else vl_convert.svg_to_pdf
            write_atomic(path, draw(svg))
        paths.append(path)
    return paths
