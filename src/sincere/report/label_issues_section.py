"""The section of a report on labels that may be wrong."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from sincere.loss_catalog import RAW_FEATURES
from sincere.records.label_issues import LABEL_ISSUES, LABEL_LIST, LabelList
from sincere.report.document import data_url
from sincere.report.elements import scrolling, section
from sincere.report.evidence import Evidence, Run
from sincere.report.markup import Html, tag

TITLE = "Labels that may be wrong"
LONGEST_NAME = 200  # characters


def listed_run(evidence: Evidence) -> Run | None:
    """Return the run whose list is shown: raw features if they are there, else the first; None for a transfer."""
    if evidence.results.kind == "transfer":
        return None
    runs = sorted(evidence.runs, key=lambda run: run.row.loss != RAW_FEATURES)  # stable
    return next((run for run in runs if run.labels is not None), runs[0])


def label_issues(evidence: Evidence) -> Html | None:
    """Return the most doubtful labels of one run; None for a transfer, which does not look for them."""
    run = listed_run(evidence)
    if run is None:
        return None
    data = evidence.results.data
    if run.labels is None:
        trained = next((one for one in evidence.runs if one.row.loss != RAW_FEATURES), run)
        reason = f"{run.problems[LABEL_LIST]}." if LABEL_LIST in run.problems else "Nobody has looked for them yet."
        about = f"In the folder of this report, this command lists the {data.noun} whose neighbours contradict"
        command = shlex.join(["sincere", "labels", trained.row.folder])
        return section("labels", TITLE, tag("p", f"{reason} {about} their label:"), tag("pre", command))
    summary = tag("p", _summary(run, run.labels, data.noun, data.singular))
    return section("labels", TITLE, summary, *_list(run, run.labels, data.class_names))


def _summary(run: Run, found: LabelList, noun: str, sample: str) -> str:
    count = f"Of {found.n_samples:,} {noun}, {found.n_issues:,} {'has' if found.n_issues == 1 else 'have'}"
    of_run = f"{found.basis} of {run.name}" if found.basis == "embeddings" else found.basis
    searched = f"another label than most of their {found.k:,} nearest neighbours by {of_run}."
    hidden = (
        "Embeddings that were trained on wrong labels hide many of them."
        if found.basis == "embeddings"
        else "The features have not seen the labels; embeddings that are trained on wrong labels hide many of them."
    )
    look = f"That is a reason to look, not to relabel: an unusual {sample} may have the right label."
    return f"{count} {searched} {look} {hidden}"


def _list(run: Run, found: LabelList, names: Sequence[str]) -> list[Html]:
    n = len(found.ids)
    if not n:
        return []
    pictured = found.thumbnails is not None
    header = ("image",) * pictured + ("name", "part", "label", "neighbours say", "agreement")
    head = [tag("th", name, scope="col", class_="number" if name == "agreement" else None) for name in header]
    rows = []
    for i in range(n):
        name = found.name(i)[:LONGEST_NAME]
        picture = None
        if found.thumbnails is not None:
            picture = tag("td", tag("img", src=data_url(found.thumbnails[i]), alt=name, class_="thumbnail"))
        rows.append(
            tag(
                "tr",
                picture,
                tag("th", name, scope="row"),
                tag("td", found.part(i)),
                tag("td", names[found.labels[i]]),
                tag("td", names[found.suggested[i]]),
                tag("td", f"{found.agreement[i]:.1%}", class_="number"),
            )
        )
    caption = "The most doubtful first" if n == found.n_issues else f"The {n} most doubtful of {found.n_issues:,}"
    table = scrolling(caption, tag("thead", tag("tr", *head)), tag("tbody", *rows), class_="issues")
    path = LABEL_ISSUES if run.row.folder == "." else f"{run.row.folder}/{LABEL_ISSUES}"
    about = f"Agreement: the share of the neighbours' votes for the label. All of them are in {path}."
    return [table, tag("p", about, class_="note")]
