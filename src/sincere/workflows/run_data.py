"""The data and the model of a run."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from rich.console import Console

from sincere.data.catalog import load_dataset
from sincere.data.dataset import Dataset
from sincere.data.settings import LoadSettings
from sincere.errors import DataError
from sincere.models.embedding import WEIGHTS, EmbeddingModel, build_model, load_model, load_spec
from sincere.records.config import CONFIG, TrainSettings
from sincere.training.checkpoints import read
from sincere.training.progress import DecodingProgress
from sincere.workflows.run_folder import RunFolder


def load_data(settings: TrainSettings, device: torch.device, console: Console | None) -> Dataset:
    """Load what a run learns from; without a console, silently."""
    options: dict[str, Any] = {"size": settings.size, "skip_bad_images": settings.skip_bad_images, "device": device}
    if settings.data_dir is not None:
        options["root"] = Path(settings.data_dir)
    if console is not None:
        options["progress"] = DecodingProgress(console)
    return load_dataset(settings.data, LoadSettings(**options), classes=settings.classes)


@dataclass(frozen=True)
class Trained:
    """A model as a run has left it.

    Attributes:
        model: In evaluation mode.
        epochs: Epochs done.
        seconds: Time spent training.
        train_loss: Mean loss of the first and the last epoch; None without one.
        data: Digest of the data it was trained on.
        notes: What a reader should know of it.
    """

    model: EmbeddingModel
    epochs: int
    seconds: float
    train_loss: dict[str, float] | None
    data: str
    notes: tuple[str, ...]

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return not self.notes


def stored_settings(folder: RunFolder) -> TrainSettings:
    """Return the settings of a run.

    Raises:
        DataError: The folder holds none.
    """
    if not (folder.path / CONFIG).is_file():
        raise DataError(f"{folder.path}: holds no run; {CONFIG} is missing")
    return TrainSettings.make(**folder.stored_settings())


def load_trained(folder: RunFolder) -> Trained:
    """Return the model of a run, or of its last checkpoint where it is not finished.

    Raises:
        DataError: There is neither.
    """
    rows = folder.log.rows()
    if (summary := folder.summary()) is not None and (folder.path / WEIGHTS).is_file():
        done = {name: summary[name] for name in ("epochs", "seconds", "train_loss", "data")}
        return Trained(load_model(folder.path), **done, notes=())
    for path in reversed(folder.checkpoints.paths()):
        try:
            content = read(path)
        except DataError:
            continue
        model = build_model(load_spec(folder.path))
        model.load_state_dict(content["model"])
        progress = content["progress"]
        rows = [row for row in rows if row["seconds"] <= progress["seconds"]]
        losses = {"first": rows[0]["loss"], "last": rows[-1]["loss"]} if rows else None
        why = "the run is not finished" if summary is None else f"{WEIGHTS} is missing"
        note = f"{folder.path}: {why}; this is its last checkpoint, after step {progress['step']:,}"
        digest = content["identity"]["data (contents)"]
        return Trained(model.eval(), len(rows), cast(float, progress["seconds"]), losses, digest, (note,))
    remedy = f"go on with `sincere train --resume --out {shlex.quote(str(folder.path))}`"
    raise DataError(f"{folder.path}: holds neither a model nor a whole checkpoint; {remedy}")
