"""What a person sees: a live bar in a terminal, else a line for an epoch now and then."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

LINE_SECONDS = 10.0  # between plain lines


class Reporter(Protocol):
    """Told how a run goes."""

    def start(self, step: int, n_steps: int) -> None:
        """The run begins, or goes on, at `step`."""

    def step(self, step: int) -> None:
        """A step is done."""

    def epoch(self, row: Mapping[str, Any]) -> None:
        """An epoch is done."""

    def say(self, text: str) -> None:
        """Something a person should know."""

    def stop(self) -> None:
        """The run ends."""


def epoch_line(row: Mapping[str, Any]) -> str:
    """Return the figures of an epoch in one line."""
    parts = [
        f"epoch {row['epoch']}/{row['n_epochs']}",
        f"loss {row['loss']:.3f} (chance {row['chance']:.2f}, floor {row['floor']:.2f})",
        f"lr {row['learning_rate']:.3g}",
        f"{row['images_per_second']:,.0f} images/s",
        f"{row['data_wait_share']:.0%} waiting for data",
    ]
    parts += [f"1-NN {row[key]:.3f} ({key.removeprefix('knn1_')})" for key in row if key.startswith("knn1_")]
    return " · ".join(parts)


class TerminalReporter:
    """A bar that is redrawn: epoch, loss against its levels, speed, time left."""

    def __init__(self, console: Console) -> None:
        self.bar = Progress(
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=console,
        )
        self.task: TaskID | None = None

    def start(self, step: int, n_steps: int) -> None:
        """Draw the bar."""
        self.task = self.bar.add_task("", total=n_steps, completed=step)
        self.bar.start()

    def step(self, step: int) -> None:
        """Move the bar."""
        if self.task is not None:
            self.bar.update(self.task, completed=step)

    def epoch(self, row: Mapping[str, Any]) -> None:
        """Show the epoch beside the bar; 1-NN checks stay above it."""
        if self.task is not None:
            self.bar.update(self.task, description=epoch_line(row))
        if any(key.startswith("knn1_") for key in row):
            self.bar.console.print(epoch_line(row), highlight=False)

    def say(self, text: str) -> None:
        """Print above the bar."""
        self.bar.console.print(text, highlight=False, markup=False)

    def stop(self) -> None:
        """Take the bar away."""
        self.bar.stop()


class LineReporter:
    """Plain lines: for 1-NN checks, the first and last epoch, and every few seconds."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.last = 0.0

    def start(self, step: int, n_steps: int) -> None:
        """Nothing to show yet."""

    def step(self, step: int) -> None:
        """Steps are too many for lines."""

    def epoch(self, row: Mapping[str, Any]) -> None:
        """Print a line if one is due."""
        due = row["epoch"] in (1, row["n_epochs"]) or any(key.startswith("knn1_") for key in row)
        if due or time.monotonic() - self.last > LINE_SECONDS:
            self.say(epoch_line(row))
            self.last = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def stop(self) -> None:
        """Nothing to take away."""


class QuietReporter(LineReporter):
    """Warnings only."""

    def epoch(self, row: Mapping[str, Any]) -> None:
        """Print nothing."""


class DecodingProgress:
    """Counts decoded images in a line now and then."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.last = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        """Print a line if one is due."""
        if done == total or time.monotonic() - self.last > LINE_SECONDS:
            self.console.print(f"decoded {done:,} of {total:,} images", highlight=False)
            self.last = time.monotonic()


def make_reporter(console: Console, *, quiet: bool) -> Reporter:
    """Return what suits the output."""
    if quiet:
        return QuietReporter(console)
    return TerminalReporter(console) if console.is_terminal else LineReporter(console)
