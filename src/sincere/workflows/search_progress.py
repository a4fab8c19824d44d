"""Progress of a search for the user: a live table of trials in a terminal, else a line for each trial."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from optuna.trial import TrialState
from rich.live import Live
from rich.table import Table

from sincere.messages import Messages
from sincere.records.search import TrialRow, Value, settings_text
from sincere.report.tables import duration
from sincere.tuning.study import LossStudy, Watcher

SHOWN = 12  # trials in the live table, the last ones
WAITING_SECONDS = 60.0  # between two lines while others finish


class SearchProgress(Watcher):
    """Shows the trials of a search as they start and end, until its block ends.

    Args:
        studies: The study of each loss.
        messages: Receives the lines.
    """

    def __init__(self, studies: Sequence[LossStudy], messages: Messages) -> None:
        self.studies, self.messages = studies, messages
        self.rows: list[TrialRow] = []
        self.current, self.live_value = "", ""
        self.began, self.n_run = time.monotonic(), 0
        self.last_wait = -WAITING_SECONDS
        shows_table = messages.console.is_terminal and not messages.quiet
        self.table = Live(console=messages.console, refresh_per_second=2, transient=True) if shows_table else None

    def __enter__(self) -> Self:
        if self.table is not None:
            self.table.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.table is not None:
            self.table.stop()

    def started(self, loss: str, settings: Mapping[str, Value]) -> None:
        """Show the settings of a trial."""
        self.current, self.live_value = f"{loss}: {settings_text(dict(settings))}", ""
        self._draw()

    def live(self, epoch: int, value: float) -> None:
        """Show a live accuracy."""
        self.live_value = f"epoch {epoch}: 1-NN {value:.4f}"
        self._draw()

    def ended(self, study: LossStudy, number: int) -> None:
        """Show how a trial of this process ended, the best so far, and the time left."""
        self.n_run += 1
        self.current = self.live_value = ""
        row = next((row for row in study.rows() if row.number == number), None)
        if row is None:
            return
        self.rows.append(row)
        done, total = _counts(study)
        best = _best(study)
        parts = [
            f"{study.loss} {done}/{total}",
            outcome(row),
            settings_text(row.settings),
            duration(row.seconds),
            f"best {best:.4f}" if best is not None else "none complete yet",
            f"{self.time_left()} left",
        ]
        if self.table is None:
            self.messages.say(" · ".join(parts))
        self._draw()

    def waiting(self, n_running: int) -> None:
        """Say that others are running the last trials."""
        if time.monotonic() - self.last_wait > WAITING_SECONDS:
            self.last_wait = time.monotonic()
            self.messages.say(f"waiting for {n_running} trial{'s' if n_running != 1 else ''} of other workers")

    def time_left(self) -> str:
        """Return an estimate of the time left, at the pace of this process and those that run trials beside it."""
        n_left = sum(total - done for done, total in map(_counts, self.studies))
        n_running = sum(len(study.trials(TrialState.RUNNING)) for study in self.studies)
        n_workers = max(1, n_running + (not self.current))  # between two trials, this process runs none
        pace = (time.monotonic() - self.began) / max(1, self.n_run)
        return duration(n_left * pace / n_workers)

    def _draw(self) -> None:
        if self.table is not None:
            self.table.update(self._table())

    def _table(self) -> Table:
        best = {study.loss: _best(study) for study in self.studies}
        counts = []
        for study in self.studies:
            done, total = _counts(study)
            so_far = "" if best[study.loss] is None else f" (best 1-NN {best[study.loss]:.4f})"
            counts.append(f"{study.loss} {done}/{total}{so_far}")
        caption = f"{', '.join(counts)} · {self.time_left()} left\n{self.current} {self.live_value}"
        table = Table(box=None, pad_edge=False, caption=caption, caption_justify="left")
        for name in ("loss", "trial", "outcome", "settings", "time"):
            table.add_column(name)
        for row in self.rows[-SHOWN:]:
            is_best = row.state == "complete" and row.value == best[row.loss]
            style = "bold" if is_best else "dim" if row.state != "complete" else ""
            cells = (row.loss, str(row.number), outcome(row), settings_text(row.settings), duration(row.seconds))
            table.add_row(*cells, style=style)
        return table


def outcome(row: TrialRow) -> str:
    """Return how a trial ended."""
    if row.state == "failed":
        return f"failed ({row.error})" if row.error else "failed"
    return f"1-NN {row.value:.4f}" if row.state == "complete" else f"pruned at 1-NN {row.value or 0:.4f}"


def _best(study: LossStudy) -> float | None:
    """Return the highest accuracy so far; None if no trial is complete."""
    return max((row.value or 0.0 for row in study.rows() if row.state == "complete"), default=None)


def _counts(study: LossStudy) -> tuple[int, int]:
    """Return how many trials have ended, and how many there are; those that are run again count once."""
    waiting = len(study.trials(TrialState.WAITING, TrialState.RUNNING))
    done = len(study.rows())
    return done, done + waiting
