"""The settings of an evaluation, as on the command line and in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from sincere.records.config import MANY, Settings, named_folder

POSITIONAL: dict[str, Any] = {"positional": True}  # a field that is given without its name on the command line


class MeasureChoices(Settings):
    """What is measured."""

    metrics: tuple[str, ...] = Field(default=("margin", "knn", "linear"), min_length=1)
    """What to measure: margin, knn, linear and retrieval (slow for many training images)."""
    ks: tuple[Annotated[int, Field(ge=1, le=MANY)], ...] = Field(default=(1, 5), min_length=1)
    """Numbers of neighbours that vote."""
    probe: Literal["fast", "paper", "both"] = "fast"
    """Linear probe: fast is logistic regression on features, paper is SGD over augmented images, much slower."""
    probe_epochs: int = Field(default=100, ge=1, le=MANY)
    """Passes of the paper's probe over the images."""
    resamples: int = Field(default=1000, ge=100, le=MANY)
    """Bootstrap resamples of the test images."""

    def choices(self) -> dict[str, Any]:
        """Return what decides the figures of a model, as stored in results.json."""
        return {name: self.model_dump(mode="json")[name] for name in (*MeasureChoices.model_fields, "seed")}


class MeasureSettings(MeasureChoices):
    """How a model is measured."""

    data_dir: str | None = None
    """Where named data sets are kept. Default: as in training."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Of the resamples and of the images held out to choose a probe's regularisation."""
    report: bool = True
    """Write report.html and figures/ as well."""
    quiet: bool = False
    """Print nothing but warnings."""


class EvaluateRequest(MeasureSettings):
    """Measure the model of a run on the test part of its data: every figure with its interval.

    `sincere evaluate runs/digits-sincere-0` writes results.json, per_image.npz, embeddings.safetensors, the linear
    classifier and report.html into the run. A run that is not finished is measured at its last checkpoint.
    """

    run: Path = Field(json_schema_extra=POSITIONAL)
    """Folder of the run."""
    data: str | None = None
    """Where the run's data are now, if they have moved."""


class TransferRequest(MeasureSettings):
    """Measure the model of a run on another data set: probes and neighbours from its training part.

    `sincere transfer runs/digits-sincere-0 --to fashion-mnist` writes the same files as `sincere evaluate` into the
    run's transfer/fashion-mnist.
    """

    leading = ("to", "classes", "out")
    run: Path = Field(json_schema_extra=POSITIONAL)
    """Folder of the run."""
    to: str = Field()
    """The other data set: a name (`sincere datasets` lists them), a folder of class folders, or an .npz file."""
    classes: tuple[str, ...] | None = None
    """Only these classes of it."""
    skip_bad_images: bool = False
    """Leave out images that cannot be read, instead of stopping."""
    out: Path | None = None
    """Where to write. Default: the run's transfer/<data>."""

    _named = field_validator("out", mode="before")(named_folder)
