"""What an evaluation or a comparison found: results.json (see docs/results.md) and what a row of it points to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from sincere.checks import printable
from sincere.errors import DataError
from sincere.records.estimates import Estimate
from sincere.records.files import read_json, write_json
from sincere.records.histograms import Histogram

RESULTS, CSV, REPORT, FIGURES = "results.json", "results.csv", "report.html", "figures"
FIGURE_NAMES = ("differences", "similarity", "training", "meters", "map", "confusion")
FIGURE_FORMATS = ("png", "svg", "pdf")
FIGURE_FILES = {f"{name}.{suffix}" for name in FIGURE_NAMES for suffix in FIGURE_FORMATS}  # others are the user's
Scope = Literal["losses", "trained models"]
ABOUT_LOSSES: Scope = "losses"
ABOUT_MODELS: Scope = "trained models"
MOST_BINS = 10_000  # of a histogram
MOST_PLACE = 80  # characters that say in a message which key is wrong
REMEDY = "evaluate again"


def _printable(value: Any) -> Any:
    """Return text, also within lists and objects, with what could steer a terminal shown as escapes."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    return [_printable(item) for item in value] if isinstance(value, list | tuple) else value


def _inside(folder: str) -> str:
    windows = PureWindowsPath(folder)
    leaves = PurePosixPath(folder).is_absolute() or windows.drive or ".." in PurePosixPath(folder).parts
    if not folder or leaves or "\\" in folder:
        raise ValueError("folder must be a relative path that stays inside the results' folder")
    return folder


# Before pydantic looks at it: it refuses halves of characters, which come from undecodable names of files.
Text = Annotated[str, BeforeValidator(_printable)]
Facts = Annotated[dict[str, Any], BeforeValidator(_printable)]
Folder = Annotated[Text, AfterValidator(_inside)]
Count = Annotated[int, Field(ge=0, lt=2**53)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Share = Annotated[float, Field(ge=0, le=1)]
LARGEST = 1e12  # of any value: charts and tables compute with them
Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]


class Record(BaseModel):
    """A part of results.json."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True, allow_inf_nan=False)


class MetricAbout(Record):
    """What a metric is."""

    title: Text
    """As in tables, such as "1-NN accuracy"."""
    share: bool
    """Whether it is a share of the test images, shown in per cent."""


class DataAbout(Record):
    """What was evaluated on."""

    name: Text
    """As on the command line."""
    class_names: tuple[Text, ...]
    """In label order."""
    n_train: Count
    """Images that neighbours are looked for among."""
    n_test: Count
    """Images that metrics are about."""
    digest: Text
    """Tells these images and labels from others."""


class TrainLoss(Record):
    """Mean training loss."""

    first: float
    """Of the first epoch."""
    last: float
    """Of the last."""


class MarginAbout(Record):
    """A margin and what it is made of."""

    margin: Number | None
    """Median of target minus median of noise, signed; null without images."""
    n: Count
    """Test images."""
    target_median: Number | None
    """Of the similarities to the nearest image of the same class."""
    noise_median: Number | None
    """Of the similarities to the nearest image of another class."""
    target: Histogram
    """Counts of the similarities to the nearest image of the same class; they sum to n."""
    noise: Histogram
    """Likewise, of another class."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for histogram in (self.target, self.noise):
            counts = histogram.counts
            if (
                not -LARGEST < histogram.low < histogram.high < LARGEST
                or not 1 <= len(counts) <= MOST_BINS
                or min(counts) < 0
            ):
                raise ValueError("a histogram must have low < high and counts of at least 0")
            if sum(counts) != self.n:
                raise ValueError(f"counts of a histogram must sum to n = {self.n}; got {sum(counts)}")
        values = (self.margin, self.target_median, self.noise_median)
        if any((value is None) == bool(self.n) for value in values):
            raise ValueError("a margin and its medians must be null without images, and only then")
        return self


