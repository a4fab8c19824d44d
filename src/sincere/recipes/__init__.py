"""Settings as data: those of the paper's experiments, and the same protocol sized for two CPU cores.

Each TOML file here is a recipe. `sincere train --recipe cifar10-sincere` takes one of its losses, `sincere compare
--recipe cifar10` all of them, and `sincere transfer RUN --recipe pets` a recipe of a probe.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Scale = Literal["paper", "cpu"]
PUBLISHED = "published.toml"


class Recipe(BaseModel):
    """One experiment.

    Attributes:
        title: What it is, in a few words.
        scale: Whether it is the paper's own size, or sized for two CPU cores.
        verb: The command that it is for.
        form: How the embedding is learned, as tables show it.
        settings: Settings of that command which all losses share, by name.
        evaluation: Settings of the evaluation that follows, by name.
        losses: Settings in which each loss differs from the others, by name of the loss.
        seeds: Random seeds of its runs.
        transfers: Settings of each transfer of its models, by a name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    scale: Scale
    verb: Literal["train", "transfer"] = "train"
    form: str = ""
    settings: dict[str, Any]
    evaluation: dict[str, Any] = {}
    losses: dict[str, dict[str, Any]]
    seeds: tuple[int, ...] = (0,)
    transfers: dict[str, dict[str, Any]] = {}

    @property
    def data(self) -> str:
        """Name of its data set."""
        return str(self.settings.get("data") or self.settings["to"])

    def of_loss(self, loss: str) -> dict[str, Any]:
        """Return all settings of one of its losses."""
        return {**self.settings, **self.losses.get(loss, {})}

    def own_settings(self) -> set[str]:
        """Return the names of the settings that are the losses' own."""
        return {name for own in self.losses.values() for name in own}


Values = dict[str, dict[str, float]]  # by data set and loss
Pairs = dict[str, dict[str, tuple[float, float]]]


class Published(BaseModel):
    """The values of the paper's tables: by data set, then by loss.

    Attributes:
        margin: Margins.
        train_loss: Mean loss of the first and the last epoch.
        knn: 1-NN and 5-NN accuracies in per cent.
        linear: Accuracies of the linear probe in per cent.
        transfer: Accuracies of linear probes on encoders of ImageNet-100, in per cent.
        significant: The losses that the paper marks as significantly better, by table and data set.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    margin: Values
    train_loss: Pairs
    knn: Pairs
    linear: Values
    transfer: Values
    significant: dict[str, dict[str, tuple[str, ...]]]


class _Names(Mapping[str, Recipe]):
    """The recipes for one command by name; files are read when one is asked for."""

    def __init__(self, verb: str) -> None:
        self.verb = verb

    def _found(self) -> dict[str, Recipe]:
        return {name: recipe for name, recipe in all_recipes().items() if recipe.verb == self.verb}

    def __getitem__(self, name: str) -> Recipe:
        return self._found()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found())

    def __len__(self) -> int:
        return len(self._found())


class _RunNames(_Names):
    """The recipes of single runs: a recipe and one of its losses."""

    def _found(self) -> dict[str, Recipe]:
        found = super()._found()
        return {f"{name}-{loss}": recipe for name, recipe in found.items() for loss in recipe.losses}

    def settings(self, name: str) -> dict[str, Any]:
        """Return the settings of a run, its loss included."""
        recipe = self[name]
        loss = next(loss for loss in recipe.losses if name.endswith(f"-{loss}"))
        return {**recipe.of_loss(loss), "loss": loss}


@cache
def all_recipes() -> dict[str, Recipe]:
    """Return every recipe by name."""
    found = sorted(entry.name for entry in files(__name__).iterdir() if entry.name.endswith(".toml"))
    return {name.removesuffix(".toml"): Recipe(**_read(name)) for name in found if name != PUBLISHED}


@cache
def published() -> Published:
    """Return the values of the paper's tables."""
    return Published(**_read(PUBLISHED))


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((files(__name__) / name).read_text(encoding="utf-8"))


EXPERIMENTS = _Names("train")
RUN_RECIPES = _RunNames("train")
TRANSFER_RECIPES = _Names("transfer")
