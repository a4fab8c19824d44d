"""The paper's tables with our values beside the paper's, for the terminal, the page and the docs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean

from sincere.catalog import RAW_FEATURES, loss_title
from sincere.recipes import EXPERIMENTS, published
from sincere.records.estimates import Estimate
from sincere.records.reproduction import Costs, CurvePoint, Experiment
from sincere.records.results import Difference
from sincere.report.tables import Cell, estimate_text, interval, number

SINCERE, SUPCON = "sincere", "supcon"
PAPER_BATCH = 1024  # embeddings: 512 images with two views
PAPER_CLASSES = {"cifar2": 2, "cifar10": 10, "cifar100": 100, "imagenet100": 100}
LAST_FIFTH = 0.8  # of the epochs
NONE = Cell("-")


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper with our values.

    Attributes:
        item: What it belongs to, as `sincere reproduce` names it.
        title: What it shows.
        header: Titles of the columns.
        rows: Cells of each row; the first ones are text.
        notes: How to read it.
    """

    item: str
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Missing:
    """What has not been run.

    Attributes:
        name: Name of the experiment.
        runs: Names of the runs that it lacks.
        command: Command that makes it.
        n_runs: Number of runs that it should have.
    """

    name: str
    runs: tuple[str, ...]
    command: str
    n_runs: int


@dataclass(frozen=True)
class KnownBound:
    """Loss and bounds for two Gaussians whose divergence is known.

    Attributes:
        n_noise: Number of negatives, |N|.
        divergence: Symmetrised KL divergence J of the two.
        loss: Loss of the best score function, by Monte Carlo.
        standard_error: Its standard error.
        bound: The paper's lower bound on the loss, log|N| - J, or 0.
        tighter_bound: log(|N| + 1) - |N| / (|N| + 1) J, or 0.
    """

    n_noise: int
    divergence: float
    loss: float
    standard_error: float
    bound: float
    tighter_bound: float


@dataclass(frozen=True)
class Reproduction:
    """All that there is to show.

    Attributes:
        scale: The paper's own size, or that of two CPU cores.
        experiments: Stored experiments by name.
        costs: Time and memory of the losses; None if they were not measured.
        bounds: Loss and bounds for known divergences; empty if they were not computed.
        missing: What has not been run.
    """

    scale: str
    experiments: Mapping[str, Experiment]
    costs: Costs | None = None
    bounds: tuple[KnownBound, ...] = ()
    missing: tuple[Missing, ...] = field(default=())

    def trained(self) -> Iterator[Experiment]:
        """Yield the experiments on the data that their models were trained on."""
        return (experiment for experiment in self.experiments.values() if experiment.transfer is None)

    def transferred(self) -> Iterator[Experiment]:
        """Yield the transfers."""
        return (experiment for experiment in self.experiments.values() if experiment.transfer is not None)


def margins(reproduction: Reproduction) -> list[PaperTable]:
    """Return the table of margins, and their difference."""
    rows = []
    for experiment in reproduction.trained():
        paper = published().margin.get(_paper_data(experiment), {})
        ours = [_metric(experiment, loss, "margin") for loss in (SUPCON, SINCERE)]
        published_margins = [
            _plain(paper.get(loss), digits=3, bold=_is_significant("margin", experiment, loss))
            for loss in (SUPCON, SINCERE)
        ]
        published_difference = _plain(paper[SINCERE] - paper[SUPCON] if paper else None, digits=3)
        difference = _difference(experiment, "margin")
        rows.append((*_about(experiment), *ours, difference, *published_margins, published_difference))
    header = ("SupCon", "SINCERE", "SINCERE - SupCon")
    return [
        PaperTable(
            "margins",
            "Margin",
            (*ABOUT, *header, *(f"paper: {title}" for title in header)),
            tuple(rows),
            (
                "Margin: median similarity to the nearest training image of the same class minus that to the nearest "
                "of another class.",
                INTERVALS,
                BOLD,
            ),
        )
    ]


