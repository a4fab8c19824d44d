"""Pieces of a page that several sections use."""

from __future__ import annotations

from collections.abc import Sequence

from sincere.records.results import FIGURE_FORMATS
from sincere.report.figure import Figure
from sincere.report.markup import Html, tag
from sincere.report.tables import Cell
from sincere.report.theme import ON_DARK


def section(identifier: str, title: str, *parts: Html | None) -> Html:
    """Return a section with a title."""
    return tag("section", tag("h2", title), *parts, id=identifier)


def scrolling(caption: str, *content: Html, class_: str) -> Html:
    """Return a table in a scrollable box, which can be focused by keyboard."""
    shown = tag("table", tag("caption", caption), *content, class_=class_)
    return tag("div", shown, class_="scroll", tabindex="0", role="region", aria_label=caption)


def cell(cell: Cell) -> Html:
    """Return a cell of a table: an estimate with its interval and details."""
    text = tag("b", cell.text) if cell.bold else cell.text
    ends = tag("span", cell.interval, class_="interval") if cell.interval else None
    detail = tag("span", cell.detail, class_="detail") if cell.detail else None
    return tag("td", text, " " if ends else None, ends, detail, class_="number")


def figure_element(figure: Figure, caption: str | None, *, files: bool) -> Html:
    """Return a figure with its caption, and with links to its files if there are any."""
    charts = [
        tag("div", class_="chart", id=f"{figure.name}-{i}", role="figure", aria_label=panel.description)
        for i, panel in enumerate(figure.panels)
    ]
    links = file_links(figure) if files else None
    return tag(
        "figure",
        tag("div", *charts, class_=f"panels {figure.name}"),
        tag("figcaption", caption, " " if caption else None, links),
    )


def file_links(figure: Figure) -> Html:
    """Return links to the files of a figure."""
    links = [tag("a", suffix.upper(), href=f"figures/{figure.name}.{suffix}") for suffix in FIGURE_FORMATS]
    return tag("span", "Download: ", links[0], " ", links[1], " ", links[2], class_="files")


def dot(colour: str) -> Html:
    """Return a dot in the colour of a loss."""
    ground = f"background: light-dark({colour}, {ON_DARK.get(colour, colour)})"
    return tag("span", class_="dot", style=ground, aria_hidden="true")


def joined(names: Sequence[str]) -> str:
    """Return names as text: a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def listed(values: Sequence[int]) -> str:
    """Return numbers as text: 0, 1, 2."""
    return ", ".join(map(str, values))
