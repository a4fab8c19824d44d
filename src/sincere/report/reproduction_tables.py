"""The paper's tables with our values beside the paper's, for the terminal, the page and the docs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from sincere.loss_catalog import loss_title
from sincere.recipes import published
from sincere.records.reproduction import Experiment
from sincere.report.reproduction_cells import (
    NONE,
    SINCERE,
    SUPCON,
    about,
    compared_losses,
    difference,
    is_significant,
    late_change_cell,
    metric,
    minus_supcon,
    pair,
    paper_data,
    plain,
    probe,
)
from sincere.report.reproduction_contents import CoefficientRange, Reproduction
from sincere.report.tables import Cell, number

PAPER_BATCH = 1024  # embeddings: 512 images with two views
NAMES = ("data", "trained on", "measured on", "model", "loss")  # titles of the columns that are text
PAPER_CLASSES = {"cifar2": 2, "cifar10": 10, "cifar100": 100, "imagenet100": 100}


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper with our values.

    Attributes:
        item: What it belongs to, as `sincere reproduce` names it.
        title: What it shows.
        header: Titles of the columns.
        rows: Cells of each row.
        notes: How to read it.
    """

    item: str
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def n_text_columns(self) -> int:
        """Number of columns with names, which come first; the others have numbers."""
        return next((i for i, title in enumerate(self.header) if title not in NAMES), len(self.header)) or 1


