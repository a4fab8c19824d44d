"""The losses as modules: they hold hyper-parameters and options and call the function of the same name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Unpack

from torch import Tensor

from sincere import checks
from sincere.losses.distributed.groups import check_group
from sincere.losses.functional import eps_supinfonce_loss, info_nce_loss, sincere_loss, supcon_loss
from sincere.losses.label_inputs import check_label_options
from sincere.losses.loss_module import LossModule
from sincere.losses.options import (
    KERNELS,
    KEY_DEFAULTS,
    MODULE_DEFAULTS,
    REDUCTIONS,
    KeyOptions,
    ModuleOptions,
    complete_options,
    lists_options,
)


class ContrastiveLoss(LossModule):
    """Hyper-parameters and options that all losses share; a subclass names its function."""

    function: ClassVar[Callable[..., Tensor]]
    option_names: ClassVar[tuple[str, ...]] = ("temperature", *MODULE_DEFAULTS)

    @lists_options(ModuleOptions)
    def __init__(self, temperature: float | Tensor = 0.1, **options: Unpack[ModuleOptions]) -> None:
        """Check and hold what every call of the loss uses.

        Args:
            temperature: Divides the similarities. A positive number, or an `nn.Parameter` with one element to learn it.
            **options: See `sincere.losses.options.ModuleOptions`; `help()` lists them here.
        """
        super().__init__(temperature)
        caller = type(self).__name__
        chosen = complete_options(type(self), options, MODULE_DEFAULTS)
        check_group(caller, chosen)
        check_label_options(caller, chosen)
        self.soft, self.label_similarity = chosen["soft"], chosen["label_similarity"]
        self.ignore_index = chosen["ignore_index"]
        self.normalize = checks.flag(caller, "normalize", chosen["normalize"])
        self.reduction = checks.choice(caller, "reduction", chosen["reduction"], REDUCTIONS)
        self.kernel = checks.choice(caller, "kernel", chosen["kernel"], KERNELS)
        self.group, self.exchange = chosen["group"], chosen["exchange"]


class SupervisedContrastiveLoss(ContrastiveLoss):
    """A loss of embeddings and labels."""

    if TYPE_CHECKING:  # nn.Module hides what forward takes and returns

        def __call__(self, embeddings: Tensor, labels: Tensor, **options: Unpack[KeyOptions]) -> Tensor:
            """Return the loss."""

    @lists_options(KeyOptions)
    def forward(self, embeddings: Tensor, labels: Tensor, **options: Unpack[KeyOptions]) -> Tensor:
        """Return the loss.

        Args:
            embeddings: (n, d), or (n, views, d) for several augmented views of each image; any float type.
            labels: (n,) or (n, L), as in `sincere_loss`.
            **options: See `sincere.losses.options.KeyOptions`; `help()` lists them here.
        """
        keys = complete_options(self.forward, options, KEY_DEFAULTS, caller=type(self).__name__)
        return type(self).function(embeddings, labels, **keys, **self.options())


class SINCERELoss(SupervisedContrastiveLoss):
    """`sincere_loss` as a module; paper: https://arxiv.org/abs/2309.14277.

    Example:
        >>> import torch
        >>> criterion = SINCERELoss(temperature=0.1)
        >>> embeddings = torch.eye(4).repeat_interleave(2, dim=0)
        >>> round(criterion(embeddings, torch.arange(8) // 2).item(), 6)
        0.000272
    """

    function = staticmethod(sincere_loss)


class SupConLoss(SupervisedContrastiveLoss):
    """`supcon_loss` as a module; paper: https://arxiv.org/abs/2004.11362."""

    function = staticmethod(supcon_loss)


class EpsSupInfoNCELoss(SupervisedContrastiveLoss):
    """`eps_supinfonce_loss` as a module; paper: https://arxiv.org/abs/2211.05568."""

    function = staticmethod(eps_supinfonce_loss)
    option_names = ("temperature", "epsilon", *MODULE_DEFAULTS)

    @lists_options(ModuleOptions)
    def __init__(
        self, temperature: float | Tensor = 0.1, *, epsilon: float = 0.25, **options: Unpack[ModuleOptions]
    ) -> None:
        """Check and hold what every call of the loss uses.

        Args:
            temperature: Divides the similarities. A positive number, or an `nn.Parameter` with one element to learn it.
            epsilon: The margin, at least 0; 0 is SINCERE.
            **options: See `sincere.losses.options.ModuleOptions`; `help()` lists them here.
        """
        super().__init__(temperature, **options)
        self.epsilon = checks.number(type(self).__name__, "epsilon", epsilon, least=0.0)


class SelfSupervisedLoss(ContrastiveLoss):
    """A loss of embeddings alone: the views of an image are its positives."""

    if TYPE_CHECKING:

        def __call__(self, embeddings: Tensor, **options: Unpack[KeyOptions]) -> Tensor:
            """Return the loss."""

    @lists_options(KeyOptions)
    def forward(self, embeddings: Tensor, **options: Unpack[KeyOptions]) -> Tensor:
        """Return the loss.

        Args:
            embeddings: (n, views, d) with at least 2 views. With `keys` also (n, d).
            **options: See `sincere.losses.options.KeyOptions`; `help()` lists them here.
        """
        keys = complete_options(self.forward, options, KEY_DEFAULTS, caller=type(self).__name__)
        return type(self).function(embeddings, **keys, **self.options())


class InfoNCELoss(SelfSupervisedLoss):
    """`info_nce_loss` as a module; paper: https://arxiv.org/abs/1807.03748."""

    function = staticmethod(info_nce_loss)