def losses(reproduction: Reproduction) -> list[PaperTable]:
    """Return the table of training losses, and how far each loss went from chance to its floor."""
    rows = []
    for experiment in reproduction.trained():
        paper, data = published().train_loss, _paper_data(experiment)
        for loss in _losses(experiment):
            ends = [row.train_loss for row in experiment.results.rows if row.loss == loss and row.train_loss]
            if not ends:
                continue
            first, last = fmean(end.first for end in ends), fmean(end.last for end in ends)
            curves = [curve.points for curve in experiment.curves if curve.loss == loss and curve.points]
            progress = [points[-1].progress for points in curves if points[-1].progress is not None]
            published_ends = paper.get(data, {}).get(loss)
            rows.append(
                (
                    *_about(experiment),
                    Cell(loss_title(loss)),
                    Cell(f"{first:.2f} / {last:.2f}"),
                    Cell(number(fmean(progress), share=True)) if progress else NONE,
                    _pair(published_ends),
                    Cell(number(paper_progress(data, loss, published_ends[1]), share=True)) if published_ends else NONE,
                )
            )
    way = "of the way from chance to floor"
    header = (*ABOUT, "loss", "first / last epoch", way, "paper: first / last", f"paper: {way}")
    notes = (
        "Mean loss of the first and the last epoch, over the seeds. Losses of different kinds cannot be compared as "
        "they are: SupCon's floor is the mean log |P|, SINCERE's is 0. Chance: all similarities equal; floor: perfect "
        "separation. The paper's chance and floor are computed for 1,024 embeddings of classes of equal size. Where a "
        "recipe ends without augmentation (unaugmented), so does its last epoch.",
    )
    return [PaperTable("losses", "Training loss", header, tuple(rows), notes)]


def paper_progress(data: str, loss: str, value: float) -> float:
    """Return how far a loss of the paper is on its way from chance to floor, for classes of equal size in a batch.

    Example:
        >>> round(paper_progress("cifar10", "sincere", 0.29), 2), round(paper_progress("cifar10", "supcon", 4.69), 2)
        (0.96, 0.97)
    """
    of_class = PAPER_BATCH / PAPER_CLASSES[data]
    if loss == SUPCON:
        chance, floor = math.log(PAPER_BATCH - 1), math.log(of_class - 1)
    else:
        chance, floor = math.log(1 + PAPER_BATCH - of_class), 0.0
    return (chance - value) / (chance - floor)


def knn(reproduction: Reproduction) -> list[PaperTable]:
    """Return the table of nearest-neighbour accuracies, and how much 1-NN changed at the end of training."""
    rows = []
    for experiment in reproduction.trained():
        paper = published().knn.get(_paper_data(experiment), {})
        for loss in _losses(experiment):
            rows.append(
                (
                    *_about(experiment),
                    Cell(loss_title(loss)),
                    *(_metric(experiment, loss, name) for name in ("knn1", "knn5")),
                    *(_minus_supcon(experiment, loss, name) for name in ("knn1", "knn5")),
                    _late_change(experiment, loss),
                    _pair(paper.get(loss), bold=_is_significant("knn", experiment, loss)),
                )
            )
    header = (*ABOUT, "loss", "1-NN", "5-NN", "1-NN - SupCon's", "5-NN - SupCon's", LATE, "paper: 1-NN / 5-NN")
    notes = (
        INTERVALS,
        BOLD,
        f"{LATE}: largest change of the live 1-NN accuracy on training images over the last fifth of training, in "
        "points; a large one says that training was too short.",
    )
    return [PaperTable("knn", "Nearest neighbours", header, tuple(rows), notes)]


def linear(reproduction: Reproduction) -> list[PaperTable]:
    """Return the table of linear probes."""
    rows = []
    for experiment in reproduction.trained():
        paper = published().linear.get(_paper_data(experiment), {})
        for loss in _losses(experiment):
            name = _probe(experiment)
            ours = _metric(experiment, loss, name), _minus_supcon(experiment, loss, name)
            rows.append((*_about(experiment), Cell(loss_title(loss)), *ours, _plain(paper.get(loss), digits=2)))
    header = (*ABOUT, "loss", "linear probe", "- SupCon's", "paper")
    return [PaperTable("linear", "Linear probe", header, tuple(rows), (INTERVALS, BOLD, PROBES))]


def transfer(reproduction: Reproduction) -> list[PaperTable]:
    """Return the table of transfers."""
    rows = []
    for experiment in reproduction.transferred():
        target = str(experiment.transfer)
        paper = published().transfer.get(target.removesuffix("-224"), {}) if reproduction.scale == "paper" else {}
        about = (Cell(_title(experiment)), Cell(target), Cell(EXPERIMENTS[experiment.recipe].form))
        for loss in _losses(experiment):
            name = _probe(experiment)
            ours = _metric(experiment, loss, name), _minus_supcon(experiment, loss, name)
            is_best = loss in published().significant["transfer"].get(target.removesuffix("-224"), ())
            rows.append((*about, Cell(loss_title(loss)), *ours, _plain(paper.get(loss), digits=2, bold=is_best)))
    header = ("trained on", "probed on", "model", "loss", "linear probe", "- SupCon's", "paper")
    return [PaperTable("transfer", "Transfer", header, tuple(rows), (INTERVALS, BOLD, PROBES))]


