"""The sections of a report as HTML, in the order of the page."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from sincere.loss_catalog import loss_title
from sincere.records.arrays import MAP
from sincere.records.config import CONFIG
from sincere.records.log import METRICS
from sincere.records.manifest import MANIFEST
from sincere.records.results import ABOUT_LOSSES, MAIN, ClassRow, LabelRow
from sincere.report.elements import cell, dot, figure_element, file_links, listed, scrolling, section
from sincere.report.evidence import Evidence, Run, command_of, facts_of
from sincere.report.figure import Figure
from sincere.report.map import Plane
from sincere.report.markup import Html, join, tag, with_code
from sincere.report.metric_groups import baseline_rows
from sincere.report.result_figures import LIVE, MOST_CLASSES, REPULSION
from sincere.report.tables import few_digits, group_metrics, number, summary_table
from sincere.report.theme import loss_colours


def table(evidence: Evidence, differences: Figure) -> Html:
    """Return the table of losses and metrics with its legend, and the paired differences."""
    results = evidence.results
    names = group_metrics(results)[MAIN]
    header, rows = summary_table(results, names)
    losses = [summary.loss for summary in results.summaries]
    colours = loss_colours(losses)
    body = []
    for loss, (first, *rest) in zip(losses, rows, strict=True):
        detail = tag("span", first.detail, class_="detail") if first.detail else None
        body.append(tag("tr", tag("th", dot(colours[loss]), loss_title(loss), detail, scope="row"), *map(cell, rest)))
    body += baseline_rows(results, names, len(header))
    head = tag("tr", *(tag("th", name, scope="col") for name in header))
    about_losses = results.scope == ABOUT_LOSSES
    models = "Each loss" if about_losses else f"The trained model{'s' if len(results.rows) > 1 else ''}"
    data = results.data
    caption = f"{models} on the {data.n_test:,} test {data.noun} of {data.name}"
    meaning = f"In brackets: 95% confidence intervals, over test {data.noun} and seeds."
    if not about_losses:
        meaning = f"In brackets: 95% confidence intervals over test {data.noun}, of these trained models."
    if any(summary.seed_std for summary in results.summaries):
        meaning += " Estimates are means over the seeds, with the standard deviation (sd) over the seeds below."
    if len(losses) > 1:
        best = "the best loss and those" if about_losses else "the best of these trained models and those"
        meaning += f" Bold: {best} not significantly worse, if any loss is."
    parts = [
        scrolling(caption, tag("thead", head), tag("tbody", *body), class_="summary"),
        tag("p", meaning, class_="note"),
        *(tag("p", with_code(_sentence(note)), class_="note") for note in results.notes),
    ]
    if differences.panels:
        parts += [
            tag("h3", "Paired differences"),
            figure_element(differences, _differences_caption(about_losses, data.singular), files=evidence.files),
        ]
    return section("results", "Results", *parts)


def _differences_caption(about_losses: bool, sample: str) -> str:
    between = "Between these trained models, paired"
    paired = f"Paired by test {sample} and seed" if about_losses else f"{between} by test {sample}"
    return f"{paired}. Dots are differences, lines their 95% confidence intervals; blue ones exclude 0."


def similarity(evidence: Evidence, figure: Figure) -> Html:
    """Return the similarity figure, and the same for one class on demand; with label sets, the figure alone."""
    data, sample = evidence.results.data, evidence.results.data.singular
    same, other, what = "of the same class", "of another class", "classes"
    if data.label_sets:
        same, other, what = "that shares a label", "that shares none", "labels"
    about = (
        f"For every test {sample}: the cosine similarity to the nearest training {sample} {same}, and to the nearest "
        f"{other}. Dashed lines are medians. The bar between them is the margin: the wider it is, the better the "
        f"{what} are separated. All panels share their axes."
    )
    drawn = [tag("p", about), _which_seed(evidence), figure_element(figure, None, files=evidence.files)]
    if data.label_sets:
        return section("similarity", "How well are the labels separated?", *drawn)
    options = [tag("option", name, value=str(i)) for i, name in enumerate(evidence.results.data.class_names)]
    charts = [tag("div", class_="chart", id=f"class-{i}") for i in range(len(figure.panels))]
    one_class = tag(
        "details",
        tag("summary", "One class at a time"),
        tag("p", tag("label", "Class ", tag("select", *options, id="class-choice"))),
        tag("div", *charts, class_="panels"),
        id="per-class",
        class_="box",
    )
    return section("similarity", "How well are the classes separated?", *drawn, one_class)


def training(evidence: Evidence, curves: Figure, meters: Figure) -> Html:
    """Return the training curves, the repulsion meter and live accuracies."""
    notes = _problems(evidence.runs, METRICS)
    if not curves.panels:
        missing = tag("p", "The training log, metrics.jsonl, is missing.")
        return section("training", "Training", *notes or [missing])
    data = evidence.results.data
    levels = f"Chance is the loss when all {data.noun} are equally similar, floor the loss when the classes are "
    about = "" if data.label_sets else f"{levels}perfectly separated. "
    parts = [
        tag("p", f"{about}All panels share their vertical axis."),
        figure_element(curves, None, files=evidence.files),
    ]  # fmt: skip
    if meters.panels:
        titles = [panel.title.text for panel in meters.panels]
        explanations = []
        if REPULSION in titles:
            explanations.append(
                "Pairs pushed apart: the fraction of same-class pairs whose similarity a gradient step of the loss "
                "lowers. SINCERE never does that; SupCon does where a pair is already much more similar than the "
                "others of its class. Losses without this metric are left out."
            )
        if LIVE in titles:
            measured = f"share of {data.noun} whose nearest shares a label" if data.label_sets else "accuracy"
            explanations.append(f"Live 1-NN: {measured}, on held-out or training {data.noun} during training.")
        parts.append(figure_element(meters, " ".join(explanations), files=evidence.files))
    return section("training", "Training", *parts, *notes)


def classes(evidence: Evidence) -> Html:
    """Return the table of classes of each loss."""
    data = evidence.results.data
    about = (
        f"Nearest other: among the nearest training {data.noun} of other classes, the most frequent class, and how "
        "often it is; that is no error rate. Divergence: "
        "a lower bound on the symmetrised KL divergence between the class and the rest, in nats, with its 95% "
        f"confidence interval; it cannot exceed the cap, which grows with the number of {data.noun}. Click a column "
        "title to sort."
    )
    tables = [(loss_title(run.row.loss), _class_table(run, data.noun)) for run in evidence.shown]
    return section("classes", "Class by class", tag("p", about), _which_seed(evidence), _tabs(tables))


def labels(evidence: Evidence) -> Html:
    """Return the table of labels of each loss, where a sample may have several."""
    noun = evidence.results.data.noun
    about = (
        f"Average precision: how well the share of the nearest training {noun} that have a label ranks the test {noun} "
        f"that have it before the others; by chance it is the fraction of test {noun} that have it. Click a column "
        "title to sort."
    )
    tables = [(loss_title(run.row.loss), _label_table(run, noun)) for run in evidence.shown]
    return section("classes", "Label by label", tag("p", about), _which_seed(evidence), _tabs(tables))


def _label_table(run: Run, noun: str) -> Html:
    header = ("label", f"training {noun}", f"test {noun}", "average precision")
    rows = map(_label_row, run.row.labels)
    return _sortable(f"Labels under {loss_title(run.row.loss)}", header, ("label",), rows)


def _label_row(row: LabelRow) -> Html:
    precision = row.average_precision
    return tag(
        "tr",
        tag("th", row.name, scope="row"),
        _number(row.n_train, f"{row.n_train:,}"),
        _number(row.n_test, f"{row.n_test:,}"),
        _number(precision, None if precision is None else number(precision, share=True)),
    )


def _class_table(run: Run, noun: str) -> Html:
    header = (
        "class",
        f"training {noun}",
        f"test {noun}",
        "1-NN accuracy",
        "margin",
        "nearest other",
        "how often",
        "divergence ≥",
        "cap",
    )
    rows = map(_class_row, run.row.classes)
    return _sortable(f"Classes under {loss_title(run.row.loss)}", header, ("class", "nearest other"), rows)


def _sortable(caption: str, header: Sequence[str], words: Sequence[str], rows: Iterable[Html]) -> Html:
    """Return a table that a script sorts; columns that are not `words` hold numbers."""
    head = [
        tag("th", tag("button", name, type="button"), scope="col", class_=None if name in words else "number")
        for name in header
    ]
    return scrolling(caption, tag("thead", tag("tr", *head)), tag("tbody", *rows), class_="sortable")


def _class_row(row: ClassRow) -> Html:
    bound = row.divergence
    ends = tag("span", f"[{bound.low:.2f}, {bound.high:.2f}]", class_="interval") if bound else None
    shown = join(f"{bound.estimate:.2f} ", ends) if bound else None
    return tag(
        "tr",
        tag("th", row.name, scope="row"),
        _number(row.n_train, None if row.n_train is None else f"{row.n_train:,}"),
        _number(row.n_test, f"{row.n_test:,}"),
        _number(row.accuracy, None if row.accuracy is None else number(row.accuracy, share=True)),
        _number(row.margin.margin, _margin(row.margin.margin)),
        tag("td", row.confused_with or "-"),
        _number(row.confused_share, None if row.confused_share is None else number(row.confused_share, share=True)),
        _number(bound.estimate if bound else None, shown),
        _number(row.divergence_cap, None if row.divergence_cap is None else f"{row.divergence_cap:.2f}"),
    )


def _margin(value: float | None) -> str | None:
    return None if value is None else number(value, share=False, digits=few_digits(value, share=False))


def maps(evidence: Evidence, planes: Sequence[Plane], figure: Figure) -> Html:
    """Return the maps, which a script draws, and the card of the selected sample."""
    data = evidence.results.data
    title = f"Map of the test {data.noun}"
    missing = [
        tag("p", f"No map of {run.name}: {run.problems[MAP]}.", class_="note")
        for run in evidence.shown
        if MAP in run.problems
    ]
    if not planes:
        return section("map", title, *missing)
    n, method = len(planes[0].map.ids), planes[0].map.method
    about = (
        f"{n:,} test {data.noun} projected by {method}, coloured by class; crosses are misclassified. Point at or "
        f"touch one to see it with its nearest training {data.noun} under each loss and their cosine similarities; "
        "the class of the first is the prediction. Arrow keys select the next one. Distances "
        f"between clusters in such a map mean little; which {data.noun} are close together means more."
    )
    colours = loss_colours([run.row.loss for run in evidence.shown])
    drawn = []
    for i, plane in enumerate(planes):
        name = loss_title(plane.loss)
        canvas = tag("canvas", role="img", tabindex="0", aria_label=f"{method} map of {n:,} test {data.noun}, {name}")
        drawn.append(tag("div", tag("h3", dot(colours[plane.loss]), name), canvas, class_="map", id=f"map-{i}"))
    card = tag("div", tag("p", "Select a point.", class_="note"), id="card", class_="box", aria_live="polite")
    choice = tag("div", class_="choice", id="map-choice", role="group", aria_label="loss of the map shown")
    return section(
        "map", title, tag("p", about), _which_seed(evidence), *missing, choice,
        tag("div", *drawn, class_="maps"), card, file_links(figure) if evidence.files else None,
    )  # fmt: skip


def confusion(evidence: Evidence, figure: Figure) -> Html:
    """Return the confusion matrices."""
    data = evidence.results.data
    about = f"Rows are the classes of the test {data.noun}, columns the class of the nearest training {data.singular}."
    n_classes = len(evidence.results.data.class_names)
    if n_classes > MOST_CLASSES:
        about += f" Of {n_classes} classes, the {MOST_CLASSES} with the most mistakes over all losses."
    return section(
        "confusion",
        "Which classes are confused?",
        tag("p", about),
        _which_seed(evidence),
        figure_element(figure, None, files=evidence.files),
    )


def reproduction(evidence: Evidence) -> Html:
    """Return commands, versions, hardware and the settings of every run."""
    manifest = evidence.results.manifest
    command = command_of(manifest)
    parts = [
        tag("p", "Training with the same settings on the same CPU gives the same weights."),
        tag("p", "The command of this report:") if command else None,
        tag("pre", shlex.join(command)) if command else None,
        _manifest(manifest),
        *_problems(evidence.runs, CONFIG, MANIFEST),
        tag("h3", "Settings of each run"),
    ]
    for run in evidence.runs:
        own = command_of(run.manifest)
        parts.append(
            tag(
                "details",
                tag("summary", run.name),
                tag("p", f"Folder: {run.row.folder}", class_="note"),
                tag("pre", shlex.join(own)) if own and own != command else None,
                tag("pre", run.config),
                _manifest(run.manifest) if run.manifest else None,
                class_="box",
            )
        )
    return section("reproduce", "Settings, versions and how to reproduce it", *parts)


def _manifest(manifest: dict[str, Any]) -> Html:
    facts = facts_of(manifest).items()
    shown = [tag("div", tag("dt", name.replace("_", " ")), tag("dd", value)) for name, value in facts]
    return tag("dl", *shown, class_="facts small")


def _problems(runs: Sequence[Run], *names: str) -> list[Html]:
    """Return a note for each missing or damaged file of these names."""
    problems = [(run, run.problems[name]) for run in runs for name in names if name in run.problems]
    return [tag("p", f"{run.name}: {text}.", class_="note") for run, text in problems]


def _tabs(panels: Sequence[tuple[str, Html]]) -> Html:
    """Return panels as tabs; without scripts all are shown. A single panel needs no tabs."""
    if len(panels) == 1:
        return panels[0][1]
    return tag("div", *(tag("div", panel, class_="tab", data_name=name) for name, panel in panels), class_="tabs")


def _number(value: float | None, text: str | None) -> Html:
    """Return a cell that sorts by a value; without one it sorts last."""
    return tag("td", text or "-", class_="number", data_value=None if value is None else repr(value))


def _which_seed(evidence: Evidence) -> Html | None:
    """Return a note on which seeds are shown, where a loss has several runs."""
    if len(evidence.shown) == len(evidence.runs):
        return None
    seeds = sorted({run.row.seed for run in evidence.shown})
    return tag("p", f"Shown: the runs with seed {listed(seeds)}.", class_="note")


def _sentence(note: str) -> str:
    return f"{note[:1].upper()}{note[1:].rstrip('.')}."
