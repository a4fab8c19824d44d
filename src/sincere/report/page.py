"""Writes report.html: one file that shows a run or a comparison in any browser, without a network connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sincere.records.files import write_atomic
from sincere.records.results import FIGURE_FILES, FIGURES, REPORT, MarginAbout
from sincere.report import sections
from sincere.report.charted_page import charted_page
from sincere.report.evidence import Evidence, read_evidence
from sincere.report.figure import Figure
from sincere.report.figure_files import write_figures
from sincere.report.heading import heading
from sincere.report.label_issues_section import label_issues
from sincere.report.map import Plane, map_data, planes_of
from sincere.report.map_figure import MOST_LABELLED, map_figure
from sincere.report.markup import tag
from sincere.report.metric_groups import more_metrics
from sincere.report.result_figures import confusion_figure, curves_figure, differences_figure, meters_figure
from sincere.report.similarity_figure import (
    KINDS,
    histogram_bars,
    margin_text,
    median_rules,
    similarity_axis,
    similarity_figure,
)
from sincere.report.theme import class_colours

CONTENTS = {
    "results": "Results",
    "similarity": "Similarities",
    "training": "Training",
    "classes": "Classes",
    "map": "Map",
    "confusion": "Confusion",
    "labels": "Labels",
    "metrics": "More metrics",
    "reproduce": "Reproduce",
}


def write_report(folder: Path, *, figures: bool = True, warn: Callable[[str], None] | None = None) -> Path:
    """Write the figures as PNG, SVG and PDF into figures/, then report.html, from a folder with results.json.

    Args:
        folder: Folder of a run, a transfer or a comparison.
        figures: Whether to write the figures as files, too.
        warn: Called with a message for each other file that is missing or damaged; the page shows them in any case.

    Raises:
        DataError: results.json is missing or damaged.
    """
    evidence = read_evidence(folder, files=figures)
    if warn is not None:
        for problem in evidence.problems:
            warn(problem)
    planes = planes_of(evidence.shown)
    drawn = _figures(evidence, planes)
    if figures:
        write_figures(drawn.values(), folder / FIGURES)
    path = folder / REPORT
    write_atomic(path, _page(evidence, planes, drawn))
    return path


def refresh_report(folder: Path) -> Path | None:
    """Write report.html again after a file beside it has changed, if there is one; the figures stay as they are.

    Raises:
        DataError: results.json is missing or damaged.
    """
    path = folder / REPORT
    if not path.is_file():
        return None
    evidence = read_evidence(folder, files=(folder / FIGURES).is_dir())
    planes = planes_of(evidence.shown)
    write_atomic(path, _page(evidence, planes, _figures(evidence, planes)))
    return path


def remove_report(folder: Path) -> None:
    """Remove a report of earlier results and its figures; other files in figures/ stay."""
    if not (folder / FIGURES).is_symlink():  # the target of a link is not part of the run
        for name in FIGURE_FILES:
            (folder / FIGURES / name).unlink(missing_ok=True)
    (folder / REPORT).unlink(missing_ok=True)  # last, so that it stays if a figure cannot be removed


def _figures(evidence: Evidence, planes: Sequence[Plane]) -> dict[str, Figure]:
    names = evidence.results.data.class_names
    figures = [
        differences_figure(evidence.results),
        similarity_figure(evidence.shown, label_sets=evidence.results.data.label_sets),
        curves_figure(evidence.runs),
        meters_figure(evidence.runs),
        map_figure(planes, names),
        confusion_figure([] if evidence.results.data.label_sets else evidence.shown, names),
    ]
    return {figure.name: figure for figure in figures}


def _page(evidence: Evidence, planes: Sequence[Plane], figures: dict[str, Figure]) -> str:
    label_sets = evidence.results.data.label_sets
    main = tag(
        "main",
        heading(evidence),
        sections.table(evidence, figures["differences"]),
        sections.similarity(evidence, figures["similarity"]),
        sections.training(evidence, figures["training"], figures["meters"]),
        sections.labels(evidence) if label_sets else sections.classes(evidence),
        None if label_sets else sections.maps(evidence, planes, figures["map"]),
        None if label_sets else sections.confusion(evidence, figures["confusion"]),
        None if label_sets else label_issues(evidence),
        more_metrics(evidence.results),
        sections.reproduction(evidence),
    )
    # On the page the map is drawn on a canvas, which is interactive.
    charts = [figure for name, figure in figures.items() if name != "map"]
    title = f"{evidence.results.data.name}: sincere {evidence.results.kind}"
    return charted_page(title, CONTENTS, main, charts, data=_data(evidence, planes), scripts=["tables.js", "map.js"])


def _data(evidence: Evidence, planes: Sequence[Plane]) -> dict[str, Any]:
    """Return the data of the page's scripts for classes and map."""
    names = evidence.results.data.class_names
    _, width = similarity_axis([run.row.margin for run in evidence.shown])
    histograms = [[_class_histograms(row.margin, width) for row in run.row.classes] for run in evidence.shown]
    return {
        "classes": histograms,
        "kinds": KINDS,
        "map": map_data(planes) if planes else None,
        "class_names": names,
        "sample": evidence.results.data.singular,
        "class_colours": class_colours(len(names)),
        "most_labelled": MOST_LABELLED,
    }


def _class_histograms(about: MarginAbout, width: float) -> dict[str, Any]:
    """Return the histograms of a class, as lists without keys, because there may be many classes."""
    bars = [[KINDS.index(bar["kind"]), bar["start"], bar["end"], bar["share"]] for bar in histogram_bars(about, width)]
    return {"bars": bars, "medians": median_rules(about), "text": margin_text(about)}