def repulsion(reproduction: Reproduction) -> list[PaperTable]:
    """Return how many same-class pairs each loss pushed apart."""
    rows = []
    for experiment in reproduction.trained():
        for loss in _losses(experiment):
            curves = [curve.points for curve in experiment.curves if curve.loss == loss and curve.points]
            shares = [[p.repulsion_share for p in points if p.repulsion_share is not None] for points in curves]
            shares = [values for values in shares if values]
            if not shares:
                continue
            ends = (fmean(values[0] for values in shares), fmean(values[-1] for values in shares))
            rows.append(
                (
                    *_about(experiment),
                    Cell(loss_title(loss)),
                    *(Cell(number(end, share=True)) for end in ends),
                    Cell(number(max(max(values) for values in shares), share=True)),
                )
            )
    header = (*ABOUT, "loss", "first epoch", "last epoch", "largest")
    notes = (
        "Fraction of the same-class pairs of an epoch's last batch whose similarity a gradient step of the loss "
        "lowers. By the paper's analysis it is 0 for SINCERE, whose coefficient on a positive lies in [-1/|P|, 0] per "
        "anchor; SupCon's lies in [-1/|P|, 1 - 1/|P|].",
    )
    return [PaperTable("repulsion", "Pairs of one class that are pushed apart", header, tuple(rows), notes)]


def complexity(reproduction: Reproduction) -> list[PaperTable]:
    """Return time and memory of SINCERE and SupCon."""
    if reproduction.costs is None:
        return []
    costs = {(cost.loss, cost.n): cost for cost in reproduction.costs.rows}
    rows = []
    for n in sorted({cost.n for cost in reproduction.costs.rows}):
        pair = [costs[loss, n] for loss in (SUPCON, SINCERE)]
        rows.append(
            (
                Cell(f"{n:,}"),
                *(Cell(f"{1000 * cost.seconds:.1f} ms") for cost in pair),
                Cell(f"{pair[1].seconds / pair[0].seconds:.2f}"),
                *(Cell(f"{cost.peak_bytes / 1e6:.0f} MB") for cost in pair),
            )
        )
    header = ("embeddings", "time, SupCon", "time, SINCERE", "ratio", "memory, SupCon", "memory, SINCERE")
    manifest = reproduction.costs.manifest
    machine = f"{manifest.get('processor')}, {manifest.get('cores')} cores, {str(manifest.get('started'))[:10]}"
    about = "Value and gradient for 128 dimensions and 10 classes, in turns; memory beyond the embeddings."
    notes = (about, f"Measured on {machine}.")
    return [PaperTable("complexity", "Time and memory of the losses", header, tuple(rows), notes)]


def bound(reproduction: Reproduction) -> list[PaperTable]:
    """Return loss and bounds for known divergences, and the bounds that the trained models show."""
    tables = []
    if reproduction.bounds:
        rows = [
            (
                Cell(f"{row.n_noise:,}"),
                Cell(f"{row.divergence:.3f}"),
                Cell(f"{row.loss:.3f}", f"± {1.96 * row.standard_error:.3f}"),
                Cell(f"{row.bound:.3f}"),
                Cell(f"{row.tighter_bound:.3f}"),
                Cell(f"{math.log(row.n_noise) - row.loss:.3f}"),
            )
            for row in reproduction.bounds
        ]
        header = ("negatives |N|", "J", "loss", "log |N| - J, or 0", "tighter", "log |N| - loss")
        notes = (
            "Two Gaussians in four dimensions whose symmetrised KL divergence J is known, and the loss of the best "
            "score function, by Monte Carlo. Theorem 2 says that the loss is not below the fourth column, and that "
            "the last column is not above J.",
        )
        tables.append(PaperTable("bound", "Loss and divergence, known", header, tuple(rows), notes))
    shown = [row for experiment in reproduction.trained() for row in _shown_divergences(experiment)]
    if shown:
        notes = ("Lower bound on J between a class and the rest, from test embeddings: mean over classes and seeds.",)
        columns = (*ABOUT, "loss", "J at least, nats", "largest value possible")
        tables.append(PaperTable("bound", "Divergence of the classes", columns, tuple(shown), notes))
    return tables


def _shown_divergences(experiment: Experiment) -> Iterator[tuple[Cell, ...]]:
    for loss in _losses(experiment):
        classes = [c for row in experiment.results.rows if row.loss == loss for c in row.classes]
        bounds = [c.divergence.estimate for c in classes if c.divergence is not None]
        caps = [c.divergence_cap for c in classes if c.divergence_cap is not None]
        if bounds and caps:
            values = (Cell(f"{fmean(bounds):.2f}"), Cell(f"{fmean(caps):.2f}"))
            yield (*_about(experiment), Cell(loss_title(loss)), *values)


