"""Requests of the commands that use the model of a run: predict, embed, nearest, labels, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from sincere.catalog import CLASSIFIERS, UNKNOWN_SCORES
from sincere.settings.machine import DeviceSettings, DevicesSettings
from sincere.settings.record import MANY, Choices, Positional, Request, named_folder


class UseRequest(Request):
    """What the verbs that use the model of a run on new images share."""

    takes_config: ClassVar[bool] = False

    run: Annotated[Path, Positional()]
    """Folder of the run, or its model.safetensors."""
    images: Annotated[tuple[Path, ...], Positional()] = Field(min_length=1)
    """Image files, and folders of them."""
    machine: DeviceSettings = DeviceSettings()
    skip_bad_images: bool = False
    """Leave out images that cannot be read, with a note, instead of stopping."""
    quiet: bool = False
    """Print nothing but results and warnings."""


class ClassifyRequest(UseRequest):
    """What the commands that tell classes and unknown images share."""

    false_alarms: float = Field(default=0.05, ge=0, le=1)
    """Share of images of known classes that may be called unknown by mistake; calibrated on the run's test images."""
    unknown_score: Annotated[str, Choices(UNKNOWN_SCORES)] = "nearest"
    """What makes an image unknown: little similarity to the nearest training image, or a large Mahalanobis distance to
    the nearest class mean."""


class PredictRequest(ClassifyRequest):
    """Classify images with the model of a run.

    Prints the class of each image, how sure the classifier is (its share of the votes, not a calibrated probability),
    whether the image seems to be of an unknown class, and the training images that are nearest.
    """

    verb: ClassVar[str] = "predict"
    most_used: ClassVar[tuple[str, ...]] = ("classifier", "format", "k", "false_alarms", "skip_bad_images")
    examples: ClassVar[tuple[tuple[str, str], ...]] = (
        ("sincere predict runs/photos-sincere-0 new.jpg", "classifies a photo"),
        ("sincere predict runs/photos-sincere-0 inbox/ --format csv > predicted.csv", "classifies a folder of photos"),
    )

    classifier: Annotated[str, Choices(CLASSIFIERS)] = "knn"
    """Classifier."""
    format: Literal["table", "json", "csv"] = "table"
    """What is printed."""
    k: int = Field(default=3, ge=1, le=MANY)
    """Number of nearest training images that are listed."""


class EmbedRequest(UseRequest):
    """Write the embeddings of images to a file, with their names.

    Images are read, embedded and written batch by batch, so that a folder of any size fits into memory.
    """

    verb: ClassVar[str] = "embed"
    most_used: ClassVar[tuple[str, ...]] = ("out", "skip_bad_images")
    examples: ClassVar[tuple[tuple[str, str], ...]] = (
        ("sincere embed runs/photos-sincere-0 inbox/ --out inbox.npz", "arrays embeddings (n, d) and names (n,)"),
        ("sincere embed runs/photos-sincere-0 inbox/ --out inbox.parquet", "columns path and embedding"),
    )

    machine: DevicesSettings = DevicesSettings()
    out: Path
    """File to write: .npz, or .parquet (needs pyarrow)."""
    overwrite: bool = False
    """Replace the file if it exists."""


class NearestRequest(ClassifyRequest):
    """Show the training images that are nearest to images, on a page for the browser.

    An image that seems to be of an unknown class is marked as in `predict`. Thumbnails come from the data of the run;
    where these are gone, the page has names alone.
    """

    verb: ClassVar[str] = "nearest"
    most_used: ClassVar[tuple[str, ...]] = ("k", "out", "data")
    examples: ClassVar[tuple[tuple[str, str], ...]] = (
        ("sincere nearest runs/photos-sincere-0 new.jpg", "writes nearest.html"),
    )

    k: int = Field(default=10, ge=1, le=100)
    """Number of nearest training images."""
    out: Path = Path("nearest.html")
    """Page to write."""
    data: Annotated[str | None, Choices((), paths=True)] = None
    """Where the run's data are now, if they have moved."""


class LabelsRequest(Request):
    """List the training and test images of a run whose label may be wrong, the most doubtful first.

    The nearest others vote on each label: by features of the encoder where it was frozen, because these have not seen
    the labels, else by the embeddings. Writes label_issues.csv into the run, and updates its report.
    """

    verb: ClassVar[str] = "labels"
    takes_config: ClassVar[bool] = False
    most_used: ClassVar[tuple[str, ...]] = ("k", "data")
    examples: ClassVar[tuple[tuple[str, str], ...]] = (
        ("sincere labels runs/photos-sincere-0", "lists photos that may be in a wrong folder"),
    )

    run: Annotated[Path, Positional()]
    """Folder of the run."""
    machine: DeviceSettings = DeviceSettings()
    k: int | None = Field(default=None, ge=1, le=MANY)
    """Number of neighbours that vote. Default: half of the median class size, 5 to 200."""
    data: Annotated[str | None, Choices((), paths=True)] = None
    """Where the run's data are now, if they have moved."""
    quiet: bool = False
    """Print nothing but warnings, to stderr."""


class ExportRequest(Request):
    """Write the model of a run for use elsewhere: as one ONNX file, or as a folder like those on the Hugging Face hub.

    The ONNX graph takes decoded pixels of any height and width and returns embeddings: cropping, resizing and scaling
    are part of it. Where onnxruntime is installed, its embeddings are compared with those of PyTorch first. The folder
    holds model.safetensors, model.json, what classifies new images, and a model card with data, metrics and limits.
    """

    verb: ClassVar[str] = "export"
    takes_config: ClassVar[bool] = False
    most_used: ClassVar[tuple[str, ...]] = ("out", "format", "overwrite")
    examples: ClassVar[tuple[tuple[str, str], ...]] = (
        ("sincere export runs/photos-sincere-0 --out photos.onnx", "writes an ONNX file"),
        ("sincere export runs/photos-sincere-0 --format hub --out photos-model", "writes a folder with a model card"),
    )

    run: Annotated[Path, Positional()]
    """Folder of the run, or its model.safetensors."""
    out: Path
    """File to write, .onnx; or the folder."""
    format: Literal["onnx", "hub"] = "onnx"
    """Format: an ONNX file, or a folder as on the Hugging Face hub."""
    reference: bool = True
    """Also write the embeddings and file names of the training images into the folder: new images are classified by
    them."""
    overwrite: bool = False
    """Replace the file, or the files in the folder, if they exist."""
    quiet: bool = False
    """Print nothing but warnings, to stderr."""

    _out = field_validator("out", mode="before")(named_folder)
