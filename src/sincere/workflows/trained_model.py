"""The data and the model of a run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch

from sincere.data.catalog import load_source
from sincere.data.class_folders import has_class_folders
from sincere.data.dataset import Dataset
from sincere.data.given_images import plain_images
from sincere.data.load_options import LoadOptions
from sincere.errors import DataError, InputValueError, SincereError, first_line
from sincere.messages import Messages
from sincere.models.embedding import SPEC, WEIGHTS, EmbeddingModel, build_model, load_model, load_spec
from sincere.models.weights import run_description
from sincere.records.config import CONFIG
from sincere.records.files import check_folder_exists
from sincere.records.model import ModelSpec
from sincere.settings.data import DataSettings
from sincere.settings.requests import CompareRequest, RunSettings, wants_frozen
from sincere.training.checkpoints import DamagedError, read
from sincere.training.progress import CountProgress
from sincere.workflows.run_folder import RunFolder


def load_data(
    source: DataSettings, settings: RunSettings | CompareRequest, device: torch.device, messages: Messages
) -> Dataset:
    """Load a data set; show the progress of its decoding, unless quiet, and its notes.

    Args:
        source: What to load.
        settings: Of the model that is to see the data.
        device: Device that holds the pixels if they fit into its memory.
        messages: Receives the progress.
    """
    model, frozen = settings.model, wants_frozen(settings)
    about = None if model.weights is None else run_description(model.weights)
    options: dict[str, Any] = {
        "size": source.size or (about.size if about is not None else None),
        "skip_bad_images": source.skip_bad_images,
        "device": device,
        "frozen": frozen,
        "enlarge": bool(frozen) and model.weights is None and not model.is_python,
    }
    if source.data_dir is not None:
        options["root"] = source.data_dir
    with CountProgress(messages, "decoded images") as progress:
        data = load_source(
            source.source,
            LoadOptions(**options, progress=progress),
            classes=source.classes,
            unknown_classes=source.unknown_classes,
            imbalance=source.imbalance,
        )
    messages.note(*data.notes)
    return data


def with_unknown(
    data: Dataset,
    unknown_data: str | None,
    source: DataSettings,
    settings: RunSettings | CompareRequest,
    device: torch.device,
    messages: Messages,
) -> Dataset:
    """Return a data set with the test samples of another one as its unknown classes; without one, as it is.

    Args:
        data: The data set that a model is evaluated on.
        unknown_data: Name or path of the other one, or a folder of images without class folders.
        source: How `data` was loaded.
        settings: Of the model.
        device: Device that holds the pixels if they fit into its memory.
        messages: Receives the progress.

    Raises:
        DataError: `data` leaves out classes already or has label sets, or the other data set holds features in place of
            images, the other way round, or another number of features.
    """
    if unknown_data is None:
        return data
    data.check_one_label("unknown_data")
    if data.unknown is not None:
        raise DataError(
            "unknown_data: --unknown-classes were left out already; unknown images come from one of the two"
        )
    if Path(unknown_data).is_dir() and not has_class_folders(Path(unknown_data)):
        if data.train.are_features:
            raise DataError(f"unknown_data: {unknown_data} must hold features, as {data.name}; got images")
        with CountProgress(messages, "decoded images") as progress:
            shape = cast(tuple[int, int, int], data.test.items.shape[1:])
            found = plain_images(Path(unknown_data), shape, skip_bad=source.skip_bad_images, progress=progress)
        return replace(data, unknown=found)
    size = None if data.train.are_features else data.size
    # By the same settings, so that the data that the model knows have the same content hash.
    same = source.model_copy(update={"source": unknown_data, "size": size, "classes": None, "unknown_classes": None})
    other = load_data(same, settings, device, messages)
    if data.train.are_features != other.test.are_features:
        kinds = ("images", "features")
        had, got = kinds[data.train.are_features], kinds[other.test.are_features]
        raise DataError(f"unknown_data: {unknown_data} must hold {had}, as {data.name}; got {got}")
    if data.train.are_features and data.train.items.shape[1] != other.test.items.shape[1]:
        n, m = data.train.items.shape[1], other.test.items.shape[1]
        raise DataError(f"unknown_data: {unknown_data} must have {n:,} features, as {data.name}; got {m:,}")
    if other.digest == data.digest:
        raise DataError(f"unknown_data: {unknown_data} is the data that the model knows; give other data")
    if both := [name for name in other.class_names if name in data.class_names]:
        names = ", ".join(both[:3]) + (", ..." if len(both) > 3 else "")
        messages.note(f"unknown_data: classes of the same name are known ({names}); are they really others?")
    return replace(data, unknown=other.test)


@dataclass(frozen=True)
class Trained:
    """A model as a run has left it.

    Attributes:
        model: The model, in evaluation mode.
        epochs: Number of epochs trained.
        seconds: Time spent training.
        train_loss: Mean loss of the first and the last epoch; None without one.
        data: Content hash of the data it was trained on.
        notes: Notes for the reader.
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


