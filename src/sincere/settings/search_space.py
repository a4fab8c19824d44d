"""What a search looks through: settings with ranges or values, as `--space` takes them, and the paper's grid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import get_args

from sincere.errors import InputValueError
from sincere.loss_catalog import LOSSES
from sincere.loss_entry import HyperParameter
from sincere.records.search import Dimension, Value
from sincere.settings.data import source_name
from sincere.settings.requests import RunSettings

TEMPERATURES = (0.02, 0.5)
RATE_FACTORS = (0.1, 5.0)  # of the default learning rate
# Of the authors' code; the paper itself gives no values but those of epsilon. Learning rates are those of SGD.
PAPER_RATES = {"cifar10": (0.1, 0.25, 0.35, 0.5, 0.65, 0.75, 0.85, 1.0, 1.5)}
PAPER_TEMPERATURES = {"cifar10": (0.001, 0.01, 0.05, 0.1, 0.2, 1.0)}
OTHER_RATES, OTHER_TEMPERATURES = (0.35, 0.5, 0.65), (0.05, 0.1)
SEARCHABLE = (
    "temperature",
    "learning_rate",
    "weight_decay",
    "batch_size",
    "epochs",
    "head",
    "dim",
    "n_views",
    "augmentation",
    "feature_dropout",
    "unaugmented",
    "momentum",
    "warmup_epochs",
)


def searchable() -> dict[str, type]:
    """Return the settings that can be searched, those of the losses included, each with the type of its values."""
    own = {number.name for loss in LOSSES.values() for number in loss.hyper_parameters}
    found: dict[str, type] = {}
    for setting in RunSettings.settings():
        if setting.name in SEARCHABLE or setting.name in own:
            kinds = {setting.annotation, *get_args(setting.annotation)}
            found[setting.name] = int if int in kinds else float if float in kinds else str
    return found


def parse_space(texts: Iterable[str]) -> dict[str, Dimension]:
    """Return what `--space` asks for, by setting: NAME=LOW:HIGH, a range, or NAME=A,B,C, values.

    Raises:
        ValueError: A setting cannot be searched, or a range or value is wrong.

    Example:
        >>> space = parse_space(["temperature=0.05:0.5", "head=mlp,linear"])
        >>> space["temperature"].log, space["head"].values
        (True, ('mlp', 'linear'))
    """
    space: dict[str, Dimension] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not values.strip():
            raise ValueError(f"space must be NAME=LOW:HIGH or NAME=VALUE,VALUE,...; got {text!r}")
        known = searchable()
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"these can: {', '.join(known)}"
            raise ValueError(f"space: {name!r} cannot be searched; {hint}")
        if name in space:
            raise ValueError(f"space: {name} is given twice")
        space[name] = _range(name, values, known[name]) if ":" in values else _values(name, values, known[name])
    return space


def _range(name: str, text: str, kind: type) -> Dimension:
    if kind is str:
        raise ValueError(f"space: {name} takes names, which have no range; list them, as in {name}=A,B")
    ends = [_checked(name, part, kind) for part in text.split(":")]
    if len(ends) != 2:
        raise ValueError(f"space: {name} must have two ends, as in {name}=LOW:HIGH; got {text!r}")
    low, high = map(float, ends)
    if low >= high:
        raise ValueError(f"space: {name} must have its low end below its high end; got {text}")
    return Dimension(name=name, low=low, high=high, log=low > 0, integer=kind is int)


def _values(name: str, text: str, kind: type) -> Dimension:
    values = tuple(_checked(name, part, kind) for part in text.split(","))
    if len(set(values)) < len(values):
        raise ValueError(f"space: {name} must have each value once; got {text}")
    return Dimension(name=name, values=values)


def _checked(name: str, text: str, kind: type) -> Value:
    """Return a value that the setting accepts."""
    words = {int: "an integer", float: "a number", str: "a name"}
    try:
        value: Value = kind(text.strip())
    except ValueError as error:
        raise ValueError(f"space: {name} must be {words[kind]}; got {text.strip()!r}") from error
    try:
        RunSettings.make(**{name: value})
    except InputValueError as error:
        raise ValueError(f"space: {str(error).partition(': ')[2]}") from error
    return value


def default_space(loss: str, learning_rate: float | None) -> tuple[Dimension, ...]:
    """Return what is searched for a loss unless something else is asked for.

    Args:
        loss: Name of the loss.
        learning_rate: The learning rate that training would have by default; None to leave it out.
    """
    rates = [] if learning_rate is None else [(factor * learning_rate for factor in RATE_FACTORS)]
    return (
        Dimension(name="temperature", low=TEMPERATURES[0], high=TEMPERATURES[1], log=True),
        *(Dimension(name="learning_rate", low=low, high=high, log=True) for low, high in rates),
        *(
            Dimension(name=own.name, low=own.searched[0], high=own.searched[1], log=own.searched[0] > 0)
            for own in _own(loss)
            if own.searched is not None
        ),
    )


def paper_space(loss: str, data: str) -> tuple[Dimension, ...]:
    """Return the paper's grid for a loss on a data set."""
    name = source_name(data)
    return (
        Dimension(name="temperature", values=PAPER_TEMPERATURES.get(name, OTHER_TEMPERATURES)),
        Dimension(name="learning_rate", values=PAPER_RATES.get(name, OTHER_RATES)),
        *(Dimension(name=own.name, values=own.paper_values) for own in _own(loss) if own.paper_values),
    )


def loss_space(
    loss: str, usual: Sequence[Dimension], asked: Mapping[str, Dimension], fixed: Iterable[str]
) -> tuple[Dimension, ...]:
    """Return what is searched for a loss.

    Args:
        loss: Name of the loss.
        usual: What is searched unless something else is asked for.
        asked: What `--space` asks for; it replaces the usual, and adds to it.
        fixed: Settings that were given a value, and are not searched.
    """
    own, others = {number.name for number in _own(loss)}, _own_of_others(loss)
    kept = {dimension.name: dimension for dimension in usual if dimension.name not in fixed}
    kept |= {name: dimension for name, dimension in asked.items() if name in own or name not in others}
    return tuple(kept.values())


def _own(loss: str) -> tuple[HyperParameter, ...]:
    return LOSSES[loss].hyper_parameters if loss in LOSSES else ()


def _own_of_others(loss: str) -> set[str]:
    """Return the names of hyper-parameters that only other losses have."""
    return {number.name for name, other in LOSSES.items() if name != loss for number in other.hyper_parameters}
