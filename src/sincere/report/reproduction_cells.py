"""Cells of the tables of a reproduction: our values of an experiment, and the paper's."""

from __future__ import annotations

from sincere.loss_catalog import RAW_FEATURES
from sincere.recipes import EXPERIMENTS, published
from sincere.records.estimates import Estimate
from sincere.records.reproduction import CurvePoint, Experiment
from sincere.records.results import Difference
from sincere.report.tables import Cell, estimate_text, interval

SINCERE, SUPCON = "sincere", "supcon"
LAST_FIFTH = 0.8  # of the epochs
NO_BREAK = "\u00a0"  # a space at which no line ends
NONE = Cell("-")


def about(experiment: Experiment) -> tuple[Cell, Cell]:
    """Return the data set and the form of a model, with its number of seeds."""
    n_seeds = len({row.seed for row in experiment.results.rows})
    seeds = f"{n_seeds}{NO_BREAK}seed{'s' if n_seeds > 1 else ''}"
    form = EXPERIMENTS[experiment.recipe].form.replace(" ", NO_BREAK)
    return Cell(data_title(experiment)), Cell(form, detail=seeds)


def data_title(experiment: Experiment) -> str:
    """Return the data set of an experiment, with the number of classes if it has only some."""
    recipe = EXPERIMENTS[experiment.recipe]
    chosen = recipe.settings.get("classes")
    return f"{recipe.data}, {len(chosen)} classes" if chosen else recipe.data


def paper_data(experiment: Experiment) -> str:
    """Return the data set that the paper has the same table for; an empty name if it has none."""
    recipe = EXPERIMENTS[experiment.recipe]
    return "" if "classes" in recipe.settings else recipe.data


def compared_losses(experiment: Experiment) -> list[str]:
    """Return the losses of an experiment."""
    return [summary.loss for summary in experiment.results.summaries if summary.loss != RAW_FEATURES]


def metric(experiment: Experiment, loss: str, name: str) -> Cell:
    """Return a metric with its interval."""
    for summary in experiment.results.summaries:
        if summary.loss == loss and name in summary.metrics:
            share = experiment.results.metrics[name].share
            return estimate(summary.metrics[name], share=share, bold=name in summary.bold)
    return NONE


def difference(experiment: Experiment, name: str, loss: str = SINCERE) -> Cell:
    """Return a loss minus SupCon."""
    for found in experiment.results.differences:
        if found.metric == name and {found.a, found.b} == {loss, SUPCON}:
            share = experiment.results.metrics[name].share
            if found.a == SUPCON:
                turned = {"a": loss, "b": SUPCON, "estimate": -found.estimate, "low": -found.high, "high": -found.low}
                found = found.model_copy(update=turned)
            return estimate(found, share=share, bold=found.significant)
    return NONE


def minus_supcon(experiment: Experiment, loss: str, name: str) -> Cell:
    """Return the difference of a loss and SupCon in a metric; none for SupCon itself."""
    return NONE if loss == SUPCON else difference(experiment, name, loss)


def estimate(value: Estimate | Difference, *, share: bool, bold: bool) -> Cell:
    """Return an estimate with its interval."""
    return Cell(estimate_text(value, share=share), interval(value, share=share), bold=bold)


def late_change_cell(experiment: Experiment, loss: str) -> Cell:
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


def probe(experiment: Experiment) -> str:
    """Return the linear probe that there is, the paper's if it was asked for."""
    return "linear_paper" if "linear_paper" in experiment.results.metrics else "linear"


def plain(value: float | None, *, digits: int, bold: bool = False) -> Cell:
    """Return a number of the paper."""
    return NONE if value is None else Cell(f"{value:.{digits}f}", bold=bold)


def pair(values: tuple[float, float] | None, *, bold: bool = False) -> Cell:
    """Return two numbers of the paper."""
    return NONE if values is None else Cell(f"{values[0]:.2f} / {values[1]:.2f}", bold=bold)


def is_significant(table: str, experiment: Experiment, loss: str) -> bool:
    """Return whether the paper marks a loss as significantly better on the data of an experiment."""
    return loss in published().significant[table].get(paper_data(experiment), ())
