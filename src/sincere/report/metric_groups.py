"""Metrics beside those of the first table, group by group, with how to read each; and baselines."""

from __future__ import annotations

from collections.abc import Sequence

from sincere.loss_catalog import loss_title
from sincere.records.results import MAIN, Results
from sincere.report.elements import cell, dot, scrolling, section
from sincere.report.markup import Html, join, tag
from sincere.report.tables import compared_pair, estimate_text, group_metrics, interval, metric_cell, number
from sincere.report.theme import loss_colours

ABOUT = {
    "classifiers": "Other ways to classify the same embeddings.",
    "geometry": "The shape of the test embeddings. For most metrics no direction is better for every purpose: a model "
    "whose classes are single points separates them best and knows least about anything else.",
    "retrieval": "Whether the training images of the right class come first when all are ranked by similarity.",
    "unknown classes": "How well images of classes that the model has not seen are told from those of known classes.",
}


def more_metrics(results: Results) -> Html | None:
    """Return the section of the metrics that the first table does not show; None without any."""
    groups = {group: names for group, names in group_metrics(results).items() if group != MAIN and names}
    if not groups:
        return None
    parts = []
    for group, names in groups.items():
        about = tag("p", ABOUT[group]) if group in ABOUT else None
        parts += [tag("h3", group[:1].upper() + group[1:]), about, _table(results, group, names)]
    return section("metrics", "More metrics", *parts)


def _table(results: Results, group: str, names: Sequence[str]) -> Html:
    """Return a table with a row for each metric and a column for each loss."""
    losses = [summary.loss for summary in results.summaries]
    colours = loss_colours(losses)
    head = [tag("th", dot(colours[loss]), loss_title(loss), scope="col", class_="number") for loss in losses]
    pair = compared_pair(results) if results.differences else None
    if pair is not None:
        head.append(tag("th", f"{loss_title(pair[0])} minus {loss_title(pair[1])}", scope="col", class_="number"))
    rows = []
    for name in names:
        about = results.metrics[name]
        reading = tag("span", about.about, class_="reading") if about.about else None
        cells = [cell(metric_cell(results, summary, name)) for summary in results.summaries]
        if pair is not None:
            cells.append(_difference(results, name, pair))
        rows.append(tag("tr", tag("th", about.title, reading, scope="row"), *cells))
    caption = f"{group[:1].upper()}{group[1:]}, with 95% confidence intervals"
    if pair is not None:
        caption += "; bold differences are paired intervals that exclude 0"
    return scrolling(
        caption, tag("thead", tag("tr", tag("th", "metric", scope="col"), *head)), tag("tbody", *rows), class_="metrics"
    )


def _difference(results: Results, name: str, pair: tuple[str, str]) -> Html:
    """Return the cell of a paired difference; bold where its interval excludes 0."""
    found = next(d for d in results.differences if d.metric == name and {d.a, d.b} == set(pair))
    share = results.metrics[name].share
    sign = 1 if found.a == pair[0] else -1
    ends = sorted((sign * found.low, sign * found.high))
    signed = found.model_copy(update={"estimate": sign * found.estimate, "low": ends[0], "high": ends[1]})
    text = estimate_text(signed, share=share).removesuffix("%") + (" points" if share else "")
    return tag(
        "td",
        tag("b", text) if found.significant else text,
        " ",
        tag("span", interval(signed, share=share), class_="interval"),
        class_="number",
    )


def baseline_rows(results: Results, names: Sequence[str], width: int) -> list[Html]:
    """Return a row of the first table for each baseline, with its accuracy in the column of the first k-NN metric."""
    column = next((i for i, name in enumerate(names) if name.startswith("knn")), None)
    rows = []
    for baseline in results.baselines:
        accuracy = baseline.accuracy
        shown = join(
            number(accuracy.estimate, share=True),
            " ",
            tag("span", interval(accuracy, share=True), class_="interval"),
        )
        detail = baseline.about if column is not None else f"{baseline.about}: {number(accuracy.estimate, share=True)}"
        first = tag("th", baseline.name, tag("span", detail, class_="detail"), scope="row")
        cells = [tag("td", shown if i == column else "", class_="number") for i in range(width - 1)]
        rows.append(tag("tr", first, *cells, class_="baseline"))
    return rows
