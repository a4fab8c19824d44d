"""What is stored of each experiment of a reproduction: results/<name>.json, without weights and data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field

from sincere.errors import DataError
from sincere.records.files import write_json
from sincere.records.results import Count, Facts, Number, Record, Results, Seed, Share, Text, read_record

STORED, COSTS = "results", "costs.json"  # folder of these files, and one of them
CURVE = ("loss", "chance", "floor", "repulsion_share", "seconds")


class CurvePoint(Record):
    """One epoch of a run."""

    epoch: Count
    """Epoch, from 1."""
    loss: Number
    """Mean training loss of the epoch."""
    chance: Number | None = None
    """Loss of its last batch if all images were equally similar."""
    floor: Number | None = None
    """Loss of its last batch if the classes were perfectly separated."""
    repulsion_share: Share | None = None
    """Fraction of the same-class pairs of its last batch that a gradient step pushes apart."""
    knn1: Share | None = None
    """Live 1-NN accuracy, in epochs that have it."""
    seconds: Number | None = None
    """Time spent training so far."""

    @property
    def progress(self) -> float | None:
        """How far the loss is on its way from chance to floor, as a fraction."""
        if self.chance is None or self.floor is None or self.chance == self.floor:
            return None
        return (self.chance - self.loss) / (self.chance - self.floor)


class Curve(Record):
    """The epochs of a run."""

    loss: Text
    """Loss that it was trained with."""
    seed: Seed
    """Random seed of its training."""
    points: tuple[CurvePoint, ...]
    """Its epochs."""


class Experiment(Record):
    """The content of results/<name>.json: a comparison by a recipe, or a transfer of its models."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    """Version of this format."""
    recipe: Text
    """Recipe that the models were trained by."""
    transfer: Text | None = None
    """Name of the transfer in the recipe; null for the models' own data."""
    searched: bool = False
    """Whether a search has chosen the settings of each loss, in place of the recipe."""
    models: dict[Text, Text] = Field(default_factory=dict)
    """SHA-256 of the weights of each run, by its name: transfers of other models are noticed."""
    results: Results
    """Metrics with intervals, differences between the losses, histograms of similarities."""
    curves: tuple[Curve, ...] = ()
    """Training curve of each run; empty for a transfer."""

    @property
    def name(self) -> str:
        """Stem of its file."""
        return experiment_name(self.recipe, self.transfer, searched=self.searched)

    def write(self, folder: Path) -> Path:
        """Write the file into the folder of stored results."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        write_json(path, self.model_dump(mode="json", by_alias=True))
        return path

    @classmethod
    def read(cls, folder: Path, name: str) -> Self | None:
        """Read a stored experiment; None if there is none.

        Raises:
            DataError: It is damaged, or another one.
        """
        path = folder / f"{name}.json"
        try:
            found = read_record(cls, path, remedy="remove it, or restore it")
        except FileNotFoundError:
            return None
        if found.name != name:
            raise DataError(f"{path}: holds the results of {found.name}; remove it, or restore it")
        return found


class CostRow(Record):
    """Time and memory of one loss at one batch size: value and gradient."""

    loss: Text
    """Name of the loss."""
    n: Count
    """Number of embeddings."""
    seconds: Number
    """Median time of a step."""
    peak_bytes: Count
    """Memory beyond the embeddings, at its peak."""


class Costs(Record):
    """The content of results/costs.json: time and memory of the losses on one machine."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    """Version of this format."""
    rows: tuple[CostRow, ...]
    """Time and memory of each loss at each size."""
    manifest: Facts
    """Versions, hardware, command and time."""

    def write(self, folder: Path) -> Path:
        """Write the file into the folder of stored results."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / COSTS
        write_json(path, self.model_dump(mode="json", by_alias=True))
        return path

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Read what is stored; None if there is nothing.

        Raises:
            DataError: It is damaged.
        """
        try:
            return read_record(cls, folder / COSTS, remedy="remove it to measure again")
        except FileNotFoundError:
            return None


def experiment_name(recipe: str, transfer: str | None = None, *, searched: bool = False) -> str:
    """Return the name of an experiment, which is the stem of its file.

    Example:
        >>> experiment_name("cifar10-small"), experiment_name("cifar10", "pets", searched=True)
        ('cifar10-small', 'cifar10-searched-to-pets')
    """
    name = f"{recipe}-searched" if searched else recipe
    return name if transfer is None else f"{name}-to-{transfer}"


def curve_points(rows: Sequence[dict[str, Any]]) -> tuple[CurvePoint, ...]:
    """Return the rows of metrics.jsonl as points of a curve; nothing if an epoch is missing or has no loss."""
    points = []
    for number, row in enumerate(rows, start=1):
        if row["epoch"] != number or not isinstance(row.get("loss"), float):
            return ()
        live = next((value for name, value in row.items() if name.startswith("knn1_")), None)
        values = {name: row[name] for name in CURVE if row.get(name) is not None}
        points.append(CurvePoint(epoch=row["epoch"], knn1=live, **values))
    return tuple(points)
