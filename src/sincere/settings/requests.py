"""The requests of training and comparing: all that these verbs can be told to do."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from sincere.catalog import LOGGERS, PYTHON
from sincere.errors import InputValueError
from sincere.loss_catalog import COMPARED_LOSSES, LOSSES, loss_name
from sincere.recipes import EXPERIMENTS, RUN_RECIPES
from sincere.records.comparison import RUNS
from sincere.records.config import CONFIG, read_config
from sincere.records.files import file_sha256
from sincere.records.search import SearchResults
from sincere.settings.data import DataSettings, folder_name
from sincere.settings.evaluation import EvaluationSettings
from sincere.settings.loss import LossSettings, NamedLossSettings
from sincere.settings.machine import ClusterSettings
from sincere.settings.model import ModelSettings
from sincere.settings.optimisation import BatchSettings, OptimisationSettings, ValidationSettings
from sincere.settings.record import MANY, Choices, Request, Seed, named_folder

# Settings that earlier versions did not store, with the values that they had.
EARLIER = {"unaugmented": 0.0, "queue": 0, "positives_in_denominator": None} | {
    own.name: own.default for loss in LOSSES.values() for own in loss.hyper_parameters
}
# Settings that say where a run is computed, not what it is: they may differ when it is resumed.
PLACEMENT = {"data", "data_dir", "weights", "device", "devices", "nodes", "threads"}


def different(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return values that are all different, of which there is one at least.

    Raises:
        ValueError: They are not.
    """
    if not values or len(set(values)) < len(values):
        raise ValueError(f"losses and seeds must be given, and each one once; got {' '.join(map(str, values))}")
    return values


class RunSettings(Request):
    """What decides the weights of a run, as stored in its config.toml: same settings, same CPU, same weights."""

    verb: ClassVar[str] = "train"

    data: DataSettings = DataSettings()
    loss: NamedLossSettings = Field(default_factory=NamedLossSettings)
    model: ModelSettings = ModelSettings()
    batches: BatchSettings = BatchSettings()
    optimisation: OptimisationSettings = OptimisationSettings()
    validation: ValidationSettings = ValidationSettings()
    machine: ClusterSettings = ClusterSettings()
    seed: Seed = 0
    """Random seed of the weights, the batches and the augmentation."""

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        check_views([self.loss.name], self.batches.n_views)
        self.loss.check_denominator([self.loss.name])
        return self

    def stored(self) -> dict[str, Any]:
        """Return the settings as config.toml and results.json hold them: by name, without those that are None."""
        return {name: value for name, value in self.flat().items() if value is not None}

    def hyper_parameters(self) -> dict[str, float]:
        """Return the values of the loss's own hyper-parameters."""
        return self.loss.hyper_parameters(self.loss.name)


class TrainRequest(RunSettings):
    """Learn an embedding from labelled images.

    A run is a folder with config.toml, metrics, checkpoints and the model.
    """

    examples: ClassVar[tuple[tuple[str, str], ...]] = (
        ("sincere train", "learns the bundled digits in less than a minute"),
        ("sincere train --data photos/ --encoder resnet18", "takes a folder of class folders"),
        ("sincere train --data cifar10.npz --classes cat dog --epochs 20", "takes two classes of a file of arrays"),
        ("sincere train --recipe cifar10-sincere", "one of the paper's runs"),
        ("sincere train --resume --out runs/digits-sincere-0", "resumes a run with its own settings"),
    )
    most_used: ClassVar[tuple[str, ...]] = (
        "data",
        "loss",
        "out",
        "epochs",
        "encoder",
        "batch_size",
        "temperature",
        "seed",
        "device",
        "resume",
    )

    recipe: Annotated[str | None, Choices(RUN_RECIPES)] = None
    """Take the settings of one of the paper's runs, such as cifar10-sincere, except those given explicitly."""
    out: Path | None = None
    """Folder of the run. Default: runs/<data>-<loss>-<seed>, or runs/<recipe>-<seed>."""
    resume: bool = False
    """Resume the run in that folder from its last checkpoint."""
    overwrite: bool = False
    """Replace a run that is already in that folder."""
    checkpoint_minutes: float = Field(default=5.0, ge=0, le=MANY)
    """Longest time between checkpoints; the end of an epoch writes one after a tenth of it."""
    log: tuple[Annotated[str, Choices(LOGGERS)], ...] = ()
    """Experiment loggers that also get the metrics: tensorboard, wandb, mlflow (extras of the same names). A resumed
    run keeps its own."""
    quiet: bool = False
    """Print nothing but warnings, to stderr."""

    _out = field_validator("out", mode="before")(named_folder)

    def folder(self) -> Path:
        """Return the folder of the run."""
        if self.recipe is not None:
            return self.out or Path("runs") / f"{self.recipe}-{self.seed}"
        return self.out or Path("runs") / f"{folder_name(self.data.source)}-{run_name(self.loss.name, self.seed)}"

    @classmethod
    def make_or_resume(cls, /, **settings: Any) -> Self:
        """Return a checked request; settings that are not given are those of a resumed run, or of a recipe."""
        request = cls.make(**settings)
        if request.recipe is not None:
            request = cls.make(**with_recipe(RUN_RECIPES.settings(request.recipe), settings))
        if request.resume and (request.folder() / CONFIG).exists():
            given = {name: value for name, value in settings.items() if name != "minutes"}  # the run has its epochs
            return cls.make(**{**EARLIER, **read_config(request.folder()), **given})
        return request

    def run_settings(self) -> RunSettings:
        """Return the part that decides the weights."""
        return RunSettings(**{name: getattr(self, name) for name in RunSettings.model_fields})


