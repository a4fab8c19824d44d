"""The request of `sincere reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from sincere.recipes import EXPERIMENTS, TRANSFER_RECIPES, Recipe, Scale
from sincere.records.comparison import RUNS
from sincere.records.reproduction import STORED, experiment_name
from sincere.settings.command_text import command_text
from sincere.settings.evaluation_requests import TransferRequest
from sincere.settings.machine import MOST_THREADS, DeviceSettings
from sincere.settings.record import Choices, Positional, Request, named_folder
from sincere.settings.requests import CompareRequest, run_name

SEARCHES = "searches"
ALL = "all"
ITEMS: dict[str, str] = {  # and their titles on the page
    "margins": "Margins",
    "losses": "Training loss",
    "knn": "Nearest neighbours",
    "linear": "Linear probe",
    "transfer": "Transfer",
    "histograms": "Histograms",
    "repulsion": "Repulsion",
    "complexity": "Complexity",
    "bound": "Bound",
    ALL: "All",
}
UNTRAINED = ("complexity",)  # items that need no models
TRANSFERRED = ("transfer", ALL)  # items that need the transfers of models


class ReproduceRequest(Request):
    """Show our values of the paper's tables and figures beside the paper's.

    Values come from stored results; what is missing is named with the command that makes it. With --train, it is
    trained first, and the same command resumes what was interrupted.
    """

    verb: ClassVar[str] = "reproduce"
    examples: ClassVar[tuple[tuple[str, str], ...]] = (
        ("sincere reproduce all", "all tables and a page, from what is there"),
        ("sincere reproduce margins --train --recipes cifar2-small", "trains what one recipe lacks, an hour on a CPU"),
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
    """With the scale paper: search each loss's learning rate and temperature by the paper's grid, in place of the
    values that the authors found."""
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
        if self.search and self.scale != "paper":
            raise ValueError("search is for the scale paper, whose grid it takes; `sincere search` is for others")
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

    def needs_models(self) -> bool:
        """Return whether the item is about trained models."""
        return self.item not in UNTRAINED

    def wanted_transfers(self, name: str) -> tuple[str, ...]:
        """Return the transfers of a recipe that the item needs."""
        return tuple(EXPERIMENTS[name].transfers) if self.item in TRANSFERRED else ()

    def run_folder(self, name: str) -> Path:
        """Return the folder of the comparison of a recipe."""
        return self.folder() / RUNS / experiment_name(name, searched=self.search)

    def comparison_settings(self, name: str) -> dict[str, Any]:
        """Return the settings of the comparison of a recipe, as given on its command line."""
        settings: dict[str, Any] = {"recipe": name}
        if self.search:
            recipe = EXPERIMENTS[name]
            settings = {"tuned": self.folder() / SEARCHES / name, **recipe.evaluation, "seeds": list(recipe.seeds)}
        return {**settings, **self._placement("data_dir", "batch_size", "threads"), "out": self.run_folder(name)}

    def _placement(self, *names: str) -> dict[str, Any]:
        """Return those of these settings that were given, and the device."""
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return given if self.machine == DeviceSettings() else {**given, "device": self.machine.device}

    def comparison(self, name: str) -> CompareRequest:
        """Return the comparison of a recipe, or of the settings that its search has found.

        Raises:
            DataError: There is no finished search.
        """
        return CompareRequest.make_complete(**self.comparison_settings(name), quiet=self.quiet)

    def search_settings(self, name: str) -> dict[str, Any]:
        """Return the settings of the search of a recipe, by the paper's grid."""
        recipe = EXPERIMENTS[name]
        chosen = {"losses": list(recipe.losses), "grid": "paper", "out": self.folder() / SEARCHES / name}
        return {**recipe.settings, **self._placement("data_dir", "batch_size", "threads"), **chosen}

    def command(self, name: str) -> str:
        """Return the command that makes the runs of a recipe."""
        if self.search:
            return self._own_command(name, "margins", "--search")
        return command_text(["compare"], self.comparison_settings(name))

    def transfer_command(self, name: str) -> str:
        """Return the command that makes the transfers of a recipe."""
        return self._own_command(name, "transfer", *(["--search"] if self.search else []))

    def _own_command(self, name: str, item: str, *flags: str) -> str:
        settings = {"scale": self.scale, "recipes": [name], **self._placement("data_dir", "batch_size", "threads")}
        return command_text(["reproduce", item, "--train", *flags], {**settings, "out": self.folder()})

    def transfers(self, name: str, transfer: str) -> dict[tuple[str, int], TransferRequest]:
        """Return the transfer of each run of a recipe."""
        recipe = EXPERIMENTS[name]
        settings = {**recipe.transfers[transfer], **self._placement("data_dir")}
        requests = {}
        for seed in recipe.seeds:
            for loss in recipe.losses:
                shared = TRANSFER_RECIPES[settings["recipe"]].of_loss(loss) if "recipe" in settings else {}
                run = self.run_folder(name) / RUNS / run_name(loss, seed)
                requests[loss, seed] = TransferRequest.make(**shared | settings, run=run, quiet=self.quiet)
        return requests
