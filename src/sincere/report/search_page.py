"""Writes report.html of a search: best settings, accuracy against each setting, live curves, every trial."""

from __future__ import annotations

from pathlib import Path

from sincere.loss_catalog import loss_title
from sincere.records.files import write_atomic
from sincere.records.results import FIGURES, REPORT
from sincere.records.search import LossSearch, SearchResults, TrialRow, settings_text, value_text
from sincere.report.charted_page import charted_page
from sincere.report.elements import dot, figure_element, joined, listed, scrolling, section
from sincere.report.evidence import command_of, facts_of
from sincere.report.figure import Figure
from sincere.report.figure_files import write_figures
from sincere.report.markup import Html, tag
from sincere.report.search_figures import importance_figure, live_figure, plane_figure, settings_figure
from sincere.report.search_tables import best_rows, close_note, counts_text
from sincere.report.tables import duration
from sincere.report.theme import loss_colours

CONTENTS = {"best": "Best settings", "settings": "Settings", "live": "Live", "trials": "Trials", "run": "Reproduce"}


def write_search_report(folder: Path, *, figures: bool = True) -> Path:
    """Write the figures as PNG, SVG and PDF into figures/, then report.html, from search.json.

    Raises:
        DataError: search.json is missing or damaged.
    """
    results = SearchResults.read(folder)
    drawn = [draw(results) for draw in (settings_figure, plane_figure, live_figure, importance_figure)]
    if figures:
        write_figures(drawn, folder / FIGURES)
    path = folder / REPORT
    write_atomic(path, _page(results, {figure.name: figure for figure in drawn if figure.panels}, files=figures))
    return path


def _page(results: SearchResults, figures: dict[str, Figure], *, files: bool) -> str:
    parts = [_heading(results), _best(results)]
    captions = {
        "settings": "One mark per trial; hollow ones were stopped early (pruned), at the accuracy they had by then "
        "or at the bottom.",
        "plane": "The best trial has a ring; crosses were stopped early.",
        "importance": "Share of the differences between trials that each setting explains (fANOVA). With few trials it "
        "is a rough guide.",
    }
    shown = [figure_element(figures[name], text, files=files) for name, text in captions.items() if name in figures]
    if shown:
        parts.append(section("settings", "Accuracy against the settings", *shown))
    if "live" in figures:
        caption = "Live 1-NN accuracy of every trial; the best one is thick, dashed ones were stopped early."
        parts.append(section("live", "While training", figure_element(figures["live"], caption, files=files)))
    parts += [_trials(results), _reproduction(results)]
    main = tag("main", *parts)
    return charted_page(f"{results.data}: sincere search", CONTENTS, main, figures.values(), scripts=["tables.js"])


def _heading(results: SearchResults) -> Html:
    losses = [found.loss for found in results.losses]
    n_settings = len({dimension.name for found in results.losses for dimension in found.space})
    facts = {
        "data": results.data,
        results.noun: f"{results.n_train:,} to train, {results.n_validation:,} held out; the test part was not used"
        if results.n_train
        else "",
        "trials": ", ".join(f"{loss_title(loss)} {counts_text(results, loss)}" for loss in losses),
        "search": "every combination of values" if results.grid else "values that earlier trials suggest (TPE)",
        "seeds" if len(results.seeds) > 1 else "seed": listed(results.seeds),
        "time": duration(sum(trial.seconds for trial in results.trials)),
    }
    shown = [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts.items() if value]
    title = f"Search of {n_settings} settings for {joined([loss_title(loss) for loss in losses])} on {results.data}"
    best = "; ".join(f"{loss_title(found.loss)} {100 * found.value:.1f}%" for found in results.losses)
    started = str(results.manifest.get("started", ""))[:10]
    return tag(
        "header",
        tag("p", " · ".join(part for part in ("sincere search", started) if part), class_="eyebrow"),
        tag("h1", title),
        tag("p", f"Highest 1-NN accuracy on held-out {results.noun}: {best}.", class_="finding"),
        tag("dl", *shown, class_="facts"),
    )


def _best(results: SearchResults) -> Html:
    header, rows = best_rows(results)
    colours = loss_colours([found.loss for found in results.losses])
    body = [
        tag(
            "tr",
            tag("th", dot(colours[loss]), loss_title(loss), scope="row"),
            *(tag("td", text, class_="number") for text in rest),
        )
        for loss, *rest in rows
    ]
    head = tag("tr", *(tag("th", name, scope="col") for name in header))
    about = (
        "These accuracies chose the settings, so they flatter: compare the losses on the test part, each at its own "
        "best, with sincere compare --tuned."
    )
    return section(
        "best",
        "Best settings",
        scrolling("The best trial of each loss", tag("thead", head), tag("tbody", *body), class_="summary"),
        *(
            tag("p", f"{note[:1].upper()}{note[1:]}.", class_="note")
            for note in ([close_note(results)] if results.n_validation else []) + list(results.notes)
        ),
        tag("p", about, class_="note"),
    )


def _trials(results: SearchResults) -> Html:
    names = list(dict.fromkeys(dimension.name for found in results.losses for dimension in found.space))
    best = {found.loss: found for found in results.losses}
    titles = ["loss", "trial", "1-NN", *(name.replace("_", " ") for name in names), "ended", "seconds"]
    numeric = {"trial", "1-NN", "seconds", *(name.replace("_", " ") for name in names)}
    heads = (
        tag("th", tag("button", t, type="button"), scope="col", class_="number" if t in numeric else None)
        for t in titles
    )
    head = tag("tr", *heads)
    ordered = sorted(results.trials, key=lambda trial: (-(trial.value or 0.0), trial.loss, trial.number))
    rows = [_trial(trial, names, best[trial.loss]) for trial in ordered]
    table = scrolling("Every trial", tag("thead", head), tag("tbody", *rows), class_="sortable")
    return section("trials", "Trials", tag("p", "A click on a column's title sorts by it.", class_="note"), table)


def _trial(trial: TrialRow, names: list[str], best: LossSearch) -> Html:
    accuracy = "-" if trial.value is None else f"{100 * trial.value:.2f}%"
    shown = tag("b", accuracy) if trial.number == best.trial else accuracy
    cells = [
        tag("td", loss_title(trial.loss)),
        _number(str(trial.number), trial.number),
        _number(shown, trial.value),
        *(
            _number(value_text(trial.settings[n]), trial.settings[n]) if n in trial.settings else _number("", None)
            for n in names
        ),
        tag("td", f"{trial.state}: {trial.error}" if trial.error else trial.state),
        _number(f"{trial.seconds:.0f}", trial.seconds),
    ]
    return tag("tr", *cells)


def _number(text: str, value: object) -> Html:
    sortable = str(value) if isinstance(value, int | float) else None
    return tag("td", text, class_="number", data_value=sortable)


def _reproduction(results: SearchResults) -> Html:
    command = " ".join(command_of(results.manifest))
    facts = {**facts_of(results.manifest), **{name: str(value) for name, value in results.settings.items()}}
    shown = [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts.items()]
    spaces = [
        tag(
            "p",
            f"{loss_title(found.loss)}: {' '.join(d.written() for d in found.space)}; best {settings_text(found.best)}",
        )
        for found in results.losses
    ]
    return section(
        "run",
        "Reproduce",
        tag("pre", tag("code", command)) if command else None,
        *spaces,
        tag("details", tag("summary", "Versions, hardware and settings"), tag("dl", *shown, class_="facts")),
    )