class ClassRow(Record):
    """One class."""

    name: Text
    """Of the class."""
    n_test: Count
    """Its test images."""
    accuracy: Share | None
    """Share of them whose nearest training image is of the class; null without test images."""
    margin: MarginAbout
    """Over its test images."""
    confused_with: Text | None
    """The class that the nearest image of another class is most often of."""
    confused_share: Share | None
    """How often, as a share of the test images."""
    divergence: Estimate | None
    """Lower bound of the symmetrised KL divergence between the class and the rest, in nats; null where it cannot be
    estimated."""
    divergence_cap: float | None
    """The largest value that bound can take with this many images."""


class Row(Record):
    """One run."""

    loss: Text
    """That it was trained with."""
    seed: Seed
    """Of its training."""
    metrics: dict[Text, Estimate]
    """Estimates with 95% intervals over test images; accuracies are shares."""
    train_loss: TrainLoss | None
    """Null where no epoch was finished."""
    seconds: Annotated[float, Field(ge=0)]
    """Time spent training."""
    epochs: Count
    """Epochs done."""
    finished: bool
    """False where the last checkpoint of an unfinished run was evaluated."""
    folder: Folder
    """Of the run, relative to this file: config.toml, manifest.json, metrics.jsonl and map.npz are there."""
    margin: MarginAbout
    """Over all test images."""
    classes: tuple[ClassRow, ...]
    """In label order."""
    confusion: tuple[tuple[Count, Count, Count], ...]
    """Cells of the confusion matrix that are not 0: label, 1-NN prediction, test images."""
    settings: Facts
    """Of the run."""
    files: dict[Text, Text] = {}
    """SHA-256 of per_image.npz and map.npz, by name: arrays of another evaluation are noticed."""


class Difference(Record):
    """Loss `a` minus loss `b`, paired by test image and seed."""

    metric: Text
    """Of which metric."""
    a: Text
    """One loss."""
    b: Text
    """The other."""
    estimate: Number
    """Of the difference."""
    low: Number
    """Lower end of its 95% interval."""
    high: Number
    """Upper end."""
    significant: bool
    """Whether the interval excludes 0; what that is about says `scope` of the results."""


class LossSummary(Record):
    """One loss over its seeds."""

    loss: Text
    """Which one."""
    seeds: tuple[Seed, ...]
    """That were run."""
    metrics: dict[Text, Estimate]
    """Means over the seeds, with 95% intervals: of the losses, or of these trained models, as `scope` says."""
    seed_std: dict[Text, Annotated[float, Field(ge=0)]]
    """Standard deviation of each metric over the seeds; empty for a single seed."""
    bold: tuple[Text, ...]
    """Metrics in which it is the best or not significantly below the best, where some loss is."""


