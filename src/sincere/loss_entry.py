"""What a loss of the table is made of: the formula that the kernels compute, its hyper-parameters, its description."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from sincere.catalog import load


@dataclass(frozen=True)
class Formula:
    """What tells the losses of the family apart, as the kernels see it.

    Attributes:
        positives_in_denominator: SupCon's choice: the softmax runs over every other item, not only the negatives.
        epsilon: The margin of eps-SupInfoNCE; 0 is SINCERE.
        decoupled: Not even the positive at hand is in the denominator, which holds the negatives only.
        inside: "mean" or "sum" of the positives inside the logarithm, not outside; "" for outside.
        prior: Assumed probability that a negative is of the anchor's own class, which is corrected for.
        n_positives: Positives that are drawn at random for each anchor; 0 for all.
        nearest_positives: Positives that are taken for each anchor, the nearest; 0 for all.
        nearest_negatives: Negatives that are taken for each anchor, the nearest; 0 for all.
        target_weight: Weight of the target of an anchor's class among its positives, where classes have targets.
    """

    positives_in_denominator: bool = False
    epsilon: float = 0.0
    decoupled: bool = False
    inside: Literal["", "mean", "sum"] = ""
    prior: float = 0.0
    n_positives: int = 0
    nearest_positives: int = 0
    nearest_negatives: int = 0
    target_weight: float = 0.0

    @property
    def is_plain(self) -> bool:
        """Whether it is SINCERE, eps-SupInfoNCE or SupCon, which have the fastest kernels and reference levels."""
        return self == Formula(self.positives_in_denominator, self.epsilon)


@dataclass(frozen=True)
class HyperParameter:
    """A number that a loss has besides the temperature.

    Attributes:
        name: Keyword of the loss; also the flag and the key in configuration files.
        default: Its value unless another is given.
        help: One sentence.
        least: Smallest value that makes sense.
        below: Value that it must be below; None without a limit.
        whole: Whether it is a whole number.
        searched: Range in which `sincere search` looks for the best value, unless another is given; None to keep the
            default.
        paper_values: Values of the paper's search.
    """

    name: str
    default: float
    help: str
    least: float = 0.0
    below: float | None = None
    whole: bool = False
    searched: tuple[float, float] | None = None
    paper_values: tuple[float, ...] = ()


@dataclass(frozen=True)
class Loss:
    """A loss, as every other part of the package knows it.

    Attributes:
        module: "module:attribute" of its `nn.Module`: temperature and hyper-parameters in, embeddings and labels to a
            loss. It takes `group=` if it can run across processes. A function that makes it will do, too.
        title: Its name in tables and figures.
        about: What it does, in a few words.
        paper: Link to the paper; empty without one.
        colour: Colour in figures; empty for one that no other loss beside it has.
        terms: What the kernels compute; None for a loss of another kind. A hyper-parameter takes the place of the
            field of the same name.
        needs_labels: False where the image itself is the label (self-supervised).
        needs_views: Whether an image must have two views, because they are its only positives.
        needs_classifier: Whether it takes the output of a linear classifier on the encoder, as `logits`.
        needs_classes: Whether it is made with `n_classes=` and `dim=`, because it keeps something for each class; it
            takes one class per image.
        chooses_denominator: Whether `positives_in_denominator=False` gives it SINCERE's denominator.
        hyper_parameters: The numbers that it has besides the temperature.
        margin_note: A note for readers of its margins.
        over_sets: Whether it is -log p(all positives at once) / |P|.
    """

    module: str | Callable[..., Any]
    title: str
    about: str
    paper: str
    colour: str
    terms: Formula | None = None
    needs_labels: bool = True
    needs_views: bool = False
    needs_classifier: bool = False
    needs_classes: bool = False
    chooses_denominator: bool = False
    hyper_parameters: tuple[HyperParameter, ...] = ()
    margin_note: str | None = None
    over_sets: bool = False

    @property
    def positives_in_denominator(self) -> bool:
        """Whether the other positives of an anchor stand in its softmax denominator."""
        return self.terms is not None and self.terms.positives_in_denominator

    @property
    def takes_label_sets(self) -> bool:
        """Whether an image may have several labels."""
        return self.terms is not None and not self.needs_classes

    @property
    def is_plain(self) -> bool:
        """Whether its formula is that of SINCERE, SupCon or eps-SupInfoNCE, which have a repulsion meter."""
        formula = self.formula()
        return formula is not None and formula.is_plain

    @property
    def has_levels(self) -> bool:
        """Whether it has reference levels."""
        return self.is_plain or self.over_sets

    def formula(self, **hyper_parameters: float) -> Formula | None:
        """Return what the kernels compute, with these hyper-parameters in place of the defaults, or None."""
        if self.terms is None:
            return None
        values = {own.name: own.default for own in self.hyper_parameters} | hyper_parameters
        known = {field.name: int if field.type == "int" else float for field in fields(Formula)}
        own: dict[str, Any] = {name: known[name](value) for name, value in values.items() if name in known}
        return replace(self.terms, **own)

    def load(self) -> Any:
        """Import and return its module class."""
        return load(self.module)