def margins(reproduction: Reproduction) -> list[PaperTable]:
    """Return the table of margins, and their difference."""
    rows = []
    for experiment in reproduction.trained():
        paper = published().margin.get(paper_data(experiment), {})
        ours = [metric(experiment, loss, "margin") for loss in (SUPCON, SINCERE)]
        published_margins = [
            plain(paper.get(loss), digits=3, bold=is_significant("margin", experiment, loss))
            for loss in (SUPCON, SINCERE)
        ]
        published_difference = plain(paper[SINCERE] - paper[SUPCON] if paper else None, digits=3)
        ours.append(difference(experiment, "margin"))
        rows.append((*about(experiment), *ours, *published_margins, published_difference))
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
        paper, data = published().train_loss, paper_data(experiment)
        for loss in compared_losses(experiment):
            ends = [row.train_loss for row in experiment.results.rows if row.loss == loss and row.train_loss]
            if not ends:
                continue
            first, last = fmean(end.first for end in ends), fmean(end.last for end in ends)
            curves = [curve.points for curve in experiment.curves if curve.loss == loss and curve.points]
            progress = [points[-1].progress for points in curves if points[-1].progress is not None]
            published_ends = paper.get(data, {}).get(loss)
            rows.append(
                (
                    *about(experiment),
                    Cell(loss_title(loss)),
                    Cell(f"{first:.2f} / {last:.2f}"),
                    Cell(number(fmean(progress), share=True)) if progress else NONE,
                    pair(published_ends),
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
        paper = published().knn.get(paper_data(experiment), {})
        for loss in compared_losses(experiment):
            rows.append(
                (
                    *about(experiment),
                    Cell(loss_title(loss)),
                    *(metric(experiment, loss, name) for name in ("knn1", "knn5")),
                    *(minus_supcon(experiment, loss, name) for name in ("knn1", "knn5")),
                    late_change_cell(experiment, loss),
                    pair(paper.get(loss), bold=is_significant("knn", experiment, loss)),
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
        paper = published().linear.get(paper_data(experiment), {})
        for loss in compared_losses(experiment):
            name = probe(experiment)
            ours = metric(experiment, loss, name), minus_supcon(experiment, loss, name)
            rows.append((*about(experiment), Cell(loss_title(loss)), *ours, plain(paper.get(loss), digits=2)))
    header = (*ABOUT, "loss", "linear probe", "- SupCon's", "paper")
    return [PaperTable("linear", "Linear probe", header, tuple(rows), (INTERVALS, BOLD, PROBES))]


def transfer(reproduction: Reproduction) -> list[PaperTable]:
    """Return the table of transfers."""
    rows = []
    for experiment in reproduction.transferred():
        target = str(experiment.transfer)
        paper = published().transfer.get(target.removesuffix("-224"), {}) if reproduction.scale == "paper" else {}
        data, model = about(experiment)
        for loss in compared_losses(experiment):
            names = ("knn1", "knn5", probe(experiment))
            ours = [cell(experiment, loss, name) for cell in (metric, minus_supcon) for name in names]
            is_best = loss in published().significant["transfer"].get(target.removesuffix("-224"), ())
            heading = (data, Cell(target), model, Cell(loss_title(loss)))
            rows.append((*heading, *ours, plain(paper.get(loss), digits=2, bold=is_best)))
    metrics = ("1-NN", "5-NN", "linear probe")
    header = ("trained on", "measured on", "model", "loss", *metrics, *(f"{name} - SupCon's" for name in metrics))
    notes = (INTERVALS, BOLD, PROBES, "Nearest neighbours are found among embeddings, the output of the head.")
    return [PaperTable("transfer", "Transfer", (*header, "paper: linear probe"), tuple(rows), notes)]


def repulsion(reproduction: Reproduction) -> list[PaperTable]:
    """Return how many same-class pairs each loss pushed apart, and how far its coefficient on a positive can go."""
    tables = []
    rows = []
    for experiment in reproduction.trained():
        for loss in compared_losses(experiment):
            curves = [curve.points for curve in experiment.curves if curve.loss == loss and curve.points]
            shares = [[p.repulsion_share for p in points if p.repulsion_share is not None] for points in curves]
            shares = [values for values in shares if values]
            if not shares:
                continue
            ends = (fmean(values[0] for values in shares), fmean(values[-1] for values in shares))
            rows.append(
                (
                    *about(experiment),
                    Cell(loss_title(loss)),
                    *(Cell(number(end, share=True)) for end in ends),
                    Cell(number(max(max(values) for values in shares), share=True)),
                )
            )
    header = (*ABOUT, "loss", "first epoch", "last epoch", "largest")
    notes = (
        "Fraction of the same-class pairs of an epoch's last batch whose similarity a gradient step of the loss "
        "lowers. By the paper's analysis it is 0 for SINCERE.",
    )
    if rows:
        tables.append(PaperTable("repulsion", "Pairs of one class that are pushed apart", header, tuple(rows), notes))
    if reproduction.ranges:
        tables.append(_coefficient_table(reproduction.ranges))
    return tables


def _coefficient_table(ranges: Sequence[CoefficientRange]) -> PaperTable:
    by_loss = {(row.loss, row.n_positives): row for row in ranges}
    rows = []
    for n in sorted({row.n_positives for row in ranges}):
        both = [by_loss[loss, n] for loss in (SUPCON, SINCERE)]
        reached = (Cell(f"[{row.lowest:.3f}, {round(row.highest, 3) + 0.0:.3f}]") for row in both)  # no -0.000
        paper = (Cell(f"[{row.low:.3f}, {row.high:.3f}]") for row in both)
        rows.append((Cell(f"{n:,}"), *reached, *paper))
    header = ("positives |P|", "SupCon", "SINCERE", "paper: SupCon", "paper: SINCERE")
    notes = (
        "Derivative of an anchor's loss with respect to its similarity to a positive over the temperature: below 0 "
        "attracts, above 0 repels. Smallest and largest value, of two batches: all other items point as the anchor "
        "does and the positive away from it, and the other way round. Paper: [-1/|P|, 1 - 1/|P|] and [-1/|P|, 0].",
    )
    return PaperTable("repulsion", "Gradient coefficient on a positive", header, tuple(rows), notes)


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
    for loss in compared_losses(experiment):
        classes = [c for row in experiment.results.rows if row.loss == loss for c in row.classes]
        bounds = [c.divergence.estimate for c in classes if c.divergence is not None]
        caps = [c.divergence_cap for c in classes if c.divergence_cap is not None]
        if bounds and caps:
            values = (Cell(f"{fmean(bounds):.2f}"), Cell(f"{fmean(caps):.2f}"))
            yield (*about(experiment), Cell(loss_title(loss)), *values)


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
