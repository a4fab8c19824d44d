"""The request of `sincere search`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr, field_validator, model_validator

from sincere.catalog import PYTHON
from sincere.errors import InputValueError
from sincere.loss_catalog import COMPARED_LOSSES, LOSSES, loss_name
from sincere.records.files import file_sha256
from sincere.records.search import TRIALS, Dimension, Value
from sincere.settings.data import DataSettings, folder_name
from sincere.settings.loss import LossSettings
from sincere.settings.machine import MachineSettings
from sincere.settings.model import ModelSettings
from sincere.settings.optimisation import BatchSettings, OptimisationSettings
from sincere.settings.record import MANY, Choices, Request, Seed, named_folder
from sincere.settings.requests import (
    PLACEMENT,
    RunSettings,
    TrainRequest,
    check_views,
    common_views,
    different,
    run_name,
)
from sincere.settings.search_space import parse_space

CHECKS = 8  # of the live 1-NN accuracy in a trial, unless asked otherwise
Grid = Literal["paper", "space"]


class SearchRequest(Request):
    """Find the best hyper-parameters of each loss: the highest 1-NN accuracy on held-out training images.

    Every loss has the same number of trials and the same seeds; the test part is not used. The same command resumes a
    search that was interrupted. Afterwards, `sincere compare --tuned` compares the losses, each at its own best.
    """

    verb: ClassVar[str] = "search"
    examples: ClassVar[tuple[tuple[str, str], ...]] = (
        ("sincere search --losses sincere supcon --trials 8 --epochs 15", "searches temperature and learning rate"),
        ("sincere search --space temperature=0.05:0.5 weight_decay=0.001:0.1", "sets ranges"),
        ("sincere search --grid space --space temperature=0.05,0.1 head=mlp,linear", "tries every combination"),
        ("sincere search --storage postgresql://me@db/studies --out runs/a", "shares its study with other machines"),
        ("sincere search --worker --storage postgresql://me@db/studies --study a", "helps, on another machine"),
        ("sincere compare --tuned runs/digits-search --seeds 0 1 2", "compares the losses, each at its own best"),
    )
    most_used: ClassVar[tuple[str, ...]] = (
        "data",
        "losses",
        "trials",
        "grid",
        "space",
        "epochs",
        "out",
        "final",
        "storage",
        "worker",
    )

    data: DataSettings = DataSettings()
    loss: LossSettings = Field(default_factory=LossSettings)
    model: ModelSettings = ModelSettings()
    batches: BatchSettings = BatchSettings()
    optimisation: OptimisationSettings = OptimisationSettings()
    machine: MachineSettings = MachineSettings()
    losses: tuple[Annotated[str, Choices(LOSSES, read=loss_name)], ...] = Field(default=COMPARED_LOSSES, min_length=1)
    """Losses to search for."""
    trials: int = Field(default=20, ge=1, le=MANY)
    """Trials of each loss; the same command with more adds to them. A grid has as many as it has points."""
    grid: Grid | None = None
    """Try every combination of values: the paper's for the data set, or those of --space. Default: values that earlier
    trials suggest (TPE)."""
    space: tuple[str, ...] | None = None
    """What to search: NAME=LOW:HIGH, or NAME=A,B,C. Default: temperature, learning-rate and the loss's own
    hyper-parameters, except those given a value. Also: weight-decay, batch-size, epochs, head and others."""
    pruner: Literal["median", "halving", "none"] | None = None
    """Stop trials early that are worse by their live 1-NN accuracy than the median of the others, or by successive
    halving. Default: median; none for a grid."""
    validation: float = Field(default=0.1, gt=0, lt=1)
    """Fraction of the training images held out, stratified, to decide."""
    validate_every: int | None = Field(default=None, ge=1, le=MANY)
    """Epochs between live 1-NN checks. Default: an eighth of all."""
    seeds: tuple[Seed, ...] = Field(default=(0,), min_length=1)
    """Random seeds: a trial is the mean over them. The first one decides about pruning."""
    storage: str | None = None
    """Database of the study, shared by any number of workers, such as postgresql://user@host/name. Default: a SQLite
    file in the folder."""
    study: str | None = Field(default=None, min_length=1, max_length=200)
    """Name of the study in the database. Default: that of the folder."""
    worker: bool = False
    """Only help with the trials of a study that another `sincere search` has started, with its settings."""
    final: bool = False
    """Afterwards train each loss on all training images with its best settings, and evaluate it on the test part."""
    out: Path | None = None
    """Folder of the search. Default: runs/<data>-search."""
    overwrite: bool = False
    """Start over, in place of a search that is already in that folder."""
    checkpoint_minutes: float = Field(default=5.0, ge=0, le=MANY)
    """Longest time between checkpoints of a trial."""
    quiet: bool = False
    """Print nothing but warnings, to stderr."""

    _out = field_validator("out", mode="before")(named_folder)

    _different = field_validator("losses", "seeds")(different)
    _given: frozenset[str] = PrivateAttr(frozenset())

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        check_views(self.losses, self.batches.n_views)
        self.loss.check_denominator(self.losses)
        if self.optimisation.minutes is not None:
            raise ValueError("minutes cannot be searched with: all trials have the same number of epochs; set epochs")
        space = self.asked_space()
        if self.grid == "paper" and space:
            raise ValueError("space is not for the paper's grid; leave it out, or choose the grid `space`")
        if self.grid == "space":
            if not space:
                raise ValueError("the grid `space` needs space, as in temperature=0.05,0.1")
            for dimension in space.values():
                if not dimension.values:
                    example = f"{dimension.name}={dimension.low:g},{dimension.high:g}"
                    raise ValueError(f"space: a grid needs values in place of a range, as in {example}")
        if self.study is not None and "/" in self.study:
            raise ValueError(f"study must be a name without a slash; got {self.study!r}")
        if self.worker and self.storage is None and self.out is None:
            raise ValueError("a worker needs the study of another search: set storage, or out if it is on this machine")
        if self.worker and (self.overwrite or self.final):
            raise ValueError(
                "a worker only helps with trials; overwrite and final are for the search that started them"
            )
        return self

    def folder(self) -> Path:
        """Return the folder of the search."""
        return self.out or Path("runs") / f"{folder_name(self.data.source)}-search"

    def study_name(self, loss: str) -> str:
        """Return the name of the study of a loss."""
        return f"{self.common_name()}/{loss.removeprefix(PYTHON)}"

    def common_name(self) -> str:
        """Return the name that the studies of all losses share."""
        return self.study or self.folder().resolve().name

    @classmethod
    def make(cls, /, **settings: Any) -> Self:
        """Return a checked request that remembers which settings were given: they are not searched.

        Raises:
            InputValueError: A setting is wrong, or given a value and searched, too.
        """
        request = super().make(**settings)
        request._given = frozenset(name for name, value in settings.items() if value is not None)
        if both := sorted(request.asked_space().keys() & request._given):
            raise InputValueError(f"search: {both[0]} is given a value and searched, too; leave out one of them")
        return request

    def fixed(self) -> frozenset[str]:
        """Return the settings that were given a value."""
        return self._given

    def asked_space(self) -> dict[str, Dimension]:
        """Return what `--space` asks for."""
        return parse_space(self.space or ())

    def shared_settings(self) -> dict[str, Any]:
        """Return the settings that all trials share, by name, without those of the search itself."""
        known = {setting.name for setting in RunSettings.settings()} - {"loss", "seed"}
        own = {"validation": self.validation, "validate_every": self.validate_every}
        values = {**self.flat(), **own, **common_views(self.losses, self.batches.n_views)}
        return {name: value for name, value in values.items() if name in known and value is not None}

    def identity(self) -> dict[str, Any]:
        """Return what decides the value of a trial with given settings, apart from the data."""
        values = {name: value for name, value in self.shared_settings().items() if name not in PLACEMENT}
        if self.model.weights is not None:
            values["weights_sha256"] = file_sha256(self.model.weights)
        return {**values, "seeds": list(self.seeds), "grid": self.grid is not None}

    def trial(self, loss: str, settings: Mapping[str, Value], seed: int, *, name: str) -> TrainRequest:
        """Return the request for one run of a trial, in a folder of this name."""
        values = {**self.shared_settings(), **self.loss.suited_to(loss), **settings, "loss": loss, "seed": seed}
        return TrainRequest.make(
            **values,
            out=self.folder() / TRIALS / name / run_name(loss, seed),
            checkpoint_minutes=self.checkpoint_minutes,
            quiet=True,
        )
