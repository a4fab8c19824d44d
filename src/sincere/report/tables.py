"""Tables and sentences from results, for the terminal, the report and results.csv."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from sincere.catalog import own_name
from sincere.loss_catalog import DEFAULT_LOSS, LOSSES, RAW_FEATURES, loss_title
from sincere.messages import Messages
from sincere.records.estimates import Estimate
from sincere.records.files import write_atomic
from sincere.records.results import ABOUT_LOSSES, CSV, MAIN, RESULTS, Difference, LossSummary, Results

MOST_DIGITS = 6  # after the point, of narrow intervals
DETAILED = ("classifiers", "geometry")  # groups of metrics that the terminal and the finding leave to the report


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: An estimate, or any text.
        interval: Confidence interval of the estimate.
        bold: Whether the text is bold.
        detail: A second line: the number of seeds, or the standard deviation over seeds.
    """

    text: str
    interval: str = ""
    bold: bool = False
    detail: str = ""


def group_metrics(results: Results) -> dict[str, list[str]]:
    """Return the names of the metrics of each group, the first table's first."""
    groups: dict[str, list[str]] = {MAIN: []}
    for name, about in results.metrics.items():
        groups.setdefault(about.group, []).append(name)
    return groups


def brief_metrics(results: Results) -> list[str]:
    """Return the names of the metrics that the terminal and the finding are about: all but details, if any."""
    brief = [name for name, about in results.metrics.items() if about.group not in DETAILED]
    return brief or list(results.metrics)


def summary_table(results: Results, names: Sequence[str]) -> tuple[list[str], list[list[Cell]]]:
    """Return header and rows, one per loss: metrics with intervals, loss of the first and last epoch, time."""
    header = ["loss", *(results.metrics[name].title for name in names), "training loss", "time"]
    rows = []
    for summary in results.summaries:
        cells = [Cell(own_name(summary.loss), detail=f"{len(summary.seeds)} seeds" if len(summary.seeds) > 1 else "")]
        cells += [metric_cell(results, summary, name) for name in names]
        runs = [row for row in results.rows if row.loss == summary.loss]
        losses = [row.train_loss for row in runs if row.train_loss is not None]
        first, last = (sum(getattr(x, end) for x in losses) / max(1, len(losses)) for end in ("first", "last"))
        seconds = sum(row.seconds for row in runs) / len(runs)
        rows.append([*cells, Cell(f"{first:.2f} → {last:.2f}" if losses else "-"), Cell(duration(seconds))])
    return header, rows


def metric_cell(results: Results, summary: LossSummary, name: str) -> Cell:
    """Return a metric of a loss with its interval."""
    share = results.metrics[name].share
    stored = summary.metrics[name]
    spread = summary.seed_std.get(name)
    detail = "" if spread is None else f"sd over seeds {number(spread, share=share, digits=few_digits(spread, share))}"
    estimate, ends = estimate_text(stored, share=share), interval(stored, share=share)
    return Cell(estimate, ends, bold=name in summary.bold, detail=detail)


def number(value: float, *, share: bool, digits: int | None = None) -> str:
    """Return a value as text, with 3 digits after the point; fractions in per cent, with 1."""
    digits = (1 if share else 3) if digits is None else digits
    rounded = round(100 * value if share else value, digits) + 0.0  # no "-0.000"
    return f"{rounded:.{digits}f}{'%' if share else ''}"


def estimate_text(estimate: Estimate | Difference, *, share: bool) -> str:
    """Return an estimate as text, with as many digits as its interval."""
    return number(estimate.estimate, share=share, digits=_digits(estimate, share=share))


def interval(estimate: Estimate | Difference, *, share: bool) -> str:
    """Return a confidence interval as text."""
    digits = _digits(estimate, share=share)
    ends = (number(end, share=share, digits=digits).removesuffix("%") for end in (estimate.low, estimate.high))
    return f"[{', '.join(ends)}]"


def few_digits(value: float, share: bool) -> int:
    """Return the digits after the point that show a small value without an interval: 3, 1 in per cent, or more.

    Example:
        >>> few_digits(0.1234, False), few_digits(0.00012, False), few_digits(0.0, False)
        (3, 5, 3)
    """
    digits, size = 1 if share else 3, abs(value) * (100 if share else 1)
    while 0 < size < 10.0 ** (1 - digits) and digits < MOST_DIGITS:
        digits += 1
    return digits


def _digits(estimate: Estimate | Difference, *, share: bool) -> int:
    """Return the digits after the point at which the ends of an interval differ; more than usual for a narrow one."""
    width = (100 if share else 1) * (estimate.high - estimate.low)
    digits = 1 if share else 3
    while 0 < width < 2 * 10.0**-digits and digits < MOST_DIGITS:
        digits += 1
    return digits


