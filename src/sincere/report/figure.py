"""A figure as panels: responsive on the page, side by side in files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from sincere.report.theme import chart_config

WIDTH, HEIGHT, COLUMNS = 300, 220, 3


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


def panel(
    layers: Sequence[alt.Chart], title: str, description: str, *, subtitle: str = "", height: int = HEIGHT
) -> alt.LayerChart:
    """Return a panel of layers, with a title and a description for those who cannot see it."""
    shown = alt.TitleParams(title, subtitle=subtitle) if subtitle else alt.TitleParams(title)
    return alt.LayerChart(layer=list(layers)).properties(title=shown, description=description, height=height)
