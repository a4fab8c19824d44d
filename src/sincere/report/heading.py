"""The head of a report: title, finding, and the facts of the data and the runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sincere.loss_catalog import LOSSES, RAW_FEATURES, loss_title
from sincere.records.results import Results
from sincere.report.elements import dot, joined, listed
from sincere.report.evidence import Evidence
from sincere.report.markup import Html, join, tag
from sincere.report.tables import duration, finding, number
from sincere.report.theme import loss_colours


def heading(evidence: Evidence) -> Html:
    """Return the title, the finding and the facts of the runs."""
    results = evidence.results
    data, losses = results.data, [summary.loss for summary in results.summaries]
    seeds = sorted({row.seed for row in results.rows})
    epochs = sorted({row.epochs for row in results.rows if row.loss != RAW_FEATURES})
    unfinished = [run.name for run in evidence.runs if not run.row.finished]
    kind = "labels" if data.label_sets else "classes"
    facts = {
        "data": f"{data.name}, {len(data.class_names)} {kind}{_class_sizes(results)}",
        data.noun: f"{data.n_train:,} training, {data.n_test:,} test"
        + (f", {data.n_unlabelled:,} unlabelled (in training only)" if data.n_unlabelled else "")
        + (f", {data.n_unknown:,} of unknown classes" if data.n_unknown else ""),
        "losses" if len(losses) > 1 else "loss": join(*(_loss(loss, losses) for loss in losses)),
        "seeds" if len(seeds) > 1 else "seed": listed(seeds),
        "epochs": listed(epochs),
        "1-NN on training " + data.noun: _train_accuracies(results),
        "training time": duration(sum(row.seconds for row in results.rows)),
        "hardware": _hardware(results.manifest),
        "not finished": ", ".join(unfinished),
    }
    shown = [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts.items() if value]
    title = f"{joined([loss_title(loss) for loss in losses])} on {data.name}"
    started = str(results.manifest.get("started", ""))[:10]
    return tag(
        "header",
        tag("p", " · ".join(part for part in (f"sincere {results.kind}", started) if part), class_="eyebrow"),
        tag("h1", title),
        tag("p", finding(results), class_="finding"),
        tag("dl", *shown, class_="facts"),
    )


def _class_sizes(results: Results) -> str:
    """Return how many training samples the smallest and the largest class or label have, where that is known."""
    row = results.rows[0]
    sizes = [of_class.n_train for of_class in row.classes or row.labels if of_class.n_train is not None]
    if not sizes:
        return ""
    low, high = min(sizes), max(sizes)
    return f" of {low:,}{f' to {high:,}' if high > low else ''} training {results.data.noun}"


def _train_accuracies(results: Results) -> str:
    """Return the mean 1-NN accuracy of each trained loss on its training samples."""
    found: dict[str, list[float]] = {}
    for row in results.rows:
        if row.train_accuracy is not None and row.loss != RAW_FEATURES:
            found.setdefault(row.loss, []).append(row.train_accuracy)
    shown = {loss: number(sum(values) / len(values), share=True) for loss, values in found.items()}
    return ", ".join(f"{loss_title(loss)} {value}" if len(shown) > 1 else value for loss, value in shown.items())


def _loss(loss: str, losses: Sequence[str]) -> Html:
    title: Html | str = loss_title(loss)
    if loss in LOSSES and LOSSES[loss].paper:
        title = tag("a", title, href=LOSSES[loss].paper, title=f"Paper: {LOSSES[loss].about}")
    return tag("span", dot(loss_colours(losses)[loss]), title, class_="loss")


def _hardware(manifest: dict[str, Any]) -> str:
    parts = [
        manifest.get("processor"),
        f"{manifest['cores']} cores" if manifest.get("cores") else None,
        f"{manifest['memory_gb']} GB" if manifest.get("memory_gb") else None,
        manifest.get("device"),
    ]
    return ", ".join(str(part) for part in parts if part)
