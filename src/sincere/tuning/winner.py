"""What the trials of a loss say: the best one, how sure that is, and whether to look further."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress

from sincere.errors import DataError
from sincere.records.search import Dimension, Edge, End, LossSearch, TrialRow, Value, value_text
from sincere.settings.search_space import parse_space

EDGE = 0.05  # share of a range, at each end
FACTORS = (4.0, 2.0, 1.3)  # by which a range is moved, as far as the setting takes such values


def find_winner(
    loss: str,
    space: Sequence[Dimension],
    trials: Sequence[TrialRow],
    *,
    n_validation: int,
    importance: dict[str, float],
) -> LossSearch:
    """Return the best trial of a loss; among equal ones, that nearest to the middle of what was searched.

    Args:
        loss: Name of the loss.
        space: What was searched.
        trials: Its trials.
        n_validation: Number of held-out images that decide.
        importance: Share of each setting in the differences between trials.

    Raises:
        DataError: No trial is complete; the message has the reason of the first that failed.
    """
    complete = [trial for trial in trials if trial.state == "complete" and trial.value is not None]
    if not complete:
        reasons = [trial.error for trial in trials if trial.error]
        raise DataError(
            f"search: no trial of {loss} is complete{f'; the first failed: {reasons[0]}' if reasons else ''}"
        )
    best = min(complete, key=lambda trial: (-(trial.value or 0.0), _distance(space, trial), trial.number))
    value = best.value or 0.0
    error = _standard_error(value, n_validation)
    edges = [_edge(dimension, best.settings[dimension.name]) for dimension in space]
    return LossSearch(
        loss=loss,
        space=tuple(space),
        trial=best.number,
        value=value,
        best=best.settings,
        n_close=sum((trial.value or 0.0) >= value - error for trial in complete if trial is not best),
        edges=tuple(edge for edge in edges if edge is not None),
        importance=importance,
    )


def _standard_error(accuracy: float, n: int) -> float:
    """Return the standard error of an accuracy, by Agresti and Coull: it is not 0 where all of n images are right."""
    if not n:
        return 0.0
    centre = (accuracy * n + 2) / (n + 4)
    return math.sqrt(centre * (1 - centre) / (n + 4))


def _distance(space: Sequence[Dimension], trial: TrialRow) -> float:
    """Return how far a trial is from the middle of the space: the largest distance of a setting."""
    positions = (dimension.position(trial.settings[dimension.name]) for dimension in space)
    return max((abs(position - 0.5) for position in positions if position is not None), default=0.0)


def _edge(dimension: Dimension, value: Value) -> Edge | None:
    """Return at which end of its range a value lies, and where to look next; None within the range."""
    position = dimension.position(value)
    if position is None or EDGE < position < 1 - EDGE:
        return None
    end: End = "low" if position <= EDGE else "high"
    for factor in FACTORS:
        text = _next(dimension, end, factor).written()
        with suppress(ValueError):
            parse_space([text])
            return Edge(name=dimension.name, end=end, next=text)
    return None  # the setting takes no values beyond


def _next(dimension: Dimension, end: End, factor: float) -> Dimension:
    """Return the range, or the values, beyond an end, together with the nearest part of the old ones."""
    if dimension.values:
        ordered = sorted(map(float, dimension.values))
        outer, inner = (ordered[0], ordered[1]) if end == "low" else (ordered[-1], ordered[-2])
        beyond = outer * outer / inner if min(ordered) > 0 else 2 * outer - inner
        whole = all(isinstance(number, int) for number in dimension.values)
        values = [round(number) if whole else float(f"{number:.2g}") for number in sorted((inner, outer, beyond))]
        return Dimension(name=dimension.name, values=tuple(dict.fromkeys(values)))
    low, high = dimension.low or 0.0, dimension.high or 0.0
    if dimension.log:
        low, high = (
            (low / factor, min(low * factor, high)) if end == "low" else (max(high / factor, low), high * factor)
        )
    else:
        part = (high - low) / 2
        step = part * (factor - 1) / (FACTORS[0] - 1)
        low, high = (low - step, low + part) if end == "low" else (high - part, high + step)
    low, high = (round(x) if dimension.integer else float(f"{x:.2g}") for x in (low, high))
    return Dimension(name=dimension.name, low=low, high=high, log=dimension.log, integer=dimension.integer)


def edge_note(found: LossSearch, edge: Edge) -> str:
    """Return the warning that the best value of a setting may lie beyond what was searched."""
    value = value_text(found.best[edge.name])
    title = edge.name.replace("_", " ")
    where = f"at the {edge.end} end of what was searched"
    return f"{found.loss}: the best {title}, {value}, is {where}; try --space {edge.next}"