def check_input(spec: ModelSpec, data: Dataset, run: Path) -> None:
    """Check that the samples of a data set are what the model of a run takes.

    Raises:
        DataError: They are features and it takes images, the other way round, or their number of features differs.
    """
    ready_made = data.train.are_features and data.origin is None
    if spec.n_features is None and ready_made:
        remedy = "give the images themselves: what made the features is not known"
        raise DataError(f"{run}: was trained on images, and {data.name} holds features; {remedy}")
    if spec.n_features is not None and not ready_made:
        remedy = "compute their features as those of its training data were"
        raise DataError(f"{run}: was trained on features, and {data.name} holds images; {remedy}")
    n_features = data.train.items.shape[1]
    if spec.n_features is not None and spec.n_features != n_features:
        expected = f"was trained on {spec.n_features:,} features"
        raise DataError(f"{run}: {expected}, and {data.name} has {n_features:,}; both must be of the same kind")


def stored_settings(folder: RunFolder) -> RunSettings:
    """Return the settings of a run.

    Raises:
        DataError: The folder holds none.
    """
    if not (folder.path / CONFIG).is_file():
        check_folder_exists(folder.path)
        raise DataError(f"{folder.path}: holds no run; {CONFIG} is missing")
    try:
        return RunSettings.make(**folder.stored_settings())
    except InputValueError as error:
        raise DataError(f"{folder.path / CONFIG}: is no configuration of this version ({error})") from error


def load_trained(folder: RunFolder) -> Trained:
    """Return the model of a run, or of its last checkpoint where it is not finished.

    Raises:
        DataError: There is neither.
    """
    if (summary := folder.summary()) is not None and folder.has_model:
        done = {name: summary[name] for name in ("epochs", "seconds", "train_loss", "data")}
        return Trained(load_model(folder.path), **done, notes=())
    damaged: list[str] = []
    for path in reversed(folder.checkpoints.paths()):
        try:
            content = read(path)
        except DamagedError as error:
            damaged.append(str(error))
            continue
        why = "the run is not finished" if summary is None else f"{WEIGHTS} is missing"
        note = f"{folder.path}: {why}; this is its last checkpoint, after step {int(path.stem.removeprefix('step-')):,}"
        try:
            return _from_checkpoint(content, load_spec(folder.path), (note, *damaged))
        except SincereError:
            raise
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
            raise DataError(f"{path}: does not fit {SPEC} ({first_line(error)})") from error
    remedy = f"resume it with `sincere train --resume --out {shlex.quote(str(folder.path))}`"
    raise DataError(f"{folder.path}: holds neither a model nor an intact checkpoint; {remedy}")


def _from_checkpoint(content: Mapping[str, Any], spec: ModelSpec, notes: tuple[str, ...]) -> Trained:
    model = build_model(spec)
    model.load_state_dict(content["model"])
    rows = content["rows"]
    losses = {"first": float(rows[0]["loss"]), "last": float(rows[-1]["loss"])} if rows else None
    digest = str(content["identity"]["data (contents)"])
    return Trained(model.eval(), len(rows), float(content["progress"]["seconds"]), losses, digest, notes)
