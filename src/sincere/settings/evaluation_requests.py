"""The requests of evaluating a run, on its own data and on others, and of writing a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, cast

from pydantic import Field, field_validator, model_validator

from sincere.catalog import LOGGERS
from sincere.recipes import TRANSFER_RECIPES
from sincere.records.config import read_config
from sincere.settings.data import DATA_HELP, DataSettings, folder_name
from sincere.settings.evaluation import EvaluationSettings
from sincere.settings.machine import DevicesSettings
from sincere.settings.record import Choices, Positional, Request, Seed, named_folder

TRANSFER = "transfer"  # folder in a run


class MeasureRequest(Request):
    """What evaluations on the run's own data and on other data share."""

    run: Annotated[Path, Positional()]
    """Folder of the run."""
    evaluation: EvaluationSettings = EvaluationSettings()
    machine: DevicesSettings = DevicesSettings()
    data_dir: Path | None = None
    """Folder of named data sets. Default: as in training."""
    seed: Seed = 0
    """Random seed of the bootstrap, and of the images held out to choose a probe's regularisation."""
    report: bool = True
    """Write report.html and figures/ as well."""
    quiet: bool = False
    """Print nothing but warnings, to stderr."""


class EvaluateRequest(MeasureRequest):
    """Evaluate the model of a run on the test part of its data: every metric with its confidence interval.

    Writes results.json, per_image.npz, embeddings.safetensors, the linear classifier and report.html into the run. A
    run that is not finished is evaluated at its last checkpoint.
    """

    verb: ClassVar[str] = "evaluate"
    most_used: ClassVar[tuple[str, ...]] = ("metrics", "ks", "probe", "data", "device", "report")
    examples: ClassVar[tuple[tuple[str, str], ...]] = (
        ("sincere evaluate runs/digits-sincere-0", "evaluates a run"),
        ("sincere evaluate runs/photos-sincere-0 --data /new/photos", "evaluates a run whose data have moved"),
    )

    data: Annotated[str | None, Choices((), paths=True)] = None
    """Where the run's data are now, if they have moved."""
    skip_bad_images: bool = False
    """Leave out images that cannot be read, instead of stopping; on, where the run was trained so."""
    log: tuple[Annotated[str, Choices(LOGGERS)], ...] = ()
    """Experiment loggers that get the results and the report, beside the metrics of the run if it was logged."""


class TransferRequest(MeasureRequest):
    """Evaluate the model of a run on another data set, with probes and neighbours from its training part.

    Writes the same files as `sincere evaluate` into the run's transfer/<data>.
    """

    verb: ClassVar[str] = "transfer"
    examples: ClassVar[tuple[tuple[str, str], ...]] = (
        ("sincere transfer runs/digits-sincere-0 --to fashion-mnist", "evaluates a model of digits on clothes"),
        ("sincere transfer runs/imagenet100-sincere-0 --recipe pets", "one of the paper's transfers"),
    )
    most_used: ClassVar[tuple[str, ...]] = ("to", "classes", "recipe", "out")

    to: Annotated[str | None, Choices((), paths=True)] = Field(
        default=None, description=f"The other data set: {DATA_HELP}."
    )
    classes: tuple[str, ...] | None = None
    """Only these classes of it."""
    skip_bad_images: bool = False
    """Leave out images that cannot be read, instead of stopping."""
    size: int | None = Field(default=None, ge=1, le=4096)
    """Side of the network's input, in pixels. Default: that of the run."""
    recipe: Annotated[str | None, Choices(TRANSFER_RECIPES)] = None
    """Take the settings of one of the paper's transfers, such as pets, except those given explicitly."""
    out: Path | None = None
    """Folder to write to. Default: the run's transfer/<data>, or transfer/recipe-<recipe>."""

    _out = field_validator("out", mode="before")(named_folder)

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if self.to is None and self.recipe is None:
            raise ValueError("to is missing: name the other data set, or a recipe")
        return self

    @classmethod
    def make_complete(cls, /, **settings: Any) -> Self:
        """Return a checked request; settings that are not given are those of the recipe for the run's loss, if any.

        Raises:
            DataError: There is no such run.
            InputValueError: A setting is wrong.
        """
        request = cls.make(**settings)
        if request.recipe is None:
            return request
        loss = str(read_config(request.run).get("loss"))
        return cls.make(**{**TRANSFER_RECIPES[request.recipe].of_loss(loss), **settings})

    def folder(self) -> Path:
        """Return the folder to write to."""
        source = folder_name(str(self.to)) if self.recipe is None else f"recipe-{self.recipe}"
        name = "-".join([source, *(self.classes or ())]).replace("/", "-")
        return self.out or self.run / TRANSFER / name

    def data(self, *, size: int, data_dir: Path | None) -> DataSettings:
        """Return how to load the other data set at the model's input size, which is 0 for features."""
        return DataSettings(
            data=cast(str, self.to),
            classes=self.classes,
            data_dir=self.data_dir or data_dir,
            size=self.size or size or None,
            skip_bad_images=self.skip_bad_images,
        )


class ReportRequest(Request):
    """Write report.html and figures/ again from stored results; nothing is trained or evaluated."""

    verb: ClassVar[str] = "report"
    takes_config: ClassVar[bool] = False
    examples: ClassVar[tuple[tuple[str, str], ...]] = (
        ("sincere report runs/digits-comparison", "writes the report of a comparison"),
    )

    folder: Annotated[Path, Positional()]
    """Folder that holds results.json or search.json: of a run, a comparison, a transfer or a search."""
    figures: bool = True
    """Also write the figures as PNG, SVG and PDF."""