class CompareRequest(Request):
    """Train several losses on the same data under the same conditions, evaluate them, and write a report.

    Within a seed every loss has the same initial weights and the same batches. Finished runs are not repeated: the same
    command resumes a comparison that was interrupted.
    """

    verb: ClassVar[str] = "compare"
    examples: ClassVar[tuple[tuple[str, str], ...]] = (
        ("sincere compare", "compares three losses on the bundled digits in about a minute"),
        ("sincere compare --data photos/ --seeds 0 1 2", "takes a folder of class folders and three seeds"),
        ("sincere compare --data cifar10.npz --classes cat dog --losses sincere supcon", "two classes, two losses"),
        ("sincere compare --tuned runs/digits-search --seeds 0 1 2", "each loss at its own best of a search"),
        ("sincere compare --recipe cifar10", "the paper's experiment, each loss with its own settings"),
    )
    most_used: ClassVar[tuple[str, ...]] = (
        "data",
        "losses",
        "seeds",
        "out",
        "epochs",
        "encoder",
        "batch_size",
        "temperature",
        "device",
        "overwrite",
    )

    data: DataSettings = DataSettings()
    loss: LossSettings = Field(default_factory=LossSettings)
    model: ModelSettings = ModelSettings()
    batches: BatchSettings = BatchSettings()
    optimisation: OptimisationSettings = OptimisationSettings()
    validation: ValidationSettings = ValidationSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    machine: ClusterSettings = ClusterSettings()
    losses: tuple[Annotated[str, Choices(LOSSES, read=loss_name)], ...] = COMPARED_LOSSES
    """Losses to compare."""
    seeds: tuple[Seed, ...] = (0,)
    """Random seeds: one run of each loss for each seed. Three or more compare the losses, not only these models."""
    out: Path | None = None
    """Folder of the comparison. Default: runs/<data>-comparison, or runs/<recipe>-comparison."""
    recipe: Annotated[str | None, Choices(EXPERIMENTS)] = None
    """Take the settings of one of the paper's experiments, such as cifar10, with those of each loss and its seeds,
    except those given explicitly."""
    tuned: Path | None = None
    """Folder of a `sincere search`: each loss has its own best settings of it. The others are those of the search, too,
    except those given explicitly."""
    overwrite: bool = False
    """Start over, in place of a comparison that is already in that folder."""
    checkpoint_minutes: float = Field(default=5.0, ge=0, le=MANY)
    """Longest time between checkpoints."""
    log: tuple[Annotated[str, Choices(LOGGERS)], ...] = ()
    """Experiment loggers that also get the metrics of each run, its results, and the report of the comparison."""
    quiet: bool = False
    """Print nothing but warnings, to stderr."""

    _out = field_validator("out", mode="before")(named_folder)

    _different = field_validator("losses", "seeds")(different)

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        check_views(self.losses, self.batches.n_views)
        self.loss.check_denominator(self.losses)
        if self.recipe is not None and self.tuned is not None:
            raise ValueError("recipe and tuned both say what settings each loss has; give one of them")
        return self

    def folder(self) -> Path:
        """Return the folder of the comparison."""
        return self.out or Path("runs") / f"{self.recipe or folder_name(self.data.source)}-comparison"

    @classmethod
    def make_complete(cls, /, **settings: Any) -> Self:
        """Return a checked request; settings that are not given are those of the recipe or the search, if any.

        Raises:
            DataError: There is no finished search.
            InputValueError: A setting is wrong, or each loss has its own value of it and it cannot be given.
        """
        request = cls.make(**settings)
        if request.recipe is not None:
            return cls._by_recipe(request.recipe, settings)
        if request.tuned is None:
            return request
        search = SearchResults.read(request.tuned)
        searched = {name for found in search.losses for name in found.best}
        if both := sorted(searched & settings.keys()):
            raise InputValueError(f"compare: {both[0]} was searched; leave it out, or leave out tuned")
        known = {setting.name for setting in cls.settings()} - {"validation", "validate_every", "device", "threads"}
        shared = {name: value for name, value in search.settings.items() if name in known and name not in searched}
        losses = [found.loss for found in search.losses]
        return cls.make(**{**shared, "losses": losses, **settings})

    @classmethod
    def _by_recipe(cls, name: str, given: dict[str, Any]) -> Self:
        """Return the request of a recipe, except for the settings given explicitly."""
        recipe = EXPERIMENTS[name]
        if both := sorted(recipe.own_settings() & given.keys()):
            remedy = "leave it out, or name single runs: sincere train --recipe"
            raise InputValueError(f"compare: in the recipe {name} each loss has its own {both[0]}; {remedy}")
        shared = {**recipe.settings, **recipe.evaluation, "losses": list(recipe.losses), "seeds": list(recipe.seeds)}
        return cls.make(**with_recipe(shared, given))

    def own_settings(self) -> dict[str, dict[str, Any]]:
        """Return the settings of each loss by its recipe or its search; empty without one.

        Raises:
            DataError: There is no finished search, or it is not about a loss.
        """
        if self.recipe is not None:
            own = EXPERIMENTS[self.recipe].losses
            return {loss: own.get(loss, {}) for loss in self.losses} if any(own.values()) else {}
        if self.tuned is None:
            return {}
        search = SearchResults.read(self.tuned)
        return {loss: search.best(loss) for loss in self.losses}

    def run(self, loss: str, seed: int, *, resume: bool, epochs: int | None = None) -> TrainRequest:
        """Return the request for one of its runs; `epochs` take the place of minutes, so that all runs have as many."""
        length = {} if epochs is None else {"epochs": epochs, "minutes": None}
        request = TrainRequest(
            data=self.data,
            loss=NamedLossSettings(**self.loss.suited_to(loss), loss=loss),
            model=self.model,
            batches=self.batches.model_copy(update=common_views(self.losses, self.batches.n_views)),
            optimisation=self.optimisation.model_copy(update=length),
            validation=self.validation,
            machine=self.machine,
            seed=seed,
            out=self.folder() / RUNS / run_name(loss, seed),
            resume=resume,
            checkpoint_minutes=self.checkpoint_minutes,
            log=self.log,
            quiet=self.quiet,
        )
        own = self.own_settings()
        return request.replaced(**own[loss]) if own else request

    def identity(self) -> dict[str, Any]:
        """Return what decides its results, to tell whether it has been done already."""
        values = self.flat()
        for name in ("recipe", "out", "overwrite", "checkpoint_minutes", "log", "quiet"):
            del values[name]
        source, weights = Path(self.data.source), self.model.weights
        values["data"] = str(source.resolve()) if source.exists() else self.data.source
        if weights is not None:
            values.update(weights=str(weights.resolve()), weights_sha256=file_sha256(weights))
        return {**values, "tuned": self.own_settings() or None}


