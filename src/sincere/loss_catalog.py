"""The losses by name, and sums of them. Plain data, without torch, as in `catalog.py`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sincere.catalog import PYTHON, load, own_name
from sincere.checks import choice, not_one_of, wording
from sincere.errors import InputValueError
from sincere.loss_entry import Formula, HyperParameter, Loss


class LossTable(dict[str, Loss]):
    """The losses by name. A sum of them, such as "sincere+0.5*infonce", is one, too, and made when it is asked for."""

    def __missing__(self, name: str) -> Loss:
        """Return a sum of losses.

        Raises:
            KeyError: It is none.
        """
        if name.startswith(PYTHON) or not ("+" in name or "*" in name):
            raise KeyError(name)
        return _sum_of(self, sum_terms(name))

    def __contains__(self, name: object) -> bool:
        """Tell whether a loss or a sum of them has this name."""
        if super().__contains__(name) or not isinstance(name, str):
            return super().__contains__(name)
        try:
            self[name]
        except (KeyError, InputValueError):
            return False
        return True


CROSS_ENTROPY = "cross-entropy"  # a term of a sum: of a linear classifier on the output of the encoder


def sum_terms(text: str) -> tuple[tuple[str, float], ...]:
    """Return the terms of a sum of losses, each with its weight.

    Raises:
        InputValueError: A term is none, or is there twice.

    Example:
        >>> sum_terms("sincere + 0.5*cross-entropy")
        (('sincere', 1.0), ('cross-entropy', 0.5))
    """
    terms: dict[str, float] = {}
    for part in text.split("+"):
        weight, star, name = (piece.strip() for piece in part.rpartition("*"))
        try:
            value = float(weight) if star else 1.0
        except ValueError:
            value = math.nan
        if not (0 < value < math.inf):
            requirement = f"{weight!r} must be a finite number greater than 0"
            raise InputValueError(f"loss: the weight {requirement}, in {text!r}")
        if not dict.__contains__(LOSSES, name) and name != CROSS_ENTROPY:
            raise InputValueError(f"loss: a term of {text!r} {not_one_of(name, [*LOSSES, CROSS_ENTROPY])}")
        if name in terms:
            raise InputValueError(f"loss: {name} must be there once in {text!r}")
        terms[name] = value
    if set(terms) == {CROSS_ENTROPY}:
        remedy = f"add another, as in '{DEFAULT_LOSS} + 0.5*{CROSS_ENTROPY}'"
        raise InputValueError(f"loss: {CROSS_ENTROPY} alone trains no embedding; {remedy}")
    return tuple(terms.items())


def loss_name(text: str) -> str:
    """Return the name of a loss, that of a sum without spaces: one sum, one name.

    Raises:
        InputValueError: A term of a sum is none, or is there twice.

    Example:
        >>> loss_name("sincere + 0.50 * cross-entropy")
        'sincere+0.5*cross-entropy'
    """
    if text.startswith(PYTHON) or not ("+" in text or "*" in text or text == CROSS_ENTROPY):
        return text
    return "+".join(name if weight == 1 else f"{_weight_text(weight)}*{name}" for name, weight in sum_terms(text))


def _weight_text(weight: float) -> str:
    """Return the shortest text of a weight that is read as the same number; without an exponent's sign, as in 1e+06.

    Example:
        >>> _weight_text(0.5), _weight_text(2.0), _weight_text(1e6), _weight_text(1e-7)
        ('0.5', '2', '1000000', '1e-07')
    """
    return repr(weight).removesuffix(".0").replace("e+", "e")


def _sum_of(losses: Mapping[str, Loss], terms: tuple[tuple[str, float], ...]) -> Loss:
    """Return the table's entry for a sum."""
    known = {name: losses[name] for name, _ in terms if name != CROSS_ENTROPY}
    titles = {**{name: loss.title for name, loss in known.items()}, CROSS_ENTROPY: "cross-entropy"}
    first = next(iter(known.values()))
    own = {parameter.name: parameter for loss in known.values() for parameter in loss.hyper_parameters}

    def make(temperature: Any = 0.1, *, group: Any = None, **options: Any) -> Any:
        across = {} if group is None else {"group": group}
        return load("sincere.losses.sums:LossSum")(terms, temperature, **across, **options)

    return Loss(
        module=make,
        title=" + ".join(
            titles[name] if weight == 1 else f"{_weight_text(weight)} {titles[name]}" for name, weight in terms
        ),
        about="a sum of losses",
        paper=first.paper,
        colour="",
        needs_views=any(loss.needs_views for loss in known.values()),
        needs_classifier=CROSS_ENTROPY in dict(terms),
        needs_classes=any(loss.needs_classes for loss in known.values()),
        chooses_denominator=any(loss.chooses_denominator for loss in known.values()),
        hyper_parameters=tuple(own.values()),
        margin_note=next((loss.margin_note for loss in known.values() if loss.margin_note), None),
    )


