"""Writes metrics for TensorBoard, in addition to another reporter; needs the extra `tensorboard`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sincere.errors import InputValueError
from sincere.training.progress import Reporter

TENSORBOARD = "tensorboard"


def check_tensorboard() -> None:
    """Check that TensorBoard is installed.

    Raises:
        InputValueError: It is not; the message has the command that installs it.
    """
    if find_spec("tensorboard") is None:
        raise InputValueError("train: tensorboard is not installed; run pip install 'sincere[tensorboard]'")


class TensorBoardReporter:
    """Forwards all calls to another reporter, and writes the metrics of each epoch as TensorBoard events."""

    def __init__(self, reporter: Reporter, folder: Path, *, first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.reporter = reporter
        self.writer = SummaryWriter(str(folder / TENSORBOARD), purge_step=first_step + 1)

    def start(self, step: int, n_steps: int) -> None:
        """Forward the call."""
        self.reporter.start(step, n_steps)

    def step(self, step: int) -> None:
        """Forward the call."""
        self.reporter.step(step)

    def epoch(self, row: Mapping[str, Any]) -> None:
        """Forward the call and write the metrics."""
        self.reporter.epoch(row)
        for name, value in row.items():
            if isinstance(value, float):
                self.writer.add_scalar(name, value, row["step"])

    def stop(self) -> None:
        """Forward the call and close the event file."""
        self.reporter.stop()
        self.writer.close()
