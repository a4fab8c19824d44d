"""Settings of the data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from sincere.catalog import PYTHON
from sincere.settings.record import MANY, Choices, Settings

DATA_HELP = (
    "a name (`sincere datasets` lists them), a folder of class folders, an .npz of images or features, a .parquet, or "
    "a folder that Hugging Face `datasets` has saved"
)
FILES = (".npz", ".parquet", ".pq")


class DataSettings(Settings):
    """The labelled images or features, and how they are read."""

    title: ClassVar[str] = "Data"

    source: Annotated[str, Choices((), paths=True)] = Field(
        default="digits", alias="data", description=f"Data set: {DATA_HELP}."
    )
    classes: tuple[str, ...] | None = None
    """Only these classes."""
    unknown_classes: tuple[str, ...] | None = None
    """Leave these classes out of training; evaluation measures how well their test images are told from the others."""
    imbalance: float | None = Field(default=None, ge=1, le=MANY)
    """Make the training classes long-tailed, as in CIFAR-10-LT: their sizes fall exponentially, in the order of the
    classes, and the first has this many times the training images of the last. Test images stay. By default all
    images are kept."""
    data_dir: Path | None = None
    """Folder of named data sets. Default: $SINCERE_HOME/datasets or ~/.cache/sincere/datasets."""
    size: int | None = Field(default=None, ge=1, le=4096)
    """Side of the network's input, in pixels. Default: the images' own; for photos 96 to 160, as large as they are; at
    least 96 with a frozen encoder."""
    skip_bad_images: bool = False
    """Leave out images that cannot be read, instead of stopping."""


def source_name(data: str) -> str:
    """Return the name of a data set: without its path, and without the .npz or .parquet of a file.

    Example:
        >>> source_name("data/cifar10.npz"), source_name("words.parquet"), source_name("digits")
        ('cifar10', 'words', 'digits')
    """
    path = Path(data.removeprefix(PYTHON)).resolve()
    return path.stem if path.suffix in FILES else path.name


def folder_name(data: str) -> str:
    """Return the name of a data set as folders of results have it: without spaces, which need quotes in a shell.

    Example:
        >>> folder_name("my photos/")
        'my-photos'
    """
    return "-".join(source_name(data).split())