TABLES: dict[str, Callable[[Reproduction], list[PaperTable]]] = {
    "margins": margins,
    "losses": losses,
    "knn": knn,
    "linear": linear,
    "transfer": transfer,
    "complexity": complexity,
    "bound": bound,
    "repulsion": repulsion,
}
ABOUT = ("data", "model")
INTERVALS = "In brackets: 95% confidence intervals; over test images and seeds with three seeds or more."
BOLD = "Bold: the best, and what is not significantly below it, if anything is; differences that exclude 0."
PROBES = (
    "Ours is logistic regression on features unless a recipe asks for the paper's probe, SGD on augmented images; that "
    "of a frozen encoder takes the embeddings."
)
LATE = "last fifth"


def _about(experiment: Experiment) -> tuple[Cell, Cell]:
    n_seeds = len({row.seed for row in experiment.results.rows})
    seeds = f"{n_seeds} seed{'s' if n_seeds > 1 else ''}"
    return Cell(_title(experiment)), Cell(EXPERIMENTS[experiment.recipe].form, detail=seeds)


def _title(experiment: Experiment) -> str:
    recipe = EXPERIMENTS[experiment.recipe]
    chosen = recipe.settings.get("classes")
    return f"{recipe.data}, {len(chosen)} classes" if chosen else recipe.data


def _paper_data(experiment: Experiment) -> str:
    """Return the data set that the paper has the same table for; an empty name if it has none."""
    recipe = EXPERIMENTS[experiment.recipe]
    return "" if "classes" in recipe.settings else recipe.data


def _losses(experiment: Experiment) -> list[str]:
    return [summary.loss for summary in experiment.results.summaries if summary.loss != RAW_FEATURES]


def _metric(experiment: Experiment, loss: str, name: str) -> Cell:
    for summary in experiment.results.summaries:
        if summary.loss == loss and name in summary.metrics:
            share = experiment.results.metrics[name].share
            return _estimate(summary.metrics[name], share=share, bold=name in summary.bold)
    return NONE


def _difference(experiment: Experiment, name: str, loss: str = SINCERE) -> Cell:
    """Return a loss minus SupCon."""
    for found in experiment.results.differences:
        if found.metric == name and {found.a, found.b} == {loss, SUPCON}:
            share = experiment.results.metrics[name].share
            if found.a == SUPCON:
                turned = {"a": loss, "b": SUPCON, "estimate": -found.estimate, "low": -found.high, "high": -found.low}
                found = found.model_copy(update=turned)
            return _estimate(found, share=share, bold=found.significant)
    return NONE


def _minus_supcon(experiment: Experiment, loss: str, name: str) -> Cell:
    return NONE if loss == SUPCON else _difference(experiment, name, loss)


def _estimate(value: Estimate | Difference, *, share: bool, bold: bool) -> Cell:
    return Cell(estimate_text(value, share=share), interval(value, share=share), bold=bold)


def _late_change(experiment: Experiment, loss: str) -> Cell:
    """Return the largest change of the live accuracy over the last fifth of training, over the seeds."""
    changes = [late_change(curve.points) for curve in experiment.curves if curve.loss == loss]
    known = [change for change in changes if change is not None]
    return Cell(f"{100 * max(known):.1f}") if known else NONE


def late_change(points: tuple[CurvePoint, ...]) -> float | None:
    """Return the range of the live accuracies over the last fifth of training; None with fewer than two of them.

    The last one before that fifth counts, too, so that the whole of it is covered.
    """
    live = [(point.epoch, point.knn1) for point in points if point.knn1 is not None]
    if not live:
        return None
    start = LAST_FIFTH * points[-1].epoch
    before = [value for epoch, value in live if epoch <= start][-1:]
    values = before + [value for epoch, value in live if epoch > start]
    return max(values) - min(values) if len(values) > 1 else None


def _probe(experiment: Experiment) -> str:
    """Return the linear probe that there is, the paper's if it was asked for."""
    return "linear_paper" if "linear_paper" in experiment.results.metrics else "linear"


def _plain(value: float | None, *, digits: int, bold: bool = False) -> Cell:
    return NONE if value is None else Cell(f"{value:.{digits}f}", bold=bold)


def _pair(values: tuple[float, float] | None, *, bold: bool = False) -> Cell:
    return NONE if values is None else Cell(f"{values[0]:.2f} / {values[1]:.2f}", bold=bold)


def _is_significant(table: str, experiment: Experiment, loss: str) -> bool:
    """Return whether the paper marks a loss as significantly better on the data of an experiment."""
    return loss in published().significant[table].get(_paper_data(experiment), ())
