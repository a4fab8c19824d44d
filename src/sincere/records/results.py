"""The results of an evaluation or a comparison: results.json, as docs/reference/results.md describes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Annotated, Any, Literal, Self, TypeVar

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
MAIN = "main"  # the group of metrics that the first table shows
Better = Literal["higher", "lower"]
MOST_BINS = 10_000  # of a histogram
LONGEST_KEY = 80  # characters of a key in a message
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


# Before pydantic sees it, which refuses lone surrogates: they come from file names that cannot be decoded.
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
    """Title in tables, such as "1-NN accuracy"."""
    share: bool
    """Whether it is a fraction of the test images, shown in per cent."""
    about: Text = ""
    """How to read it, in one sentence."""
    better: Better | None = "higher"
    """Which direction is better; null if that depends on the purpose. No value of such a metric is bold."""
    group: Text = MAIN
    """Table of the report that shows it: "main", or the title of another."""


class DataAbout(Record):
    """The data set of an evaluation."""

    name: Text
    """Name of the data set, as on the command line."""
    class_names: tuple[Text, ...]
    """Names of the classes, in label order; of the labels, where an image may have several."""
    n_train: Count
    """Number of training images, among which neighbours are searched."""
    n_test: Count
    """Number of test images, which the metrics are about."""
    n_unlabelled: Count = 0
    """Number of images without a label, which took part in training only."""
    digest: Text
    """Content hash of the images and labels."""
    texts_digest: Text = ""
    """Content hash of the texts that the report shows; empty without texts."""
    n_unknown: Count = 0
    """Number of test images of unknown classes (--unknown-classes, --unknown-data)."""
    unknown_digest: Text = ""
    """Content hash of the images of unknown classes; empty without any."""
    noun: Literal["images", "samples"] = "images"
    """What the report calls them: "samples" where they are ready-made features."""
    label_sets: bool = False
    """Whether an image may have several labels, not one class."""

    @property
    def singular(self) -> str:
        """What the report calls one of them."""
        return self.noun.removesuffix("s")


class TrainLoss(Record):
    """Mean training loss."""

    first: float
    """Mean loss of the first epoch."""
    last: float
    """Mean loss of the last epoch."""


class MarginAbout(Record):
    """A margin, and the two distributions of similarities it comes from (the paper's target and noise)."""

    margin: Number | None
    """`target_median` minus `noise_median`, signed; null without images."""
    n: Count
    """Number of test images."""
    target_median: Number | None
    """Median similarity to the nearest training image of the same class."""
    noise_median: Number | None
    """Median similarity to the nearest training image of another class."""
    target: Histogram
    """Histogram of the similarities to the nearest training image of the same class; the counts sum to n."""
    noise: Histogram
    """Histogram of the similarities to the nearest training image of another class."""

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
    """The results of one class."""

    name: Text
    """Name of the class."""
    n_train: Count | None = None
    """Number of its training images; null in results of earlier versions."""
    n_test: Count
    """Number of its test images."""
    accuracy: Share | None
    """1-NN accuracy on its test images; null without test images."""
    margin: MarginAbout
    """Margin over its test images."""
    confused_with: Text | None
    """The class that most often has the nearest image of another class."""
    confused_share: Share | None
    """How often, as a fraction of the test images."""
    divergence: Estimate | None
    """Lower bound of the symmetrised KL divergence between the class and the rest, in nats; null where it cannot be
    estimated."""
    divergence_cap: float | None
    """The largest value that bound can take with this many images."""


class LabelRow(Record):
    """The results of one label, where an image may have several."""

    name: Text
    """Name of the label."""
    n_train: Count
    """Number of training images that have it."""
    n_test: Count
    """Number of test images that have it."""
    average_precision: Share | None
    """Average precision of ranking the test images by the share of their nearest training images that have it; null
    without test images that have it."""


class Row(Record):
    """The results of one run."""

    loss: Text
    """Loss that it was trained with."""
    seed: Seed
    """Random seed of its training."""
    metrics: dict[Text, Estimate]
    """Estimates with 95% confidence intervals over test images; accuracies are fractions."""
    train_loss: TrainLoss | None
    """Mean training loss; null where no epoch was finished."""
    seconds: Annotated[float, Field(ge=0)]
    """Time spent training."""
    epochs: Count
    """Number of epochs trained."""
    finished: bool
    """False where the last checkpoint of an unfinished run was evaluated."""
    folder: Folder
    """Folder of the run, relative to this file: config.toml, manifest.json, metrics.jsonl and map.npz are there."""
    margin: MarginAbout
    """Margin over all test images. With label sets, images that share a label count as the same class, and test images
    without a training image of either kind are left out."""
    classes: tuple[ClassRow, ...]
    """Results of each class, in label order; none with label sets."""
    confusion: tuple[tuple[Count, Count, Count], ...]
    """Cells of the confusion matrix that are not 0: label, 1-NN prediction, test images; none with label sets."""
    settings: Facts
    """Settings of the run."""
    files: dict[Text, Text] = {}
    """SHA-256 of per_image.npz and map.npz, by name: arrays of another evaluation are noticed."""
    train_accuracy: Share | None = None
    """1-NN accuracy on training images, each left out in turn (a sample of up to 2,000): far above that on test images
    where the model overfits. Null in results of earlier versions and with label sets."""
    labels: tuple[LabelRow, ...] = ()
    """Results of each label, where an image may have several."""


class Difference(Record):
    """Loss `a` minus loss `b`, paired by test image and seed."""

    metric: Text
    """Name of the metric."""
    a: Text
    """First loss."""
    b: Text
    """Second loss."""
    estimate: Number
    """Estimate of the difference."""
    low: Number
    """Lower end of its 95% confidence interval."""
    high: Number
    """Upper end of its 95% confidence interval."""
    significant: bool
    """Whether the interval excludes 0. `scope` says what the interval is about."""


class Baseline(Record):
    """What is reached without training, to compare accuracies with."""

    name: Text
    """Name, such as "majority class"."""
    about: Text
    """What it is, in one sentence."""
    accuracy: Estimate
    """Its accuracy on the test images with a 95% confidence interval."""


class LossSummary(Record):
    """The results of one loss over its seeds."""

    loss: Text
    """Name of the loss."""
    seeds: tuple[Seed, ...]
    """Random seeds of its runs."""
    metrics: dict[Text, Estimate]
    """Means over the seeds, with 95% confidence intervals. `scope` says what the intervals are about."""
    seed_std: dict[Text, Annotated[float, Field(ge=0)]]
    """Standard deviation of each metric over the seeds; empty for a single seed."""
    bold: tuple[Text, ...]
    """Metrics in which it is the best or not significantly worse than the best, where some loss is."""


class Results(Record):
    """The content of results.json."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    """Version of this format; more keys may be added, these stay."""
    kind: Literal["evaluation", "transfer", "comparison"]
    """Which command wrote it."""
    data: DataAbout
    """The data set that metrics are about."""
    metrics: dict[Text, MetricAbout]
    """The metrics of the rows, in the order of tables."""
    rows: tuple[Row, ...]
    """Results of each run."""
    differences: tuple[Difference, ...] = ()
    """Differences between every two losses."""
    summaries: tuple[LossSummary, ...]
    """Results of each loss over its seeds."""
    baselines: tuple[Baseline, ...] = ()
    """What is reached without training."""
    scope: Scope = ABOUT_MODELS
    """What the intervals of summaries and differences are about. With three seeds or more: the losses, including the
    variation between seeds. With fewer: these trained models only, with the variation between test images alone."""
    notes: tuple[Text, ...] = ()
    """Notes for the reader."""
    measuring: Facts
    """Settings of the evaluation: metrics, numbers of neighbours, probes, resamples."""
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
        try:
            return read_record(cls, folder / RESULTS, remedy=REMEDY)
        except FileNotFoundError as error:
            raise DataError(f"{folder}: holds no {RESULTS}; `sincere evaluate {folder}` writes it for a run") from error


R = TypeVar("R", bound=Record)


def read_record(kind: type[R], path: Path, *, remedy: str) -> R:
    """Return the record in a JSON file.

    Raises:
        FileNotFoundError: There is no such file.
        DataError: It is damaged, contradicts itself, or is of another version; the message ends with `remedy`.
    """
    try:
        return kind.model_validate(read_json(path, remedy=remedy))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        key = printable(".".join(map(str, first["loc"])))[:LONGEST_KEY]
        reason = first["msg"].removeprefix("Value error, ")
        reason = f"{key}: {reason[:1].lower()}{reason[1:]}" if key else reason
        raise DataError(f"{path}: is damaged or of another version ({reason}); {remedy}") from error
    except RecursionError as error:
        raise DataError(f"{path}: is damaged: nested too deeply; {remedy}") from error


def _contradictions(results: Results) -> Iterator[str]:
    """Yield the contradictions between parts of the results."""
    metrics, names, rows = results.metrics.keys(), results.data.class_names, results.rows
    if not metrics or not rows or not names:
        yield "there must be a metric, a row and a class"
    if any(count > 1 for count in Counter((row.loss, row.seed) for row in rows).values()):
        yield "each loss and seed must have one row"
    for i, row in enumerate(rows):
        if row.metrics.keys() != metrics:
            yield f"rows.{i}: metrics must be those of the results"
        if results.data.label_sets:
            if row.classes or row.confusion or tuple(of_label.name for of_label in row.labels) != names:
                yield f"rows.{i}: labels must be those of the data, without classes"
            if row.margin.n > results.data.n_test:
                yield f"rows.{i}: margin must have at most the test images of the data"
            continue
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
    stated += [baseline.accuracy for baseline in results.baselines]
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