def wants_frozen(settings: RunSettings | CompareRequest) -> bool | None:
    """Return whether the encoder is to be frozen; None where that depends on the data."""
    model = settings.model
    if model.freeze is not None:
        return model.freeze
    return None if model.may_be_default and settings.optimisation.encoder_lr is None else False


def run_name(loss: str, seed: int) -> str:
    """Return the name of the folder of a run, from its loss and seed.

    Example:
        >>> run_name("sincere", 0), run_name("python:my_loss@1f2e3d4c5b6a", 0)
        ('sincere-0', 'my_loss@1f2e3d4c5b6a-0')
        >>> run_name("sincere+0.5*infonce", 0)  # not every file system has names with a star
        'sincere+0.5xinfonce-0'
    """
    return f"{loss.removeprefix(PYTHON).replace('*', 'x')}-{seed}"


def is_self_supervised(loss: str) -> bool:
    """Tell whether a loss takes the views of an image as its only positives."""
    return loss in LOSSES and LOSSES[loss].needs_views


def common_views(losses: Iterable[str], n_views: int | None) -> dict[str, int]:
    """Return the number of views that all losses have because one of them needs it; empty where none does."""
    return {"n_views": 2} if n_views is None and any(map(is_self_supervised, losses)) else {}


def check_views(losses: Iterable[str], n_views: int | None) -> None:
    """Raise for a self-supervised loss without a second view, which is its only positive.

    Raises:
        ValueError: It needs more views.
    """
    for loss in losses:
        if is_self_supervised(loss) and n_views == 1:
            reason = "whose only positives are views of the same image"
            raise ValueError(f"n_views must be at least 2 for {loss}, {reason}; got {n_views}")


def with_recipe(recipe: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a recipe, except those given explicitly; minutes take the place of its epochs.

    Example:
        >>> with_recipe({"epochs": 800, "dim": 128}, {"minutes": 5})
        {'dim': 128, 'minutes': 5}
    """
    kept = {name: value for name, value in recipe.items() if name != "epochs" or given.get("minutes") is None}
    return {**kept, **given}


def differing(one: RunSettings, other: RunSettings) -> list[str]:
    """Return the names of the settings in which two runs differ, except for where they are computed."""
    a, b = one.flat(), other.flat()
    return [name for name in a if name not in PLACEMENT and a[name] != b[name]]
