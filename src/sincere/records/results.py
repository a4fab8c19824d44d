"""What an evaluation or a comparison found: results.json (see docs/results.md) and what a row of it points to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sincere.errors import DataError
from sincere.records.estimates import Estimate
from sincere.records.files import write_atomic
from sincere.records.histograms import Histogram

RESULTS, CSV, REPORT, FIGURES = "results.json", "results.csv", "report.html", "figures"
SCHEMA = 1


class Record(BaseModel):
    """A part of results.json."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


class MetricAbout(Record):
    """What a metric is."""

    title: str
    """As in tables, such as "1-NN accuracy"."""
    share: bool
    """Whether it is a share of the test images, shown in per cent."""


class DataAbout(Record):
    """What was evaluated on."""

    name: str
    """As on the command line."""
    class_names: tuple[str, ...]
    """In label order."""
    n_train: int
    """Images that neighbours are looked for among."""
    n_test: int
    """Images that figures are about."""
    digest: str
    """Tells these images and labels from others."""


class TrainLoss(Record):
    """Mean training loss."""

    first: float
    """Of the first epoch."""
    last: float
    """Of the last."""


class MarginAbout(Record):
    """A margin and what it is made of."""

    margin: float | None
    """Median of target minus median of noise, signed; null without images."""
    n: int
    """Test images."""
    target_median: float | None
    """Of the similarities to the nearest image of the same class."""
    noise_median: float | None
    """Of the similarities to the nearest image of another class."""
    target: Histogram
    """Counts of the similarities to the nearest image of the same class; they sum to n."""
    noise: Histogram
    """Likewise, of another class."""


class ClassRow(Record):
    """One class."""

    name: str
    """Of the class."""
    n_test: int
    """Its test images."""
    accuracy: float | None
    """Share of them whose nearest training image is of the class; null without test images."""
    margin: MarginAbout
    """Over its test images."""
    confused_with: str | None
    """The class that the nearest image of another class is most often of."""
    confused_share: float | None
    """How often, as a share of the test images."""
    divergence: Estimate | None
    """Lower bound of the symmetrised KL divergence between the class and the rest, in nats; null where it cannot be
    estimated."""
    divergence_cap: float | None
    """The largest value that bound can take with this many images."""


class Row(Record):
    """One run."""

    loss: str
    """That it was trained with."""
    seed: int
    """Of its training."""
    metrics: dict[str, Estimate]
    """Estimates with 95% intervals over test images; accuracies are shares."""
    train_loss: TrainLoss | None
    """Null where no epoch was finished."""
    seconds: float
    """Time spent training."""
    epochs: int
    """Epochs done."""
    finished: bool
    """False where the last checkpoint of an unfinished run was evaluated."""
    folder: str
    """Of the run, relative to this file: config.toml, manifest.json, metrics.jsonl and map.npz are there."""
    margin: MarginAbout
    """Over all test images."""
    classes: tuple[ClassRow, ...]
    """In label order."""
    confusion: tuple[tuple[int, ...], ...]
    """Test images by class (rows) and 1-NN prediction (columns)."""
    settings: dict[str, Any]
    """Of the run."""


class Difference(Record):
    """Loss `a` minus loss `b`, paired by test image."""

    metric: str
    """Which figure."""
    a: str
    """One loss."""
    b: str
    """The other."""
    estimate: float
    """Of the difference."""
    low: float
    """Lower end of its 95% interval."""
    high: float
    """Upper end."""
    significant: bool
    """Whether the interval leaves 0."""


class LossSummary(Record):
    """One loss over its seeds: each test image averaged over them, then images resampled."""

    loss: str
    """Which one."""
    seeds: tuple[int, ...]
    """That were run."""
    metrics: dict[str, Estimate]
    """With intervals over test images."""
    over_seeds: dict[str, Estimate]
    """Mean and t-interval over the seeds; empty for a single seed."""
    bold: tuple[str, ...]
    """Metrics in which it is the best or not significantly below the best, where some loss is."""


class Results(Record):
    """The content of results.json."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    """Of this file; more keys may come, these stay."""
    kind: Literal["evaluation", "transfer", "comparison"]
    """What it came from."""
    data: DataAbout
    """The data set that figures are about."""
    metrics: dict[str, MetricAbout]
    """The metrics of the rows, in the order of tables."""
    rows: tuple[Row, ...]
    """One for each run."""
    differences: tuple[Difference, ...] = ()
    """Between every two losses."""
    summaries: tuple[LossSummary, ...]
    """One for each loss."""
    notes: tuple[str, ...] = ()
    """What a reader should know."""
    measuring: dict[str, Any]
    """What was asked for: metrics, numbers of neighbours, probes, resamples."""
    manifest: dict[str, Any]
    """Versions, hardware, command and time of the evaluation."""

    def write(self, folder: Path) -> Path:
        """Write results.json."""
        path = folder / RESULTS
        content = self.model_dump(mode="json", by_alias=True)
        write_atomic(path, json.dumps(content, indent=1, allow_nan=False) + "\n")
        return path

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the results of a run or a comparison.

        Raises:
            DataError: There are none, or they are damaged or of another version.
        """
        path = folder / RESULTS
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise DataError(f"{folder}: holds no {RESULTS}; `sincere evaluate {folder}` writes it for a run") from error
        except ValidationError as error:
            first = error.errors()[0]
            reason = f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}" if first["loc"] else first["msg"]
            raise DataError(f"{path}: is damaged or of another version ({reason}); evaluate again") from error
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: cannot be read ({error})") from error
