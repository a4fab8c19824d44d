"""The settings of a comparison, as on the command line and in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from sincere.errors import DataError
from sincere.records.config import MANY, TrainRequest, TrainSettings, named_folder, source_name
from sincere.records.files import read_json, write_json
from sincere.records.measuring import MeasureChoices, MeasureSettings
from sincere.records.results import REPORT, Results

ONE_EACH = {"loss": "losses", "seed": "seeds"}  # settings of a run that a comparison has several of
REQUEST, RUNS = "comparison.json", "runs"


class CompareRequest(MeasureChoices, TrainSettings):
    """Train several losses on the same data under the same conditions, measure them, and write a report.

    Within a seed every loss has the same initial weights and the same batches. Runs that are finished are not repeated:
    the same command goes on where it was interrupted.

    `sincere compare` compares three losses on the embedded digits in about two minutes.

    `sincere compare --data photos/ --encoder resnet18 --seeds 0 1 2` takes a folder of class folders and three seeds.

    `sincere compare --data cifar10.npz --classes cat dog --losses sincere supcon --epochs 20` takes two classes and two
    losses.
    """

    leading = ("data", "losses", "seeds", "out", "epochs", "encoder")
    losses: tuple[str, ...] = ("sincere", "supcon", "eps-supinfonce")
    """Losses to compare: sincere, supcon, eps-supinfonce, infonce."""
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**63)], ...] = (0,)
    """One run of each loss for each seed."""
    out: Path | None = None
    """Folder of the comparison. Default: runs/<data>-comparison."""
    overwrite: bool = False
    """Begin again, in place of a comparison that is already in that folder."""
    checkpoint_minutes: float = Field(default=5.0, ge=0, le=MANY)
    """Longest time between checkpoints."""
    quiet: bool = False
    """Print nothing but warnings."""

    _named = field_validator("out", mode="before")(named_folder)

    @model_validator(mode="before")
    @classmethod
    def _several(cls, values: Any) -> Any:
        for one, several in ONE_EACH.items():
            if isinstance(values, dict) and one in values:
                raise ValueError(f"{one} is not a setting of a comparison; did you mean {several!r}?")
        return values

    @field_validator("devices", "nodes")
    @classmethod
    def _alone(cls, value: int) -> int:
        if value != 1:
            raise ValueError("devices and nodes must be 1 in a comparison; `sincere train` takes several")
        return value

    @field_validator("losses", "seeds")
    @classmethod
    def _different(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if not values or len(set(values)) < len(values):
            raise ValueError(f"losses and seeds must be given, and each one once; got {' '.join(map(str, values))}")
        return values

    def folder(self) -> Path:
        """Return the folder of the comparison."""
        return self.out or Path("runs") / f"{source_name(self.data)}-comparison"

    def run(self, loss: str, seed: int, *, resume: bool) -> TrainRequest:
        """Return what one of its runs is asked for."""
        shared = {name: getattr(self, name) for name in TrainSettings.model_fields if name not in ONE_EACH}
        return TrainRequest(
            **shared,
            loss=loss,
            seed=seed,
            out=self.folder() / RUNS / f"{loss}-{seed}",
            resume=resume,
            checkpoint_minutes=self.checkpoint_minutes,
            quiet=self.quiet,
        )

    def measuring(self) -> MeasureSettings:
        """Return how its models are measured."""
        chosen = {name: getattr(self, name) for name in MeasureChoices.model_fields}
        return MeasureSettings(**chosen, data_dir=self.data_dir, device=self.device, quiet=self.quiet)

    def identity(self) -> dict[str, Any]:
        """Return what decides its results, for telling whether it has been done already."""
        names = {"out", "overwrite", "checkpoint_minutes", "quiet", *ONE_EACH}
        return {**self.model_dump(mode="json", exclude=names), "data": _absolute(self.data)}


def stored_results(request: CompareRequest, data: str | None) -> Results | None:
    """Return the results of the same request on the same data, if it has been done; `data` is their digest."""
    folder = request.folder()
    asked = _content(request, data, done=True)
    if request.overwrite or not (folder / REPORT).exists() or stored_request(folder) != asked:
        return None
    try:
        return Results.read(folder)
    except DataError:
        return None


def stored_request(folder: Path) -> dict[str, Any]:
    """Return what the comparison in a folder was asked for, empty if there is none or it is damaged."""
    try:
        return read_json(folder / REQUEST, remedy="")
    except (DataError, FileNotFoundError):
        return {}


def write_request(request: CompareRequest, data: str | None, *, done: bool) -> None:
    """Write what a comparison is asked for, the digest of its data, and whether it has been done."""
    write_json(request.folder() / REQUEST, _content(request, data, done=done))


def _content(request: CompareRequest, data: str | None, *, done: bool) -> dict[str, Any]:
    return {"request": request.identity(), "data": data, "done": done}


def _absolute(data: str) -> str:
    """Return where data are, however the path was written; names stay."""
    return str(Path(data).resolve()) if Path(data).exists() else data
