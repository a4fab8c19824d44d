"""TensorBoard beside another reporter; needs the extra `tensorboard`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sincere.errors import InputValueError
from sincere.training.progress import Reporter

BOARD = "tensorboard"


def check_board() -> None:
    """Raise unless TensorBoard is installed.

    Raises:
        InputValueError: With the command that installs it.
    """
    if find_spec("tensorboard") is None:
        raise InputValueError("train: tensorboard is not installed; run pip install 'sincere[tensorboard]'")


class BoardReporter:
    """Passes everything on, and writes the figures of each epoch as TensorBoard files."""

    def __init__(self, reporter: Reporter, folder: Path, *, first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.reporter = reporter
        self.writer = SummaryWriter(str(folder / BOARD), purge_step=first_step + 1)

    def start(self, step: int, n_steps: int) -> None:
        """Pass on."""
        self.reporter.start(step, n_steps)

    def step(self, step: int) -> None:
        """Pass on."""
        self.reporter.step(step)

    def epoch(self, row: Mapping[str, Any]) -> None:
        """Pass on and write."""
        self.reporter.epoch(row)
        for name, value in row.items():
            if isinstance(value, float):
                self.writer.add_scalar(name, value, row["step"])

    def say(self, text: str) -> None:
        """Pass on."""
        self.reporter.say(text)

    def stop(self) -> None:
        """Pass on and flush."""
        self.reporter.stop()
        self.writer.close()