_N_POSITIVES = HyperParameter(
    "n_positives", 6, "Positives that k-positives and targeted draw for each anchor.", least=1, whole=True
)
LOSSES = LossTable()
LOSSES |= {
    "sincere": Loss(
        module="sincere.losses.modules:SINCERELoss",
        title="SINCERE",
        about="the denominator holds the positive and the negatives",
        paper="https://arxiv.org/abs/2309.14277",
        colour="#0072B2",
        terms=Formula(),
    ),
    "supcon": Loss(
        module="sincere.losses.modules:SupConLoss",
        title="SupCon",
        about="the denominator holds every other item",
        paper="https://arxiv.org/abs/2004.11362",
        colour="#D55E00",
        terms=Formula(positives_in_denominator=True),
    ),
    "eps-supinfonce": Loss(
        module="sincere.losses.modules:EpsSupInfoNCELoss",
        title="eps-SupInfoNCE",
        about="SINCERE with a margin epsilon on the positive",
        paper="https://arxiv.org/abs/2211.05568",
        colour="#009E73",
        terms=Formula(),
        hyper_parameters=(
            HyperParameter(
                "epsilon",
                0.25,
                "Margin of eps-supinfonce; other losses have none.",
                searched=(0.05, 1.0),
                paper_values=(0.1, 0.25, 0.5),
            ),
        ),
        margin_note="the paper does not compare margins of eps-SupInfoNCE: its epsilon asks for a margin of its own",
    ),
    "decoupled": Loss(
        module="sincere.losses.related_modules:DecoupledLoss",
        title="decoupled",
        about="SINCERE whose denominator holds the negatives only",
        paper="https://arxiv.org/abs/2110.06848",
        colour="#E69F00",
        terms=Formula(decoupled=True),
    ),
    "supcon-in": Loss(
        module="sincere.losses.related_modules:SupConInLoss",
        title="SupCon-in",
        about="SupCon with the mean over the positives inside the logarithm",
        paper="https://arxiv.org/abs/2004.11362",
        colour="#8C564B",
        terms=Formula(positives_in_denominator=True, inside="mean"),
        chooses_denominator=True,
    ),
    "k-positives": Loss(
        module="sincere.losses.related_modules:KPositivesLoss",
        title="k positives",
        about="SupCon with a few positives drawn for each anchor, for imbalanced classes",
        paper="https://openreview.net/forum?id=OqtLIabPTit",
        colour="#56B4E9",
        terms=Formula(positives_in_denominator=True),
        chooses_denominator=True,
        hyper_parameters=(_N_POSITIVES,),
    ),
    "targeted": Loss(
        module="sincere.losses.targeted:TargetedLoss",
        title="targeted",
        about="k positives and a target for each class, uniform on the sphere, for imbalanced classes",
        paper="https://arxiv.org/abs/2111.13998",
        colour="#9467BD",
        terms=Formula(positives_in_denominator=True),
        needs_classes=True,
        chooses_denominator=True,
        hyper_parameters=(
            _N_POSITIVES,
            HyperParameter(
                "target_weight",
                1.0,
                "Weight of the target of a class among the positives of targeted; 1 for that of any other.",
                searched=(0.1, 10.0),
            ),
        ),
    ),
    "nearest-neighbours": Loss(
        module="sincere.losses.related_modules:NearestNeighboursLoss",
        title="nearest neighbours",
        about="only the nearest positives and negatives count, for classes of several kinds",
        paper="https://arxiv.org/abs/2110.06014",
        colour="#7F7F7F",
        terms=Formula(positives_in_denominator=True, inside="sum"),
        chooses_denominator=True,
        hyper_parameters=(
            HyperParameter(
                "nearest_positives", 5, "Positives that nearest-neighbours takes for each anchor.", least=1, whole=True
            ),
            HyperParameter(
                "nearest_negatives", 50, "Negatives that nearest-neighbours takes for each anchor.", least=1, whole=True
            ),
        ),
    ),
    "infonce": Loss(
        module="sincere.losses.modules:InfoNCELoss",
        title="InfoNCE",
        about="self-supervised: the views of one image are its positives",
        paper="https://arxiv.org/abs/1807.03748",
        colour="#CC79A7",
        terms=Formula(),
        needs_labels=False,
        needs_views=True,
    ),
    "debiased": Loss(
        module="sincere.losses.related_modules:DebiasedLoss",
        title="debiased InfoNCE",
        about="self-supervised: InfoNCE corrected for negatives that are of the anchor's class",
        paper="https://arxiv.org/abs/2007.00224",
        colour="#BCBD22",
        terms=Formula(prior=0.1),
        needs_labels=False,
        needs_views=True,
        hyper_parameters=(
            HyperParameter(
                "prior",
                0.1,
                "Probability, as debiased assumes it, that another image is of the anchor's class.",
                below=1.0,
                searched=(0.01, 0.3),
            ),
        ),
    ),
    "set-sincere": Loss(
        module="sincere.losses.set_loss:SetSINCERELoss",
        title="Set-SINCERE",
        about="all positives of an anchor are predicted at once, as a set",
        paper="https://arxiv.org/abs/2309.14277",
        colour="#A8A000",
        over_sets=True,
    ),
}
DEFAULT_LOSS = "sincere"
RAW_FEATURES = "raw-features"  # in the place of a loss: frozen or ready-made features, before any training
COMPARED_LOSSES = ("sincere", "supcon", "eps-supinfonce")  # by `sincere compare`, unless others are named


def find_loss(name: str, *, caller: str) -> Loss:
    """Return a loss by name.

    Raises:
        InputValueError: There is no such name; the message lists the names and the nearest one.
    """
    if name.startswith(PYTHON) and name not in LOSSES:
        raise InputValueError(wording(caller, "loss was given in Python and must be given again, as loss=", name))
    return LOSSES[name] if name in LOSSES else LOSSES[choice(caller, "loss", loss_name(name), LOSSES)]


def loss_title(name: str) -> str:
    """Return the name of a loss in tables and figures; results may tell of one that is no longer here."""
    if name == RAW_FEATURES:
        return "raw features"
    return LOSSES[name].title if name in LOSSES else own_name(name)
