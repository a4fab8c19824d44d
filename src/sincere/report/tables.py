"""Tables and sentences from results: for the terminal, the page and results.csv."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text

from sincere.records.estimates import Estimate
from sincere.records.files import write_whole
from sincere.records.results import Difference, LossSummary, Results

CSV = "results.csv"


@dataclass(frozen=True)
class Cell:
    """What stands in a table, and whether in bold."""

    text: str
    bold: bool = False
    detail: str = ""


def summary_table(results: Results) -> tuple[list[str], list[list[Cell]]]:
    """Return header and rows: a loss each, every metric with its interval, losses of the first and last epoch, time."""
    names = list(results.metrics)
    header = ["loss", *(results.metrics[name].title for name in names), "training loss", "time"]
    rows = []
    for summary in results.summaries:
        cells = [Cell(summary.loss + (f" ({len(summary.seeds)} seeds)" if len(summary.seeds) > 1 else ""))]
        cells += [_metric_cell(results, summary, name) for name in names]
        runs = [row for row in results.rows if row.loss == summary.loss]
        losses = [row.train_loss for row in runs if row.train_loss is not None]
        first, last = (sum(getattr(x, end) for x in losses) / max(1, len(losses)) for end in ("first", "last"))
        seconds = sum(row.seconds for row in runs) / len(runs)
        rows.append([*cells, Cell(f"{first:.2f} → {last:.2f}" if losses else "-"), Cell(duration(seconds))])
    return header, rows


def _metric_cell(results: Results, summary: LossSummary, name: str) -> Cell:
    if name not in summary.metrics:
        return Cell("-")
    share = results.metrics[name].share
    figure = summary.metrics[name]
    beside = summary.over_seeds.get(name)
    detail = f"over seeds {interval(beside, share=share)}" if beside else ""
    return Cell(f"{number(figure.estimate, share=share)} {interval(figure, share=share)}", name in summary.bold, detail)


def number(value: float, *, share: bool) -> str:
    """Return a figure as text: shares in per cent."""
    return f"{100 * value:.1f}%" if share else f"{value:.3f}"


def interval(figure: Estimate | Difference, *, share: bool) -> str:
    """Return the ends of an interval as text."""
    ends = (f"{100 * end:.1f}" if share else f"{end:.3f}" for end in (figure.low, figure.high))
    return f"[{', '.join(ends)}]"


def duration(seconds: float) -> str:
    """Return a time as text.

    Example:
        >>> duration(42.4), duration(125)
        ('42 s', '2 min 5 s')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def terminal_table(results: Results) -> Table:
    """Return the summary for a terminal."""
    header, rows = summary_table(results)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in header:
        table.add_column(column, justify="left" if column == "loss" else "right")
    for row in rows:
        table.add_row(*(Text(cell.text, style="bold" if cell.bold else "") for cell in row))
    return table


def finding(results: Results) -> str:
    """Return one sentence that says what was found."""
    if results.kind != "comparison":
        row = results.rows[0]
        told = [
            f"{about.title} {number(row.metrics[name].estimate, share=about.share)}"
            for name, about in results.metrics.items()
            if name in row.metrics
        ]
        return f"{row.loss} on {results.data.name}: {', '.join(told)}."
    sentences = [_told(results, name) for name in results.metrics]
    return " ".join(sentence for sentence in sentences if sentence)


def _told(results: Results, name: str) -> str:
    """Return what the differences of one metric say."""
    about = results.metrics[name]
    ordered = sorted(
        (summary for summary in results.summaries if name in summary.metrics), key=lambda s: -s.metrics[name].estimate
    )
    best = ordered[0]
    pairs = {frozenset((d.a, d.b)): d for d in results.differences if d.metric == name}
    below = [s for s in ordered[1:] if pairs[frozenset((best.loss, s.loss))].significant]
    if not below:
        return f"{about.title}: no significant difference."
    second = below[0]
    difference = pairs[frozenset((best.loss, second.loss))]
    sign = 1 if difference.a == best.loss else -1
    ends = sorted((sign * difference.low, sign * difference.high))
    figure = Estimate(sign * difference.estimate, *ends)
    figures = [number(s.metrics[name].estimate, share=about.share) for s in (best, second)]
    points = f"{100 * figure.estimate:.1f} points" if about.share else f"{figure.estimate:.3f}"
    return (
        f"{about.title}: {best.loss} {figures[0]} is significantly above {second.loss} {figures[1]}, "
        f"by {points} {interval(figure, share=about.share)}."
    )


def write_csv(results: Results, folder: Path) -> Path:
    """Write results.csv: one line for each run and metric."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["loss", "seed", "metric", "estimate", "low", "high", "loss_first", "loss_last", "seconds"])
    for row in results.rows:
        ends = (row.train_loss.first, row.train_loss.last) if row.train_loss else ("", "")
        for name, figure in row.metrics.items():
            writer.writerow([row.loss, row.seed, name, figure.estimate, figure.low, figure.high, *ends, row.seconds])
    path = folder / CSV
    write_whole(path, text.getvalue())
    return path
