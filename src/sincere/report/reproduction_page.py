"""Shows a reproduction of the paper's tables: in the terminal, as a page with histograms, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rich.table import Table
from rich.text import Text

from sincere.loss_catalog import RAW_FEATURES, loss_title
from sincere.messages import Messages
from sincere.recipes import EXPERIMENTS
from sincere.records.files import write_atomic
from sincere.records.reproduction import Experiment
from sincere.records.results import FIGURES, REPORT, Row
from sincere.report.charted_page import charted_page
from sincere.report.elements import cell, figure_element, scrolling, section
from sincere.report.figure import Figure
from sincere.report.figure_files import save_figure
from sincere.report.markup import Html, tag
from sincere.report.reproduction_contents import Missing, Reproduction
from sincere.report.reproduction_tables import TABLES, PaperTable
from sincere.report.similarity_figure import histograms_figure
from sincere.report.tables import Cell
from sincere.settings.reproduce_request import ALL, ITEMS

HISTOGRAMS = "histograms"
FORMATS = ("svg",)
MOST_CLASSES = 12  # up to which each class has histograms of its own


def items_of(item: str) -> list[str]:
    """Return the items that one stands for."""
    return [name for name in ITEMS if name != ALL] if item == ALL else [item]


def tables_of(reproduction: Reproduction, item: str) -> list[PaperTable]:
    """Return the tables of an item that have rows."""
    found = (table for name in items_of(item) if name in TABLES for table in TABLES[name](reproduction))
    return [table for table in found if table.rows]


def show_tables(reproduction: Reproduction, item: str, page: Path, messages: Messages) -> None:
    """Print the tables of an item, what is missing, and the path of the page, unless quiet."""
    if messages.quiet:
        return
    for table in tables_of(reproduction, item):
        messages.console.print()
        messages.console.print(_terminal_table(table))
        for note in table.notes:
            messages.say(note)
    if reproduction.missing:
        messages.say("")
        messages.say("missing:")
        for missing in reproduction.missing:
            messages.say(f"  {missing_text(missing)}")
            messages.say(f"    {missing.command}")
    messages.say("")
    messages.say(f"page: {page}")


def missing_text(missing: Missing) -> str:
    """Return what an experiment lacks."""
    n, some = missing.n_runs, len(missing.runs) < missing.n_runs
    return f"{missing.name}: {f'{len(missing.runs)} of {n} runs: ' + ', '.join(missing.runs) if some else f'{n} runs'}"


def _terminal_table(table: PaperTable) -> Table:
    shown = Table(title=table.title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for number, title in enumerate(table.header):
        shown.add_column(title, justify="left" if number < table.n_text_columns else "right", overflow="fold")
    for row in table.rows:
        shown.add_row(*(_terminal_cell(cell) for cell in row))
    return shown


def _terminal_cell(cell: Cell) -> Text:
    text = Text(cell.text, style="bold" if cell.bold else "")
    for line in filter(None, (cell.interval, cell.detail)):
        text.append(f"\n{line}", style="not bold dim")
    return text


def markdown_table(table: PaperTable) -> str:
    """Return a table as Markdown, with its notes below."""
    n_text = table.n_text_columns
    lines = [table.header, ["---"] * n_text + ["---:"] * (len(table.header) - n_text)]
    lines += [[_markdown_cell(cell) for cell in row] for row in table.rows]
    escaped = ([cell.replace("|", r"\|") for cell in line] for line in lines)  # |N| is no end of a cell
    text = "\n".join(f"| {' | '.join(line)} |" for line in escaped)
    return "\n\n".join([text, *table.notes])


def _markdown_cell(cell: Cell) -> str:
    text = f"**{cell.text}**" if cell.bold else cell.text
    return " ".join(filter(None, (text, cell.interval, f"({cell.detail})" if cell.detail else "")))


def write_reproduction(reproduction: Reproduction, item: str, folder: Path) -> Path:
    """Write the page of an item, and its histograms as files into figures/."""
    figures = list(_histograms(reproduction)) if HISTOGRAMS in items_of(item) else []
    for figure in figures:
        save_figure(figure.joined(), folder / FIGURES, figure.name, formats=FORMATS)
    path = folder / (REPORT if item == ALL else f"{item}.html")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, _page(reproduction, item, figures))
    return path


def _histograms(reproduction: Reproduction) -> Iterable[Figure]:
    """Yield the histograms of each experiment: over all classes, then of each class."""
    for experiment in reproduction.trained():
        shown = _first_rows(experiment)
        entries = [(loss_title(row.loss), row.loss, row.margin) for row in shown]
        yield histograms_figure(f"histograms-{experiment.name}", entries)
        names = experiment.results.data.class_names
        if len(names) > MOST_CLASSES:
            continue
        of_classes = [
            (f"{name}, {loss_title(row.loss)}", row.loss, row.classes[i].margin)
            for i, name in enumerate(names)
            for row in shown
        ]
        yield histograms_figure(f"histograms-{experiment.name}-classes", of_classes)


def _first_rows(experiment: Experiment) -> list[Row]:
    """Return the row of each loss's first seed."""
    first: dict[str, Row] = {}
    for row in experiment.results.rows:
        if row.loss != RAW_FEATURES:
            first.setdefault(row.loss, row)
    return list(first.values())


