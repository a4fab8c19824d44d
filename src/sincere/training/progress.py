"""Progress of a run for the user: a live progress bar in a terminal, else a line every few seconds."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol, Self

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from sincere.messages import Messages

LINE_SECONDS, STEP_SECONDS = 10.0, 60.0  # between two plain lines for epochs, and for steps of a long epoch


class Reporter(Protocol):
    """Receives the progress of a run."""

    def start(self, step: int, n_steps: int) -> None:
        """Handle the start, or the resume, of a run at `step`."""

    def step(self, step: int) -> None:
        """Handle the end of a step."""

    def epoch(self, row: Mapping[str, Any]) -> None:
        """Handle the end of an epoch, with its metrics."""

    def stop(self) -> None:
        """Handle the end of the run."""


def epoch_line(row: Mapping[str, Any]) -> str:
    """Return the metrics of an epoch in one line."""
    levels = f" (chance {row['chance']:.2f}, floor {row['floor']:.2f})" if "chance" in row else ""
    parts = [
        f"epoch {row['epoch']}/{row['n_epochs']}",
        f"loss {row['loss']:.3f}{levels}",
        f"lr {row['learning_rate']:.3g}",
        f"{row['images_per_second']:,.0f} samples/s",
        f"{row['data_wait_share']:.0%} waiting for data",
        f"{_duration(row['seconds'] / row['epoch'] * (row['n_epochs'] - row['epoch']))} left",
    ]
    live = {key: key.removeprefix("knn1_").replace("_", " ") for key in row if key.startswith("knn1_")}
    parts += [f"1-NN {row[key]:.3f} ({about})" for key, about in live.items()]
    return " · ".join(parts)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class TerminalReporter:
    """A progress bar with the remaining time, and the metrics of the last epoch below it."""

    def __init__(self, messages: Messages) -> None:
        self.messages, console = messages, messages.console
        columns = (BarColumn(bar_width=24), TextColumn("{task.percentage:>3.0f}%"), TimeRemainingColumn())
        self.bar = Progress(*columns, TextColumn("left · {task.description}"), console=console)
        self.metrics = Text("")
        self.live = Live(Group(self.bar, self.metrics), console=console, refresh_per_second=4, transient=True)
        self.task: TaskID | None = None
        self.n_steps = 0

    def start(self, step: int, n_steps: int) -> None:
        """Show the bar."""
        self.n_steps = n_steps
        self.task = self.bar.add_task("", total=n_steps, completed=step)
        self.live.start()

    def step(self, step: int) -> None:
        """Advance the bar."""
        if self.task is not None:
            self.bar.update(self.task, completed=step, description=f"step {step:,} of {self.n_steps:,}")

    def epoch(self, row: Mapping[str, Any]) -> None:
        """Show the metrics below the bar; epochs with a 1-NN accuracy are also printed above it."""
        self.metrics.plain = epoch_line(row)
        if any(key.startswith("knn1_") for key in row):
            self.messages.say(epoch_line(row))

    def stop(self) -> None:
        """Remove the bar."""
        self.live.stop()


class LineReporter:
    """Plain lines: for epochs with a 1-NN accuracy, the first and last epoch, and every few seconds."""

    def __init__(self, messages: Messages) -> None:
        self.messages = messages
        self.last_line, self.n_steps = 0.0, 0

    def start(self, step: int, n_steps: int) -> None:
        """Store the number of steps."""
        self.n_steps, self.last_line = n_steps, time.monotonic()

    def step(self, step: int) -> None:
        """Print a line if nothing was printed for a minute."""
        if time.monotonic() - self.last_line > STEP_SECONDS:
            self.messages.say(f"step {step:,} of {self.n_steps:,}")
            self.last_line = time.monotonic()

    def epoch(self, row: Mapping[str, Any]) -> None:
        """Print a line if one is due."""
        due = row["epoch"] in (1, row["n_epochs"]) or any(key.startswith("knn1_") for key in row)
        if due or time.monotonic() - self.last_line > LINE_SECONDS:
            self.messages.say(epoch_line(row))
            self.last_line = time.monotonic()

    def stop(self) -> None:
        """Do nothing."""


class CountProgress:
    """Shows how many of some items are done: a progress bar in a terminal, else a line every few seconds.

    The bar disappears at the end of the `with` block; the last line stays.

    Args:
        messages: Receives the lines.
        what: What the items are, such as "decoded images".
    """

    def __init__(self, messages: Messages, what: str) -> None:
        self.messages, self.what = messages, what
        self.last_line = time.monotonic()
        self.bar: Progress | None = None
        if messages.console.is_terminal and not messages.quiet:
            columns = (BarColumn(bar_width=24), TextColumn("{task.percentage:>3.0f}%"), TimeRemainingColumn())
            text = TextColumn("left · {task.description}")
            self.bar = Progress(*columns, text, console=messages.console, transient=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def __call__(self, done: int, total: int) -> None:
        """Advance the bar, or print a line if one is due."""
        line = f"{self.what}: {done:,} of {total:,}"
        if self.bar is not None:
            if not self.bar.tasks:
                self.bar.start()
                self.bar.add_task("", total=total)
            self.bar.update(self.bar.tasks[0].id, completed=done, description=line)
        if done == total or (self.bar is None and time.monotonic() - self.last_line > LINE_SECONDS):
            self.messages.say(line)
            self.last_line = time.monotonic()


def make_reporter(messages: Messages) -> Reporter:
    """Return the reporter that suits the output; when quiet, none of its lines are printed."""
    terminal = messages.console.is_terminal and not messages.quiet
    return TerminalReporter(messages) if terminal else LineReporter(messages)
