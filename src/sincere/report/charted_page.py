"""A page of sections with charts: links to its sections, a switch between light and dark, and the charts' data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sincere.report.document import asset, document
from sincere.report.figure import Figure
from sincere.report.figure_files import vega
from sincere.report.markup import Html, data_block, tag
from sincere.report.theme import ON_DARK, chart_config


def charted_page(
    title: str,
    contents: Mapping[str, str],
    main: Html,
    figures: Iterable[Figure],
    *,
    data: Mapping[str, Any] | None = None,
    scripts: Sequence[str] = (),
) -> str:
    """Return a page.

    Args:
        title: Title of the document.
        contents: Titles of sections by their id; those that `main` has are linked.
        main: Its sections.
        figures: The figures in them that charts.js draws.
        data: Data of further scripts.
        scripts: Files in assets/ that it needs besides charts.js.
    """
    links = [tag("a", text, href=f"#{name}") for name, text in contents.items() if f'id="{name}"' in main]
    toggle = tag("button", "Dark", type="button", id="theme", aria_label="switch between light and dark")
    charts = {element: spec for figure in figures for element, spec in figure.specs().items()}
    config = {"light": chart_config(dark=False), "dark": chart_config(dark=True)}
    return document(
        title,
        tag("nav", tag("div", *links, class_="links"), toggle, aria_label="sections"),
        main,
        data_block("report-data", {"charts": charts, "on_dark": ON_DARK, "config": config, **(data or {})}),
        scripts=[vega(), *(asset(name) for name in ("charts.js", *scripts))],
    )
