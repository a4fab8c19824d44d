"""Tables of models on frozen features: comparisons, classifiers, geometry, unknown classes."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from benchmarks.tables.markdown import described, markdown, metric_cell, sincere_minus_supcon, span
from sincere.loss_catalog import RAW_FEATURES, loss_title
from sincere.records.estimates import Estimate
from sincere.report.tables import interval, number


def frozen_cifar10(results: dict[str, Any]) -> str:
    return f"{comparison(results['cifar10'])} {described(results)}"


def tuned(results: dict[str, Any]) -> str:
    search = results["search"]
    rows = []
    for found in search["losses"]:
        values = [trial["value"] for trial in search["trials"] if trial["loss"] == found["loss"]]
        best = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in found["best"].items())
        accuracies = (number(value, share=True) for value in (found["value"], min(values)))
        rows.append([loss_title(found["loss"]), best, *accuracies, str(len(values)), str(found["n_close"])])
    header = ["", "best settings", "1-NN, held out", "of the worst trial", "trials", "as good"]
    counts = f"{search['n_train']:,} training and {search['n_validation']:,} held-out images"
    notes = "".join(f" Note: {note}." for note in search["notes"])
    chosen = f"{markdown(header, rows)}\n\n{counts}.{notes}"
    return f"{chosen}\n\n{comparison(results['comparison'])} {described(results)}"


def comparison(about: dict[str, Any]) -> str:
    """Return the table of a comparison on frozen features, and SINCERE's differences from SupCon."""
    metrics = {"margin": False, "knn1": True, "knn5": True, "linear": True}
    titles = dict(zip(metrics, ("margin", "1-NN", "5-NN", "linear probe"), strict=True))
    rows = []
    for summary in about["summaries"]:
        cells = [
            f"{number(estimate['estimate'], share=share)} {interval(Estimate(**estimate), share=share)}"
            for estimate, share in ((summary["metrics"][name], share) for name, share in metrics.items())
        ]
        rows.append([loss_title(summary["loss"]), *cells])
    table = markdown(["", *titles.values()], rows)
    clauses = []
    for metric, share in metrics.items():
        d = sincere_minus_supcon(about, metric)
        size = f"{number(d['estimate'], share=share)} {span(d, share=share)}"
        clauses.append(f"{titles[metric]} {size}{'' if d['significant'] else ' (not significant)'}")
    counts = f"{about['n_train']:,} training and {about['n_test']:,} test images, {len(about['seeds'])} seeds"
    return f"{table}\n\nSINCERE minus SupCon: {'; '.join(clauses)}. {counts}."


def frozen_photos(results: dict[str, Any]) -> str:
    folders = results["photos"]
    losses = [summary["loss"] for summary in folders[0]["summaries"]]
    rows, gains = [], dict[str, list[float]]()
    for i, about in enumerate(folders):
        of = {summary["loss"]: summary["metrics"] for summary in about["summaries"]}
        knn1 = {loss: of[loss]["knn1"]["estimate"] for loss in losses}
        for loss in losses:
            gains.setdefault(loss, []).append(knn1[loss] - knn1[RAW_FEATURES])
        d = sincere_minus_supcon(about, "margin")
        margins = [number(of[loss]["margin"]["estimate"], share=False) for loss in ("sincere", "supcon")]
        difference = f"{number(d['estimate'], share=False)} {span(d, share=False)}"
        cells = [number(knn1[loss], share=True) for loss in losses]
        rows.append([str(i), *cells, *margins, difference, f"{about['seconds']:.0f} s"])
    titles = [loss_title(loss) for loss in losses]
    header = ["folder", *(f"1-NN, {title}" for title in titles), "margin, SINCERE", "margin, SupCon"]
    gained = "; ".join(
        f"{loss_title(loss)} {100 * statistics.mean(values):+.1f} points "
        f"({100 * min(values):+.1f} to {100 * max(values):+.1f})"
        for loss, values in gains.items()
        if loss != RAW_FEATURES
    )
    table = markdown([*header, "difference of the margins", "time"], rows)
    counts = f"{folders[0]['n_train']:,} training and {folders[0]['n_test']:,} test images each"
    return f"{table}\n\n1-NN above that of raw features, mean (range): {gained}. {counts}. {described(results)}"


def metric_rows(about: dict[str, Any], names: Iterable[str]) -> str:
    """Return a table with a row for each metric, a column for each loss, and the difference of SINCERE and SupCon."""
    rows = []
    for name in names:
        metric = about["metrics"][name]
        share = metric["share"]
        d = sincere_minus_supcon(about, name)
        cells = [metric_cell(summary, name, share=share) for summary in about["summaries"]]
        rows.append([metric["title"], *cells, f"{number(d['estimate'], share=share)} {span(d, share=share)}"])
    titles = [loss_title(summary["loss"]) for summary in about["summaries"]]
    return markdown(["", *titles, "SINCERE minus SupCon"], rows)


def _three_seeds(about: dict[str, Any]) -> str:
    counts = f"{about['n_train']:,} training and {about['n_test']:,} test images"
    return f"{counts}, {about['epochs']} epochs, {len(about['seeds'])} seeds"


def classifiers(results: dict[str, Any]) -> str:
    about = results["cifar10"]
    names = ["knn1", "knn5", "dino", "lightly", "means", "linear"]
    return f"{metric_rows(about, names)}\n\n{_three_seeds(about)}. {described(results)}"


def collapse(results: dict[str, Any]) -> str:
    about = results["cifar10"]
    names = [name for name, metric in about["metrics"].items() if metric["group"] == "geometry"]
    return f"{metric_rows(about, ['margin', *names])}\n\n{_three_seeds(about)}. {described(results)}"


def unknown(results: dict[str, Any]) -> str:
    names = ["margin", "auroc_nearest", "auroc_mahalanobis", "fpr95_nearest", "fpr95_mahalanobis"]
    parts = []
    for name, title in (("cifar10-unknown", "CIFAR-10, frozen encoder"), ("digits-unknown", "Digits")):
        about = results[name]
        left_out = f"without {' and '.join(about['unknown_classes'])}"
        counts = f"{_three_seeds(about)}, {about['n_unknown']:,} images of unknown classes"
        parts.append(f"{title}, {left_out} ({counts}):\n\n{metric_rows(about, names)}")
    return "\n\n".join([*parts, described(results)])
