"""Writes charts as PNG, SVG and PDF files, without a browser."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, partial
from pathlib import Path

import altair as alt
import vl_convert

from sincere.records.files import write_atomic
from sincere.records.results import FIGURE_FORMATS
from sincere.report.figure import Figure


def vega_lite_version() -> str:
    """Return the Vega-Lite version of Altair's charts, as vl-convert names it."""
    return ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])


def save_figure(
    chart: alt.TopLevelMixin, folder: Path, name: str, *, formats: Sequence[str] = FIGURE_FORMATS
) -> list[Path]:
    """Write a chart atomically in each format and return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    svg = vl_convert.vegalite_to_svg(chart.to_dict(), vl_version=vega_lite_version())  # once: it takes most of the time
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


def write_figures(figures: Iterable[Figure], folder: Path) -> None:
    """Write each figure as files; those of an earlier report that has no panels now are removed."""
    for figure in figures:
        if figure.panels:
            save_figure(figure.joined(), folder, figure.name)
            continue
        for suffix in FIGURE_FORMATS:  # other files there are the user's
            (folder / f"{figure.name}.{suffix}").unlink(missing_ok=True)


@cache
def vega() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script, in the version of Altair's charts."""
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=vega_lite_version())
    return f"(() => {{{bundle}}})();"
