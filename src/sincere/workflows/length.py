"""How many epochs fit into the minutes that a user has."""

from __future__ import annotations

from typing import cast

from lightning_fabric import Fabric

from sincere.data.dataset import Dataset
from sincere.messages import Messages
from sincere.report.tables import duration
from sincere.settings.requests import RunSettings
from sincere.workflows.assembly import prepare
from sincere.workflows.run_folder import RunFolder

SPARE = 0.05  # of the time: a half-hour run took 4% longer than its first steps had promised
MANY_EPOCHS = 1000  # of the plan that is timed: the learning rate of its first steps is near 0


def epochs_that_fit(folder: RunFolder, settings: RunSettings, data: Dataset, fabric: Fabric, messages: Messages) -> int:
    """Time the first steps of a run, and say how many epochs fit into its minutes; at least one.

    Args:
        folder: Folder of the run; nothing is written.
        settings: Resolved settings, with minutes in place of epochs.
        data: The data set; features if the encoder is frozen.
        fabric: The processes that share the run.
        messages: Receives the result.
    """
    minutes = cast(float, settings.optimisation.minutes)
    trial = settings.replaced(minutes=None, epochs=MANY_EPOCHS)
    fit = prepare(folder, trial, data, fabric, Messages(silent=True), checkpoint_seconds=float("inf"))
    seconds = fit.epoch_seconds()
    n = max(1, int((1 - SPARE) * 60 * minutes / seconds))
    text = f"{seconds:.2g} s" if seconds < 10 else duration(seconds)
    messages.say(f"an epoch takes about {text} on this machine: {n:,} epochs in {minutes:g} minutes")
    if seconds > 60 * minutes:
        messages.note(f"a single epoch takes about {text}, longer than --minutes {minutes:g}")
    return n