class Results(Record):
    """The content of results.json."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    """Of this file; more keys may come, these stay."""
    kind: Literal["evaluation", "transfer", "comparison"]
    """What it came from."""
    data: DataAbout
    """The data set that metrics are about."""
    metrics: dict[Text, MetricAbout]
    """The metrics of the rows, in the order of tables."""
    rows: tuple[Row, ...]
    """One for each run."""
    differences: tuple[Difference, ...] = ()
    """Between every two losses."""
    summaries: tuple[LossSummary, ...]
    """One for each loss."""
    scope: Scope = ABOUT_MODELS
    """What intervals of summaries and differences are about: with three seeds or more the losses, variation between
    seeds included; with fewer these trained models only, variation between test images alone."""
    notes: tuple[Text, ...] = ()
    """What a reader should know."""
    measuring: Facts
    """What was asked for: metrics, numbers of neighbours, probes, resamples."""
    manifest: Facts
    """Versions, hardware, command and time of the evaluation."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if wrong := next(_contradictions(self), None):
            raise ValueError(wrong)
        return self

    def write(self, folder: Path) -> Path:
        """Write results.json."""
        path = folder / RESULTS
        write_json(path, self.model_dump(mode="json", by_alias=True))
        return path

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the results of a run or a comparison.

        Raises:
            DataError: There are none, or they are damaged, contradict themselves, or are of another version.
        """
        path = folder / RESULTS
        try:
            return cls.model_validate(read_json(path, remedy=REMEDY))
        except FileNotFoundError as error:
            raise DataError(f"{folder}: holds no {RESULTS}; `sincere evaluate {folder}` writes it for a run") from error
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            place = printable(".".join(map(str, first["loc"])))[:MOST_PLACE]
            reason = first["msg"].removeprefix("Value error, ")
            reason = f"{place}: {reason[:1].lower()}{reason[1:]}" if place else reason
            raise DataError(f"{path}: is damaged or of another version ({reason}); {REMEDY}") from error
        except RecursionError as error:
            raise DataError(f"{path}: is damaged: nested too deeply; {REMEDY}") from error


def _contradictions(results: Results) -> Iterator[str]:
    """Give what parts of the results say against one another."""
    metrics, names, rows = results.metrics.keys(), results.data.class_names, results.rows
    if not metrics or not rows or not names:
        yield "there must be a metric, a row and a class"
    if any(count > 1 for count in Counter((row.loss, row.seed) for row in rows).values()):
        yield "each loss and seed must have one row"
    for i, row in enumerate(rows):
        if row.metrics.keys() != metrics:
            yield f"rows.{i}: metrics must be those of the results"
        if tuple(of_class.name for of_class in row.classes) != names:
            yield f"rows.{i}: classes must be those of the data"
        if any(of_class.n_test != of_class.margin.n for of_class in row.classes):
            yield f"rows.{i}: each class must have as many test images as its margin"
        if not row.margin.n == sum(of_class.n_test for of_class in row.classes) == results.data.n_test:
            yield f"rows.{i}: classes and margin must have the test images of the data"
        yield from (f"rows.{i}: {wrong}" for wrong in _confusion_contradictions(row))
    losses = dict.fromkeys(row.loss for row in rows)
    if [summary.loss for summary in results.summaries] != list(losses):
        yield "there must be one summary for each loss of the rows, in their order"
    for summary in results.summaries:
        if summary.metrics.keys() != metrics or not {*summary.seed_std, *summary.bold} <= metrics:
            yield f"the summary of {summary.loss} must have the metrics of the results"
        if sorted(summary.seeds) != sorted(row.seed for row in rows if row.loss == summary.loss):
            yield f"the summary of {summary.loss} must have the seeds of its rows"
    stored = Counter((d.metric, *sorted((d.a, d.b))) for d in results.differences)
    if stored != Counter((metric, *sorted(pair)) for metric in metrics for pair in combinations(losses, 2)):
        yield "differences must be of every two losses, once for each metric"
    tables = (*(row.metrics for row in rows), *(summary.metrics for summary in results.summaries))
    stated: list[Estimate | Difference] = [*results.differences, *(x for table in tables for x in table.values())]
    for x in stated:
        if not x.low <= x.high or max(map(abs, (x.estimate, x.low, x.high))) > LARGEST:
            yield f"an interval must have low <= high and values up to {LARGEST:g}"
    if any(d.significant and d.low <= 0 <= d.high for d in results.differences):
        yield "the interval of a significant difference must exclude 0"


def _confusion_contradictions(row: Row) -> Iterator[str]:
    n_classes, images, cells = len(row.classes), Counter[int](), set[tuple[int, int]]()
    for label, predicted, n in row.confusion:
        images[label] += n
        cells.add((label, predicted))
        if label >= n_classes or predicted >= n_classes or not n:
            yield "confusion must have labels of the classes and no empty cell"
    if len(cells) < len(row.confusion) or any(images[i] != row.classes[i].n_test for i in range(n_classes)):
        yield "confusion must have each cell once, and the test images of each class"