def _page(reproduction: Reproduction, item: str, figures: list[Figure]) -> str:
    parts = [_heading(reproduction)]
    drawn = {figure.name: figure for figure in figures}
    for name in items_of(item):
        if name == HISTOGRAMS:
            parts += [_histograms_section(reproduction, drawn)] if drawn else []
            continue
        tables = [table for table in TABLES[name](reproduction) if table.rows]
        if tables:
            parts.append(section(name, ITEMS[name], *(part for table in tables for part in _table(table))))
    if reproduction.missing:
        parts.append(_missing_section(reproduction))
    main = tag("main", *parts)
    return charted_page(f"sincere reproduce {item}", {name: ITEMS[name] for name in items_of(item)}, main, figures)


def _heading(reproduction: Reproduction) -> Html:
    trained = list(reproduction.trained())
    n_runs = sum(len(_trained_rows(experiment)) for experiment in trained)
    sized = "at the paper's own size" if reproduction.scale == "paper" else "sized for two CPU cores"
    counted = f"{_counted(len(trained), 'experiment')}, {_counted(n_runs, 'trained model')}"
    about = f"{counted}, {sized}; the paper's values are beside ours."
    return tag(
        "header",
        tag("p", f"sincere reproduce · scale {reproduction.scale}", class_="eyebrow"),
        tag("h1", "The paper's tables and figures"),
        tag("p", about, class_="finding"),
        tag("p", "Paper: ", tag("a", "SINCERE: Supervised Information Noise-Contrastive Estimation REvisited",
            href="https://arxiv.org/abs/2309.14277")),
    )  # fmt: skip


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _trained_rows(experiment: Experiment) -> list[Row]:
    return [row for row in experiment.results.rows if row.loss != RAW_FEATURES]


def _table(table: PaperTable) -> list[Html]:
    n_text = table.n_text_columns
    columns = [(title, "text" if number < n_text else None) for number, title in enumerate(table.header)]
    head = tag("tr", *(tag("th", title, scope="col", class_=kind) for title, kind in columns))
    body = [
        tag("tr", tag("th", row[0].text, scope="row"), *map(_text_cell, row[1:n_text]), *map(cell, row[n_text:]))
        for row in table.rows
    ]
    shown = scrolling(table.title, tag("thead", head), tag("tbody", *body), class_="summary paper")
    return [shown, *(tag("p", note, class_="note") for note in table.notes)]


def _text_cell(cell: Cell) -> Html:
    return tag("td", cell.text, tag("span", cell.detail, class_="detail") if cell.detail else None)


def _histograms_section(reproduction: Reproduction, figures: dict[str, Figure]) -> Html:
    parts: list[Html] = []
    for experiment in reproduction.trained():
        name = f"histograms-{experiment.name}"
        parts += [tag("h3", EXPERIMENTS[experiment.recipe].title), figure_element(figures[name], None, files=False)]
        if f"{name}-classes" in figures:
            of_classes = figure_element(figures[f"{name}-classes"], None, files=False)
            parts.append(tag("details", tag("summary", "Each class"), of_classes, class_="box", open=True))
    about = (
        "For every test image: the cosine similarity to the nearest training image of the same class, and to the "
        "nearest of another class; first seed. Dashed lines are medians, the bar between them is the margin."
    )
    return section(HISTOGRAMS, ITEMS[HISTOGRAMS], tag("p", about), *parts)


def _missing_section(reproduction: Reproduction) -> Html:
    listed = [
        tag("li", missing_text(missing), tag("pre", tag("code", missing.command))) for missing in reproduction.missing
    ]
    return section("missing", "Not run", tag("ul", *listed))
