"""The settings of a training run, as on the command line, in Python and in config.toml.

None means: chosen for the data set or the machine. A run stores what was chosen.
"""

from __future__ import annotations

import hashlib
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from sincere.errors import DataError, InputValueError
from sincere.records.files import read_bytes, write_atomic

CONFIG = "config.toml"
WHERE = {
    "data",
    "data_dir",
    "device",
    "devices",
    "nodes",
    "threads",
}  # settings that say where a run is, not what it is
MOST_THREADS = 256
MANY = 10**6  # more than anyone needs, and far from where numbers overflow
_SEAL = "# SHA-256 of the lines above: "


class Settings(BaseModel):
    """Settings of a verb: fields with help texts, checked in one wording."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)
    leading: ClassVar[tuple[str, ...]] = ()  # fields that stand first in the help

    @classmethod
    def make(cls, /, **settings: Any) -> Self:
        """Return checked settings.

        Raises:
            InputValueError: One line that names the setting, what it must be, and what came.
        """
        for name, value in settings.items():
            if isinstance(value, str | Path) and "\0" in str(value):
                raise InputValueError(f"settings: {name} must not contain a null character; got {value!r}")
        try:
            return cls(**settings)
        except ValidationError as error:
            raise InputValueError(one_line(error, cls)) from error


class TrainSettings(Settings):
    """What decides a run's weights: on the same processor, the same settings give the same weights."""

    data: str = "digits"
    """What to learn from: a name (`sincere datasets` lists them), a folder of class folders, or an .npz file."""
    classes: tuple[str, ...] | None = None
    """Only these classes."""
    data_dir: str | None = None
    """Where named data sets are kept. Default: $SINCERE_HOME/datasets or ~/.cache/sincere/datasets."""
    skip_bad_images: bool = False
    """Leave out images that cannot be read, instead of stopping."""
    size: int | None = Field(default=None, ge=1, le=4096)
    """Side of the network's input, in pixels. Default: the images' own, or 32 where they vary."""
    loss: str = "sincere"
    """Loss to minimise: sincere, supcon, eps-supinfonce or infonce."""
    temperature: float = Field(default=0.1, gt=0)
    """Divides the similarities; smaller looks harder at the nearest images."""
    epsilon: float = 0.25
    """Margin of eps-supinfonce; the other losses have none."""
    encoder: str = "small"
    """Network: small, resnet18, resnet34, resnet50, resnet101, or timm:NAME."""
    head: str = "mlp"
    """What stands between encoder and loss: mlp, linear or none."""
    dim: int = Field(default=128, ge=1, le=65536)
    """Length of an embedding."""
    pretrained: bool = False
    """Start from ImageNet weights (ResNets and timm)."""
    epochs: int | None = Field(default=None, ge=1, le=MANY)
    """Passes over the training images. Default: 100."""
    batch_size: int | None = Field(default=None, ge=2, le=MANY)
    """Images in a batch; each gives n-views embeddings. Default: 512, digits 256, less for small data sets."""
    micro_batch: int | None = Field(default=None, ge=1, le=MANY)
    """Images that go through the network at once: a batch may be far larger than memory, its gradient stays exact but
    for batch norms, whose statistics are those of the piece. Default: the whole batch."""
    norm: Literal["batch", "group"] = "batch"
    """Normalisation of the network: batch, or group, which looks at one image alone."""
    n_views: int = Field(default=2, ge=1, le=1024)
    """Augmented views of each image."""
    augmentation: str | None = None
    """How views are made: paper, crops, light, digits or none. Default: what suits the data set."""
    sampler: str = "auto"
    """How batches are filled: shuffle, balanced or p-by-k. auto is p-by-k for many classes, else shuffle."""
    optimizer: str | None = None
    """sgd, the paper's, or muon: orthogonalised updates, which need fewer epochs. Default: muon for small, else sgd."""
    learning_rate: float | None = Field(default=None, gt=0)
    """Peak learning rate. Default: 0.5 for sgd, 0.06 for muon."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Of the optimiser."""
    nesterov: bool = False
    """Nesterov's form of momentum for sgd; muon always has it."""
    weight_decay: float | None = Field(default=None, ge=0)
    """Pull of the weights towards 0. Default: 1e-4 for sgd; 0.17, times the learning rate, for muon."""
    decay_norms_and_biases: bool = True
    """Whether sgd's weight decay also pulls on norms and biases, as in the paper; muon's never does."""
    warmup_epochs: float | None = Field(default=None, ge=0, le=MANY)
    """Epochs in which the learning rate rises. Default: 10, at most a tenth of all."""
    clip_norm: float | None = Field(default=None, gt=0)
    """Largest norm of the gradient; larger ones are scaled down. Default: no limit."""
    validation: float = Field(default=0.0, ge=0, lt=1)
    """Share of the training images that are held out, stratified, to choose the best checkpoint. The paper's: 0.1."""
    validate_every: int = Field(default=10, ge=1, le=MANY)
    """Epochs between live 1-NN checks."""
    early_stop: int | None = Field(default=None, ge=1, le=MANY)
    """Stop after this many live checks without a better 1-NN. Needs validation. Default: never."""
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed"] = "auto"
    """Arithmetic: auto takes bfloat16 where the hardware has it."""
    channels_last: bool = True
    """Keep the channels of a place together in memory, which convolutions gain from."""
    compile: bool = False
    """Compile the network with torch.compile: slower to start, perhaps faster to run."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
    threads: int | None = Field(default=None, ge=1, le=MOST_THREADS)
    """Processor threads of the network. Default: all, or 1 for tiny images, where threads only wait for each other."""
    devices: int = Field(default=1, ge=1, le=1024)
    """Devices, or processes on a CPU, of each machine: they share every batch, and its loss is that of the whole."""
    nodes: int = Field(default=1, ge=1, le=65536)
    """Machines."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Of everything random."""

    @field_validator("data", "data_dir", mode="before")
    @classmethod
    def _text(cls, value: object) -> object:
        return str(value) if isinstance(value, Path) else value

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs momentum above 0")
        return self


