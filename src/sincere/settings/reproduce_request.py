"""The request of `sincere reproduce`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from sincere.recipes import EXPERIMENTS, TRANSFER_RECIPES, Recipe, Scale
from sincere.records.comparison import RUNS
from sincere.records.reproduction import STORED
from sincere.settings.evaluation_requests import TransferRequest
from sincere.settings.machine import MOST_THREADS, DeviceSettings
from sincere.settings.record import Choices, Positional, Request, named_folder
from sincere.settings.requests import CompareRequest, run_name

SEARCHES = "searches"
ALL = "all"
ITEMS: dict[str, str] = {
    "margins": "margin between nearest same-class and nearest other-class image",
    "losses": "training loss of the first and last epoch",
    "knn": "1-NN and 5-NN accuracy",
    "linear": "accuracy of the linear probe",
    "transfer": "linear probes on other data",
    "histograms": "similarities to the nearest images, all classes and one by one",
    "complexity": "time and memory of the losses",
    "bound": "loss and symmetrised KL divergence",
    "repulsion": "pairs of one class that the losses push apart",
    ALL: "all of them, and a page",
}


class ReproduceRequest(Request):
    """Show our values of the paper's tables and figures beside the paper's.

    Values come from stored results; what is missing is named with the command that makes it. With --train, it is
    trained first, and the same command resumes what was interrupted.
    """

    verb: ClassVar[str] = "reproduce"
    examples: ClassVar[tuple[tuple[str, str], ...]] = (
        ("sincere reproduce all", "all tables and a page, from what is there"),
        ("sincere reproduce margins --train --recipes cifar2-small", "trains what one recipe lacks, hours on a CPU"),
        ("sincere reproduce all --scale paper --train", "ResNet-50, 800 epochs: days on a GPU"),
    )
    most_used: ClassVar[tuple[str, ...]] = ("scale", "train", "recipes", "data_dir", "out")

    item: Annotated[str, Positional(), Choices(ITEMS)]
    """Which table or figure: margins, losses, knn, linear, transfer, histograms, complexity, bound, repulsion, or
    all."""
    scale: Scale = "cpu"
    """cpu: the same protocol sized for two CPU cores; paper: exactly the paper's settings, which need a GPU."""
    recipes: tuple[Annotated[str, Choices(EXPERIMENTS)], ...] | None = None
    """Only these experiments. Default: all of the scale."""
    train: bool = False
    """Train and evaluate what is missing, after an estimate of its time and memory."""
    search: bool = False
    """With --train: search each loss's learning rate and temperature first, by the paper's grid."""
    batch_size: int | None = Field(default=None, ge=2, le=1_000_000)
    """Images in a batch, in place of the recipe's, if memory is short. Results then differ from the recipe's."""
    data_dir: Path | None = None
    """Folder of named data sets. Default: $SINCERE_HOME/datasets or ~/.cache/sincere/datasets."""
    machine: DeviceSettings = DeviceSettings()
    threads: int | None = Field(default=None, ge=1, le=MOST_THREADS)
    """CPU threads. Default: as in training."""
    out: Path | None = None
    """Folder of stored results, runs and the page. Default: runs/reproduction-<scale>."""
    quiet: bool = False
    """Print nothing but warnings, to stderr."""

    _out = field_validator("out", mode="before")(named_folder)

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        for name in self.recipes or ():
            if EXPERIMENTS[name].scale != self.scale:
                raise ValueError(f"{name} is a recipe of the scale {EXPERIMENTS[name].scale}; set --scale")
        if self.search and not self.train:
            raise ValueError("search needs train: a search is followed by the training of its winners")
        return self

    def folder(self) -> Path:
        """Return the folder of stored results, runs and the page."""
        return self.out or Path("runs") / f"reproduction-{self.scale}"

    def stored(self) -> Path:
        """Return the folder of stored results."""
        return self.folder() / STORED

    def experiments(self) -> dict[str, Recipe]:
        """Return the recipes of the scale, or those of them that are asked for."""
        wanted = EXPERIMENTS if self.recipes is None else self.recipes
        return {name: EXPERIMENTS[name] for name in wanted if EXPERIMENTS[name].scale == self.scale}

    def comparison_settings(self, name: str) -> dict[str, Any]:
        """Return the settings of the comparison of a recipe, as given on its command line."""
        chosen = {"data_dir": self.data_dir, "batch_size": self.batch_size, "threads": self.threads}
        settings: dict[str, Any] = {key: value for key, value in chosen.items() if value is not None}
        if self.machine.device != DeviceSettings().device:
            settings["device"] = self.machine.device
        return {"recipe": name, **settings, "out": self.folder() / RUNS / name}

    def comparison(self, name: str, *, tuned: Path | None = None) -> CompareRequest:
        """Return the comparison of a recipe, or of the settings that a search has found."""
        settings = self.comparison_settings(name)
        if tuned is not None:
            del settings["recipe"]
            settings |= {**EXPERIMENTS[name].evaluation, "seeds": EXPERIMENTS[name].seeds, "tuned": tuned}
        return CompareRequest.make_complete(**settings, quiet=self.quiet)

    def search_settings(self, name: str) -> dict[str, Any]:
        """Return the settings of the search of a recipe, by the paper's grid."""
        recipe, settings = EXPERIMENTS[name], self.comparison_settings(name)
        del settings["recipe"]
        chosen = {"losses": list(recipe.losses), "grid": "paper", "out": self.folder() / SEARCHES / name}
        return {**recipe.settings, **settings, **chosen}

    def command(self, name: str) -> str:
        """Return the command that makes the runs of a recipe."""
        return _command("compare", [], self.comparison_settings(name))

    def transfers(self, name: str, transfer: str) -> dict[tuple[str, int], TransferRequest]:
        """Return the transfer of each run of a recipe."""
        recipe, settings = EXPERIMENTS[name], self.transfer_settings(name, transfer)
        of_recipe = TRANSFER_RECIPES[settings["recipe"]].of_loss if "recipe" in settings else lambda loss: {}
        return {
            (loss, seed): TransferRequest.make(
                **{**of_recipe(loss), **settings, "run": self._run(name, loss, seed), "quiet": self.quiet}
            )
            for seed in recipe.seeds
            for loss in recipe.losses
        }

    def transfer_settings(self, name: str, transfer: str) -> dict[str, Any]:
        """Return the settings of a transfer, as given on its command line."""
        settings = dict(EXPERIMENTS[name].transfers[transfer])
        return settings if self.data_dir is None else {**settings, "data_dir": self.data_dir}

    def transfer_command(self, name: str, transfer: str, loss: str, seed: int) -> str:
        """Return the command of the transfer of one run."""
        return _command("transfer", [str(self._run(name, loss, seed))], self.transfer_settings(name, transfer))

    def _run(self, name: str, loss: str, seed: int) -> Path:
        return self.folder() / RUNS / name / RUNS / run_name(loss, seed)


def _command(verb: str, positional: list[str], settings: dict[str, Any]) -> str:
    words = ["sincere", verb, *positional]
    for name, value in settings.items():
        words.append(f"--{name.replace('_', '-')}")
        words += [str(item) for item in value] if isinstance(value, list | tuple) else [str(value)]
    return shlex.join(words)
