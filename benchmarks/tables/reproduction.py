"""Tables of the reproduction of the paper, from reproduction/results."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.tables.markdown import described, markdown, span
from sincere.loss_catalog import loss_title
from sincere.messages import Messages
from sincere.recipes import EXPERIMENTS, all_recipes
from sincere.records.estimates import Estimate
from sincere.records.results import ABOUT_LOSSES, Difference
from sincere.report.reproduction_page import markdown_table, tables_of
from sincere.report.tables import estimate_text, interval, number
from sincere.settings.reproduce_request import ALL, ReproduceRequest
from sincere.workflows.reproduce import collect


def recipes() -> str:
    rows = []
    for scale in ("paper", "cpu"):
        for name, recipe in all_recipes().items():
            if recipe.scale != scale or name.endswith("-224"):
                continue
            command = "compare" if recipe.verb == "train" else "transfer"
            transfers = ", ".join(key for key in recipe.transfers if not key.endswith("-224"))
            losses = ", ".join(map(loss_title, recipe.losses))
            rows.append([f"`{name}`", scale, command, recipe.form, losses, str(len(recipe.seeds)), transfers])
    return markdown(["recipe", "scale", "for", "model or probe", "losses", "seeds", "transfers"], rows)


def reproduction(root: Path) -> dict[str, str]:
    """Return the tables of the stored reproduction of the paper, and what it lacks."""
    request = ReproduceRequest.make(item=ALL, out=root / "reproduction")
    found = collect(request, Messages(silent=True))
    named: dict[str, list[str]] = {}
    for table in tables_of(found, ALL):
        named.setdefault(f"reproduction-{table.item}", []).append(markdown_table(table))
    lacking = [f"- `{missing.name}`: {len(missing.runs)} of {missing.n_runs} runs" for missing in found.missing]
    written = {name: "\n\n".join(texts) for name, texts in named.items()}
    return {**written, "reproduction-missing": "\n".join(lacking) or "Nothing: all runs are there."}


def headline(root: Path) -> str:
    """Return margins and accuracies of SupCon and SINCERE, for the experiments that have three seeds or more."""
    request = ReproduceRequest.make(item="margins", out=root / "reproduction")
    rows = []
    for experiment in collect(request, Messages(silent=True)).trained():
        results = experiment.results
        if results.scope != ABOUT_LOSSES:
            continue
        summaries = {summary.loss: summary for summary in results.summaries}
        cells = []
        for name, share in (("margin", False), ("knn1", True)):
            for loss, other in (("supcon", "sincere"), ("sincere", "supcon")):
                value = summaries[loss].metrics[name]
                found = estimate_text(value, share=share)
                bold = f"**{found}**" if _is_higher(results.differences, name, loss, other) else found
                cells.append(f"{bold} {interval(value, share=share)}")
        rows.append([EXPERIMENTS[experiment.recipe].title, *cells])
    table = markdown(["", "margin, SupCon", "margin, SINCERE", "1-NN, SupCon", "1-NN, SINCERE"], rows)
    return f"{table}\n\nIn brackets: 95% confidence intervals. Bold: significantly higher than with the other loss."


def _is_higher(differences: Iterable[Difference], metric: str, loss: str, other: str) -> bool:
    """Return whether a metric is significantly higher with a loss than with the other."""
    found = [d for d in differences if d.metric == metric and {d.a, d.b} == {loss, other}]
    return any(d.significant and (d.estimate > 0) == (d.a == loss) for d in found)


def transfer_layers(results: dict[str, Any]) -> str:
    """Return accuracies and RankMe of both layers, and the first loss minus the second."""
    gaps = {(d["layer"], d["metric"]): d for d in results["differences"]}
    rows = []
    for row in results["rows"]:
        cells = []
        for name in ("knn1", "linear"):
            value = Estimate(**row[name])
            cells.append(f"{estimate_text(value, share=True)} {interval(value, share=True)}")
            d = gaps[row["layer"], name]
            gap = f"{number(d['estimate'], share=True)} {span(d, share=True)}"
            cells.append("-" if row["loss"] == d["b"] else f"**{gap}**" if d["significant"] else gap)
        rows.append([row["layer"], loss_title(row["loss"]), *cells, f"{statistics.mean(row['rankme']):.0f}"])
    other = loss_title(results["differences"][0]["b"])
    header = ["layer", "loss", "1-NN", f"- {other}'s", "linear probe", f"- {other}'s", "RankMe"]
    return f"{markdown(header, rows)}\n\n{len(results['seeds'])} seeds. {described(results)}"


def class_sampler(results: dict[str, Any]) -> str:
    rows = [
        [
            row["data"],
            f"{row['most_over_fewest']:.2f}",
            f"{row['n_favoured']} of {row['n_classes']}",
            str(row["never_seen_small_batch"]),
            f"{100 * row['distinct_share']:.0f}%",
            f"{100 * row['accuracy_sd']:.2f} points",
            f"{100 * row['difference_sd']:.2f} points",
        ]
        for row in results["rows"]
    ]
    header = [
        "data",
        f"most over fewest images of a class, batches of {results['batch']}",
        "classes with more",
        f"classes never seen, batches of {results['small_batch']}",
        "test images that were drawn",
        "standard deviation of an accuracy by the draw",
        "of a difference",
    ]
    return f"{markdown(header, rows)}\n\n{results['draws']:,} draws of test sets."
