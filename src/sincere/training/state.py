"""The state of the training loop that a checkpoint keeps besides weights, and the checks when it is restored."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from sincere.errors import DataError
from sincere.settings.requests import EARLIER
from sincere.training.plan import Plan


@dataclass
class TrainingState:
    """What the loop carries from step to step besides weights, optimizer and random generators.

    Attributes:
        step: Number of steps done.
        seconds: Training time so far, over all sessions of the run.
        loss_sum: Sum of the losses of the current epoch.
        wait_seconds: Time spent waiting for data in the current epoch.
        epoch_seconds: Training time of the current epoch.
        images: Number of images seen in the current epoch.
        best: Best validation score so far.
        best_epoch: Epoch of the best score.
        checks_since_best: Number of validations since the best score.
        stopped_early: Whether the run ended before its last epoch.
    """

    step: int = 0
    seconds: float = 0.0
    loss_sum: float = 0.0
    wait_seconds: float = 0.0
    epoch_seconds: float = 0.0
    images: int = 0
    best: float = -math.inf
    best_epoch: int = 0
    checks_since_best: int = 0
    stopped_early: bool = False

    def start_epoch(self) -> None:
        """Reset the sums of the epoch."""
        self.loss_sum = self.wait_seconds = self.epoch_seconds = 0.0
        self.images = 0

    def epoch_metrics(self, epoch: int, plan: Plan, learning_rate: float) -> dict[str, Any]:
        """Return the metrics of an epoch that has just ended."""
        return {
            "epoch": epoch,
            "n_epochs": plan.n_epochs,
            "step": self.step,
            "loss": self.loss_sum / plan.steps_per_epoch,
            "learning_rate": learning_rate,
            "images_per_second": self.images / self.epoch_seconds,
            "data_wait_share": self.wait_seconds / self.epoch_seconds,
            "seconds": self.seconds,
        }


def check_identity(folder: Path, identity: Mapping[str, Any], stored: object) -> None:
    """Check that a checkpoint is of this run.

    Raises:
        DataError: A setting or the data differ; the message names the first difference.
    """
    known = {**EARLIER, **stored} if isinstance(stored, dict) else None
    for name, value in identity.items():
        if known is None or known.get(name) != value:
            other = None if known is None else known.get(name)
            raise DataError(
                f"{folder}: its checkpoint has {name} = {other!r}, not {value!r}; set it back, or "
                "start over with --overwrite"
            )


def read_state(stored: Mapping[str, Any], plan: Plan) -> TrainingState:
    """Return the state in a checkpoint.

    Raises:
        TypeError, ValueError: A value has a wrong type, or the step is beyond the run.
    """
    state = TrainingState(**stored)
    for attribute in fields(TrainingState):
        value = getattr(state, attribute.name)
        if not isinstance(value, {"int": int, "bool": bool}.get(str(attribute.type), int | float)):
            raise TypeError(f"{attribute.name} is {value!r}")
    if not 0 <= state.step <= plan.n_steps:
        raise ValueError(f"step {state.step} of {plan.n_steps}")
    return state


def read_rows(stored: Sequence[Mapping[str, Any]], state: TrainingState, plan: Plan) -> list[dict[str, Any]]:
    """Return the metrics of the epochs in a checkpoint.

    Raises:
        TypeError, ValueError: They are not those of the epochs before its step, or a loss is not a number.
    """
    rows = [dict(row) for row in stored]
    if [row["epoch"] for row in rows] != list(range(1, state.step // plan.steps_per_epoch + 1)):
        raise ValueError("its rows are not those of its epochs")
    if not all(isinstance(row["loss"], float) for row in rows):
        raise TypeError("a loss is not a number")
    return rows
