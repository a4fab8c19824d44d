"""The results of a hyper-parameter search: search.json."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field

from sincere.errors import DataError
from sincere.records.files import write_json
from sincere.records.results import Count, Facts, Number, Record, Share, Text, read_record

SEARCH, STUDY, TRIALS, WORKERS, FINAL = "search.json", "study.db", "trials", "workers", "final"
FIGURE_NAMES = ("settings", "plane", "live", "importance")
State = Literal["complete", "pruned", "failed"]
End = Literal["low", "high"]
Value = float | int | str
REMEDY = "the same `sincere search` writes it again from its study"


class Dimension(Record):
    """A setting that is searched: in a range, or among some values."""

    name: Text
    """Name of the setting."""
    low: Number | None = None
    """Low end of its range; null where there are values."""
    high: Number | None = None
    """High end of its range."""
    log: bool = False
    """Whether the range is searched in the logarithm."""
    integer: bool = False
    """Whether the range holds integers only."""
    values: tuple[Value, ...] = ()
    """Its values, if it has no range."""

    @property
    def title(self) -> str:
        """Its name in tables and figures."""
        return self.name.replace("_", " ")

    @property
    def is_numeric(self) -> bool:
        """Whether its values are numbers."""
        return not any(isinstance(value, str) for value in self.values)

    @property
    def is_fixed(self) -> bool:
        """Whether there is nothing to choose."""
        return len(self.values) == 1 or (self.low is not None and self.low == self.high)

    def position(self, value: Value) -> float | None:
        """Return where a number lies between the ends, from 0 to 1; None for names, and where there is one value."""
        if self.is_fixed or not self.is_numeric:
            return None
        if self.values:
            ordered = sorted(map(float, self.values))
            return ordered.index(float(value)) / (len(ordered) - 1)
        low, high, at = float(self.low or 0), float(self.high or 0), float(value)
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return (at - low) / (high - low)

    def written(self) -> str:
        """Return it as `--space` takes it."""
        ends = f"{self.low:g}:{self.high:g}" if not self.values else ",".join(map(value_text, self.values))
        return f"{self.name}={ends}"


class TrialRow(Record):
    """A trial that has ended."""

    loss: Text
    """Loss that it trained."""
    number: Count
    """Number of the trial in the study of its loss."""
    state: State
    """complete, pruned (stopped because others were better by then) or failed."""
    value: Share | None
    """1-NN accuracy on the held-out images, of a pruned trial the last one; null if it has failed."""
    settings: Facts
    """The searched settings."""
    curve: tuple[tuple[Count, Share], ...] = ()
    """Epochs and live 1-NN accuracies."""
    seconds: Number = 0.0
    """Time that it took."""
    error: Text | None = None
    """Why it has failed."""


class Edge(Record):
    """A searched setting whose best value lies at an end of its range."""

    name: Text
    """Name of the setting."""
    end: End
    """Which end."""
    next: Text
    """What to search next, as `--space` takes it."""


class LossSearch(Record):
    """The search of one loss."""

    loss: Text
    """Name of the loss."""
    space: tuple[Dimension, ...]
    """What was searched."""
    trial: Count
    """Number of the best trial."""
    value: Share
    """Its 1-NN accuracy on the held-out images."""
    best: Facts
    """Its settings."""
    n_close: Count
    """Number of other complete trials within one standard error of the best."""
    edges: tuple[Edge, ...] = ()
    """Settings whose best value lies at an end of what was searched."""
    importance: dict[Text, Share] = Field(default_factory=dict)
    """Share of the differences between trials that each setting explains (fANOVA); empty if it cannot be computed."""


class SearchResults(Record):
    """The results of a search."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    """Version of this format."""
    data: Text
    """Name of the data set."""
    digest: Text
    """Content hash of the data; empty for an objective of the caller's own."""
    n_train: Count
    """Number of images that a trial is trained on."""
    n_validation: Count
    """Number of held-out training images that decide."""
    noun: Literal["images", "samples"] = "images"
    """What the report calls them."""
    grid: bool
    """Whether every combination of values was tried, in place of values that earlier trials suggest."""
    seeds: tuple[Count, ...]
    """Random seeds of each trial."""
    settings: Facts
    """Settings that all trials share."""
    losses: tuple[LossSearch, ...]
    """One entry for each loss."""
    trials: tuple[TrialRow, ...]
    """All trials that have ended."""
    notes: tuple[Text, ...] = ()
    """Notes for the reader."""
    manifest: Facts
    """Versions, hardware, command and time."""

    def of_loss(self, loss: str) -> tuple[TrialRow, ...]:
        """Return the trials of a loss."""
        return tuple(trial for trial in self.trials if trial.loss == loss)

    def best(self, loss: str) -> dict[str, Any]:
        """Return the best settings of a loss.

        Raises:
            DataError: It was not searched.
        """
        for found in self.losses:
            if found.loss == loss:
                return dict(found.best)
        searched = ", ".join(found.loss for found in self.losses)
        raise DataError(f"the search has no trials of {loss}; it is about {searched}")

    def write(self, folder: Path) -> None:
        """Write search.json."""
        write_json(folder / SEARCH, self.model_dump(mode="json", by_alias=True))

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the results of a finished search.

        Raises:
            DataError: There are none, or they are damaged.
        """
        try:
            return read_record(cls, folder / SEARCH, remedy=REMEDY)
        except FileNotFoundError as error:
            remedy = f"`sincere search --out {folder}` writes it at its end"
            raise DataError(f"{folder}: holds no {SEARCH}; {remedy}") from error


def value_text(value: Value) -> str:
    """Return a value of a setting as text.

    Example:
        >>> value_text(0.000123456), value_text(256), value_text("mlp")
        ('0.0001235', '256', 'mlp')
    """
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def settings_text(settings: dict[str, Value]) -> str:
    """Return settings in one line.

    Example:
        >>> settings_text({"temperature": 0.1, "learning_rate": 0.5})
        'temperature 0.1, learning rate 0.5'
    """
    return ", ".join(f"{name.replace('_', ' ')} {value_text(value)}" for name, value in settings.items())
