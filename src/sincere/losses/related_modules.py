"""The losses around SINCERE as modules: they hold hyper-parameters and options and call the functions."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from sincere import checks
from sincere.errors import InputValueError
from sincere.losses.modules import SelfSupervisedLoss, SupervisedContrastiveLoss
from sincere.losses.options import MODULE_DEFAULTS, ModuleOptions, lists_options
from sincere.losses.related import (
    debiased_loss,
    decoupled_loss,
    k_positives_loss,
    nearest_neighbours_loss,
    supcon_in_loss,
)


class DecoupledLoss(SupervisedContrastiveLoss):
    """`decoupled_loss` as a module; paper: https://arxiv.org/abs/2110.06848."""

    function = staticmethod(decoupled_loss)


class SupConInLoss(SupervisedContrastiveLoss):
    """`supcon_in_loss` as a module; paper: https://arxiv.org/abs/2004.11362."""

    function = staticmethod(supcon_in_loss)
    option_names = ("temperature", "positives_in_denominator", *MODULE_DEFAULTS)

    @lists_options(ModuleOptions)
    def __init__(
        self,
        temperature: float | Tensor = 0.1,
        *,
        positives_in_denominator: bool = True,
        **options: Unpack[ModuleOptions],
    ) -> None:
        """Check and hold what every call of the loss uses.

        Args:
            temperature: Divides the similarities. A positive number, or an `nn.Parameter` with one element to learn it.
            positives_in_denominator: False for SINCERE's denominator.
            **options: See `sincere.losses.options.ModuleOptions`; `help()` lists them here.
        """
        super().__init__(temperature, **options)
        caller = type(self).__name__
        self.positives_in_denominator = checks.flag(caller, "positives_in_denominator", positives_in_denominator)


class KPositivesLoss(SupervisedContrastiveLoss):
    """`k_positives_loss` as a module; paper: https://openreview.net/forum?id=OqtLIabPTit."""

    function = staticmethod(k_positives_loss)
    option_names = ("temperature", "n_positives", "positives_in_denominator", "draw", *MODULE_DEFAULTS)

    @lists_options(ModuleOptions)
    def __init__(
        self,
        temperature: float | Tensor = 0.1,
        *,
        n_positives: int = 6,
        positives_in_denominator: bool = True,
        draw: int | None = None,
        **options: Unpack[ModuleOptions],
    ) -> None:
        """Check and hold what every call of the loss uses.

        Args:
            temperature: Divides the similarities. A positive number, or an `nn.Parameter` with one element to learn it.
            n_positives: Positives that are drawn for each anchor, at least 1.
            positives_in_denominator: False for SINCERE's denominator.
            draw: Number that decides which positives are drawn; None takes one from torch's global generator at each
                call.
            **options: See `sincere.losses.options.ModuleOptions`; `help()` lists them here.
        """
        super().__init__(temperature, **options)
        caller = type(self).__name__
        self.n_positives = checks.count(caller, "n_positives", n_positives, least=1)
        self.positives_in_denominator = checks.flag(caller, "positives_in_denominator", positives_in_denominator)
        self.draw = None if draw is None else checks.count(caller, "draw", draw, least=0)


class NearestNeighboursLoss(SupervisedContrastiveLoss):
    """`nearest_neighbours_loss` as a module; paper: https://arxiv.org/abs/2110.06014."""

    function = staticmethod(nearest_neighbours_loss)
    option_names = (
        "temperature",
        "nearest_positives",
        "nearest_negatives",
        "positives_in_denominator",
        *MODULE_DEFAULTS,
    )

    @lists_options(ModuleOptions)
    def __init__(
        self,
        temperature: float | Tensor = 0.1,
        *,
        nearest_positives: int = 5,
        nearest_negatives: int = 50,
        positives_in_denominator: bool = True,
        **options: Unpack[ModuleOptions],
    ) -> None:
        """Check and hold what every call of the loss uses.

        Args:
            temperature: Divides the similarities. A positive number, or an `nn.Parameter` with one element to learn it.
            nearest_positives: Positives that are taken for each anchor, at least 1.
            nearest_negatives: Negatives that are taken for each anchor, at least 1.
            positives_in_denominator: False for SINCERE's form: each of those positives against those negatives.
            **options: See `sincere.losses.options.ModuleOptions`; `help()` lists them here.
        """
        super().__init__(temperature, **options)
        caller = type(self).__name__
        self.nearest_positives = checks.count(caller, "nearest_positives", nearest_positives, least=1)
        self.nearest_negatives = checks.count(caller, "nearest_negatives", nearest_negatives, least=1)
        self.positives_in_denominator = checks.flag(caller, "positives_in_denominator", positives_in_denominator)


class DebiasedLoss(SelfSupervisedLoss):
    """`debiased_loss` as a module; paper: https://arxiv.org/abs/2007.00224."""

    function = staticmethod(debiased_loss)
    option_names = ("temperature", "prior", *MODULE_DEFAULTS)

    @lists_options(ModuleOptions)
    def __init__(
        self, temperature: float | Tensor = 0.1, *, prior: float = 0.1, **options: Unpack[ModuleOptions]
    ) -> None:
        """Check and hold what every call of the loss uses.

        Args:
            temperature: Divides the similarities. A positive number, or an `nn.Parameter` with one element to learn it.
            prior: Probability that another image is of the anchor's class, at least 0 and below 1.
            **options: See `sincere.losses.options.ModuleOptions`; `help()` lists them here.
        """
        super().__init__(temperature, **options)
        caller = type(self).__name__
        self.prior = checks.number(caller, "prior", prior, least=0.0)
        if self.prior >= 1:
            raise InputValueError(checks.wording(caller, "prior must be a probability below 1", prior))