def named_folder(value: object) -> object:
    """Return the name of a folder to write to, but not the current one, which is what an empty name means.

    Raises:
        ValueError: It is.
    """
    if value is not None and not str(value).strip(". "):
        raise ValueError("out must be the name of a folder")
    return value


class TrainRequest(TrainSettings):
    """Learn an embedding from labelled images. A run is a folder with config.toml, metrics, checkpoints and the model.

    `sincere train` learns the embedded digits in about a minute.

    `sincere train --data photos/ --encoder resnet18` takes a folder of class folders.

    `sincere train --data cifar10.npz --classes cat dog --epochs 20` takes two classes of a file of arrays.

    `sincere train --resume --out runs/digits-sincere-0` goes on after a kill; the settings are the run's.
    """

    leading = ("data", "loss", "out", "epochs", "encoder", "seed")
    out: Path | None = None
    """Folder of the run. Default: runs/<data>-<loss>-<seed>."""
    resume: bool = False
    """Go on with the run in that folder from its last checkpoint."""
    overwrite: bool = False
    """Remove a run that is already in that folder."""
    checkpoint_minutes: float = Field(default=5.0, ge=0, le=MANY)
    """Longest time between checkpoints; the end of an epoch writes one after a tenth of it."""
    tensorboard: bool = False
    """Also write TensorBoard files (needs the extra: pip install 'sincere[tensorboard]')."""
    quiet: bool = False
    """Print nothing but warnings."""

    _named = field_validator("out", mode="before")(named_folder)

    def folder(self) -> Path:
        """Return the folder of the run."""
        return self.out or Path("runs") / f"{source_name(self.data)}-{self.loss}-{self.seed}"

    def settings(self) -> TrainSettings:
        """Return the part that decides the weights."""
        return TrainSettings(**{name: getattr(self, name) for name in TrainSettings.model_fields})


def source_name(data: str) -> str:
    """Return the name of a data set for folders: without its path, and without the .npz of a file.

    Example:
        >>> source_name("data/cifar10.npz"), source_name("digits")
        ('cifar10', 'digits')
    """
    path = Path(data).resolve()
    return path.stem if path.suffix == ".npz" else path.name


def one_line(error: ValidationError, record: type[BaseModel]) -> str:
    """Return the first of pydantic's findings in the package's wording."""
    first = error.errors()[0]
    name = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        near = get_close_matches(name, record.model_fields, n=1)
        return f"settings: {name} is not a setting" + (f"; did you mean {near[0]!r}?" if near else "")
    if first["type"] == "value_error":
        return f"settings: {first['msg'].removeprefix('Value error, ')}"
    return f"settings: {name} {first['msg'][0].lower()}{first['msg'][1:]}; got {first['input']!r}"


def write_config(settings: TrainSettings, folder: Path) -> None:
    """Write config.toml with a checksum in its last line; settings that are None are left out."""
    text = tomli_w.dumps(settings.model_dump(exclude_none=True, mode="json"))
    write_atomic(folder / CONFIG, f"{text}{_SEAL}{_sha256(text)}\n")


def read_config(folder: Path) -> dict[str, Any]:
    """Return the settings of a run, unchecked.

    Raises:
        DataError: There are none, or they were changed since the run began.
    """
    path = folder / CONFIG
    text = _read_text(path)
    content, _, stored = text.partition(_SEAL)
    if stored.strip() != _sha256(content):
        remedy = "restore it, or start over with --overwrite"
        raise DataError(f"{path}: was damaged or changed since the run began: its checksum does not match; {remedy}")
    return _parsed(path, text)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def read_settings(path: Path) -> dict[str, Any]:
    """Return the settings in a TOML file, unchecked.

    Raises:
        DataError: There is no such file, or it is no TOML.
    """
    return _parsed(path, _read_text(path))


def _read_text(path: Path) -> str:
    try:
        return read_bytes(path).decode("utf-8", "surrogateescape")  # names of files may be of any bytes
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also of numbers with thousands of digits
        raise DataError(f"{path}: is not readable TOML ({error})") from error


def differing(one: TrainSettings, other: TrainSettings) -> list[str]:
    """Return the names of the settings in which two runs differ, but for where things are."""
    names = [name for name in TrainSettings.model_fields if name not in WHERE]
    return [name for name in names if getattr(one, name) != getattr(other, name)]
