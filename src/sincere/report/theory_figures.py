"""Charts of the theory sweeps, in the words of the paper (partners and noise)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from sincere.report.theme import BLUE, GREEN, GREY, ORANGE

Row = dict[str, Any]
AXIS_TITLES = {
    "n_noise": "noise items |N|",
    "dimension": "dimension",
    "separation": "separation per dimension",
}


def bounds_figure(rows: Sequence[Row]) -> alt.HConcatChart:
    """Plot the loss, both bounds and the divergence against |N|, dimension and separation, one panel each.

    Args:
        rows: Result of `theory.sweeps.gaussian_sweep`.
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
    """Plot the range of the gradient's coefficient on a positive against |P|, one panel per loss.

    Above 0 a step pushes images of the same class apart.

    Args:
        rows: Result of `theory.sweeps.coefficient_ranges`.
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
