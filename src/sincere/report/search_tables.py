"""Tables and sentences of a search, for the terminal and its report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from sincere.messages import Messages
from sincere.records.search import LossSearch, SearchResults, settings_text


def best_rows(results: SearchResults) -> tuple[list[str], list[list[str]]]:
    """Return header and rows, one per loss: accuracy, best settings, numbers of trials."""
    header = ["loss", "1-NN, held out", "best settings", "trials", "as good"]
    return header, [_row(results, found) for found in results.losses]


def _row(results: SearchResults, found: LossSearch) -> list[str]:
    return [
        found.loss,
        f"{100 * found.value:.1f}%",
        settings_text(found.best),
        counts_text(results, found.loss),
        f"{found.n_close:,}",
    ]


def counts_text(results: SearchResults, loss: str) -> str:
    """Return how many trials a loss had, and how they ended."""
    trials = results.of_loss(loss)
    parts = [f"{len(trials):,}"]
    for state in ("pruned", "failed"):
        if n := sum(trial.state == state for trial in trials):
            parts.append(f"{n:,} {state}")
    return ", ".join(parts)


def _trials_text(results: SearchResults, loss: str) -> str:
    """Return the numbers of trials in words: 6 trials, 3 pruned."""
    first, *rest = counts_text(results, loss).split(", ")
    return ", ".join([f"{first} trials", *rest])


def close_note(results: SearchResults) -> str:
    """Return what the last column of the table means."""
    about = f"within one standard error of the best, on {results.n_validation:,} held-out {results.noun}"
    return f"as good: other trials {about}; among equal trials the one nearest to the middle of the space is taken"


def tuned_note(results: SearchResults, losses: Sequence[str]) -> str:
    """Return how the settings of each loss in a comparison were chosen."""
    chosen = "; ".join(
        f"{loss}: {settings_text(results.best(loss))} ({_trials_text(results, loss)})" for loss in losses
    )
    about = f"1-NN accuracy on {results.n_validation:,} held-out training {results.noun}"
    return f"each loss has its own settings, the best of a search by {about}: {chosen}"


def show_search(results: SearchResults, page: Path, messages: Messages) -> None:
    """Print the best settings of each loss, notes and the path of the report, unless quiet."""
    if messages.quiet:
        messages.note(*results.notes)
        return
    header, rows = best_rows(results)
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for name in header:
        table.add_column(name, justify="right" if name in ("1-NN, held out", "as good") else "left")
    for row in rows:
        table.add_row(*row)
    messages.console.print()
    messages.console.print(table)
    lines = ["", *([close_note(results)] if results.n_validation else []), *(f"note: {note}" for note in results.notes)]
    for line in [*lines, f"report: {page}"]:
        messages.say(line)