def duration(seconds: float) -> str:
    """Return a duration as text.

    Example:
        >>> duration(42.4), duration(125)
        ('42 s', '2 min 5 s')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def terminal_tables(results: Results, width: int) -> list[Table]:
    """Return the summary for a terminal, in as many tables as its width needs, so that no value is cut off."""
    header, rows = summary_table(results, brief_metrics(results))
    listed = zip(header, *rows, strict=True)
    columns = [[_heading(str(title)), *(_terminal_cell(cell) for cell in cells)] for title, *cells in listed]
    losses, *others = columns
    groups: list[list[list[Text]]] = [[]]
    free = width - _width(losses)
    for column in others:
        if groups[-1] and _width(column) + 1 > free:
            groups.append([])
            free = width - _width(losses)
        groups[-1].append(column)
        free -= _width(column) + 1
    return [_table([losses, *group]) for group in groups]


def _table(columns: list[list[Text]]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    for number, (heading, *_) in enumerate(columns):
        table.add_column(
            heading, justify="right" if number else "left", no_wrap=True, min_width=_width(columns[number])
        )
    for row in zip(*(cells for _, *cells in columns), strict=True):
        table.add_row(*row)
    return table


def _width(column: list[Text]) -> int:
    return max(cell_len(line) for text in column for line in text.plain.splitlines())


def _heading(title: str) -> Text:
    return Text(title.replace(" ", "\n", 1))


def _terminal_cell(cell: Cell) -> Text:
    text = Text(cell.text, style="bold" if cell.bold else "")
    between = " to " if "-" in cell.interval else "\N{EN DASH}"
    for line in filter(None, (re.sub(r"\[(.*), (.*)\]", rf"\1{between}\2", cell.interval), cell.detail)):
        text.append(f"\n{line}", style="not bold dim")
    return text


def show(results: Results, page: Path | None, messages: Messages) -> None:
    """Print the summary table, baselines, notes, the finding and the path of the report, unless quiet."""
    if messages.quiet:
        return
    console = messages.console
    for table in terminal_tables(results, console.width):
        console.print()
        console.print(table, width=max(console.width, console.measure(table).maximum), crop=False)
    lines = ["", *_without_training(results), *(f"note: {note}" for note in results.notes), finding(results)]
    left = [
        name for name in group_metrics(results) if name in DETAILED and brief_metrics(results) != list(results.metrics)
    ]
    if left:
        lines.append(f"more metrics, in the report and in {RESULTS}: {', '.join(left)}")
    for line in [*lines, f"report: {page}"] if page is not None else lines:
        messages.say(line)


def _without_training(results: Results) -> list[str]:
    """Return a line on what is reached without training."""
    found = [f"{baseline.name} {number(baseline.accuracy.estimate, share=True)}" for baseline in results.baselines]
    return [f"accuracy without training: {', '.join(found)}"] if found else []


def finding(results: Results) -> str:
    """Return the metrics of a run, or the differences between two losses, and those to raw features, in sentences."""
    names = brief_metrics(results)
    if not results.differences:
        summary = results.summaries[0]
        abouts = [(name, results.metrics[name]) for name in names]
        metrics = [f"{about.title} {estimate_text(summary.metrics[name], share=about.share)}" for name, about in abouts]
        return f"{loss_title(summary.loss)} on {results.data.name}: {', '.join(metrics)}."
    a, b = compared_pair(results)
    pairs = [(a, b)]
    if RAW_FEATURES in {summary.loss for summary in results.summaries} - {a, b}:
        pairs.append((a, RAW_FEATURES))
    about = "" if results.scope == ABOUT_LOSSES else "These trained models: "
    return about + " ".join(_compared(results, pair, names) for pair in pairs)


def _compared(results: Results, pair: tuple[str, str], names: Sequence[str]) -> str:
    """Return the differences between two losses in one sentence."""
    a, b = pair
    differences = [d for d in results.differences if {d.a, d.b} == {a, b} and d.metric in names]
    clauses = [_clause(results, d, a, b) for d in differences if d.significant]
    same = [results.metrics[d.metric].title for d in differences if not d.significant]
    if same:
        clauses.append(f"no significant difference in {_listed(same)}")
    return f"{loss_title(a)} against {loss_title(b)}: {'; '.join(clauses)}."


def compared_pair(results: Results) -> tuple[str, str]:
    """Return the two losses of the finding: those of the paper, or the best and the worst by the first metric."""
    losses = [summary.loss for summary in results.summaries]
    baselines = [name for name in losses if name in LOSSES and LOSSES[name].positives_in_denominator]
    if DEFAULT_LOSS in losses and baselines:
        return DEFAULT_LOSS, baselines[0]
    metric, about = next(iter(results.metrics.items()))
    sign = 1 if about.better == "lower" else -1
    ordered = sorted(results.summaries, key=lambda summary: sign * summary.metrics[metric].estimate)
    return ordered[0].loss, ordered[-1].loss


def _clause(results: Results, difference: Difference, a: str, b: str) -> str:
    metric = difference.metric
    about = results.metrics[metric]
    stored = {summary.loss: summary.metrics[metric] for summary in results.summaries}
    estimates = {loss: estimate.estimate for loss, estimate in stored.items()}
    value, other = (estimate_text(stored[loss], share=about.share) for loss in (a, b))
    size = Estimate(abs(difference.estimate), *sorted((abs(difference.low), abs(difference.high))))
    by = number(size.estimate, share=about.share, digits=_digits(size, share=about.share))
    points = f"{by.removesuffix('%')} points" if about.share else by
    direction = "higher" if estimates[a] > estimates[b] else "lower"
    return f"{about.title} {value}, {direction} than {other} by {points} {interval(size, share=about.share)}"


def _listed(names: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def write_csv(results: Results, folder: Path) -> Path:
    """Write results.csv, with a line for each run and metric."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["loss", "seed", "metric", "estimate", "low", "high", "loss_first", "loss_last", "seconds"])
    for row in results.rows:
        ends = (row.train_loss.first, row.train_loss.last) if row.train_loss else ("", "")
        for name, metric in row.metrics.items():
            writer.writerow([row.loss, row.seed, name, metric.estimate, metric.low, metric.high, *ends, row.seconds])
    path = folder / CSV
    write_atomic(path, text.getvalue())
    return path
