"""The losses as modules: they hold hyper-parameters and call the function of the same name, nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from sincere import checks
from sincere.losses.functional import (
    REDUCTIONS,
    Kernel,
    Reduction,
    eps_supinfonce_loss,
    info_nce_loss,
    sincere_loss,
    supcon_loss,
)
from sincere.losses.inputs import check_temperature
from sincere.losses.kernels.select import KERNELS


class ContrastiveLoss(nn.Module):
    """Hyper-parameters that all losses share.

    Args:
        temperature: Divides the similarities. A positive number, or an `nn.Parameter` with one element to learn it.
        normalize: Scale embeddings to unit length first.
        reduction: "mean" over the anchors that have a partner, "sum" or "none".
        kernel: "auto", "dense" or "tiled".
    """

    temperature: float | Tensor
    hyper_parameters: ClassVar[tuple[str, ...]] = ("temperature", "normalize", "reduction", "kernel")

    def __init__(
        self,
        temperature: float | Tensor = 0.1,
        *,
        normalize: bool = True,
        reduction: Reduction = "mean",
        kernel: Kernel = "auto",
    ) -> None:
        super().__init__()
        caller = type(self).__name__
        check_temperature(caller, temperature, torch.float32)
        if isinstance(temperature, Tensor) and not isinstance(temperature, nn.Parameter):
            self.register_buffer("temperature", temperature)
        else:
            self.temperature = temperature
        self.normalize = checks.flag(caller, "normalize", normalize)
        self.reduction = checks.choice(caller, "reduction", reduction, REDUCTIONS)
        self.kernel = checks.choice(caller, "kernel", kernel, KERNELS)

    def options(self) -> dict[str, Any]:
        """Return the hyper-parameters as the function's keyword arguments."""
        return {name: getattr(self, name) for name in self.hyper_parameters}

    def extra_repr(self) -> str:
        """Return the hyper-parameters for `print(module)`."""
        return ", ".join(f"{name}={value!r}" for name, value in self.options().items())


class SupervisedContrastiveLoss(ContrastiveLoss):
    """A loss of embeddings and labels; a subclass names its function."""

    function: ClassVar[Callable[..., Tensor]]

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        *,
        keys: Tensor | None = None,
        key_labels: Tensor | None = None,
        anchor_index: Tensor | None = None,
    ) -> Tensor:
        """Return the loss; the arguments are those of `sincere_loss`."""
        contrasted = {"keys": keys, "key_labels": key_labels, "anchor_index": anchor_index}
        return type(self).function(embeddings, labels, **contrasted, **self.options())


class SINCERELoss(SupervisedContrastiveLoss):
    """`sincere_loss` as a module.

    Example:
        >>> import torch
        >>> criterion = SINCERELoss(temperature=0.1)
        >>> embeddings = torch.eye(4).repeat_interleave(2, dim=0)
        >>> round(criterion(embeddings, torch.arange(8) // 2).item(), 6)
        0.000272
    """

    function = staticmethod(sincere_loss)


class SupConLoss(SupervisedContrastiveLoss):
    """`supcon_loss` as a module."""

    function = staticmethod(supcon_loss)


class EpsSupInfoNCELoss(SupervisedContrastiveLoss):
    """`eps_supinfonce_loss` as a module.

    Args:
        temperature: As in the other losses.
        epsilon: The margin, at least 0.
        **options: `normalize`, `reduction` and `kernel`, as in the other losses.
    """

    function = staticmethod(eps_supinfonce_loss)
    hyper_parameters = (*ContrastiveLoss.hyper_parameters, "epsilon")

    def __init__(self, temperature: float | Tensor = 0.1, *, epsilon: float = 0.25, **options: Any) -> None:
        super().__init__(temperature, **options)
        self.epsilon = checks.number(type(self).__name__, "epsilon", epsilon, least=0.0)


class InfoNCELoss(ContrastiveLoss):
    """`info_nce_loss` as a module."""

    def forward(
        self,
        embeddings: Tensor,
        *,
        keys: Tensor | None = None,
        key_labels: Tensor | None = None,
        anchor_index: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of (n, views, d) embeddings; the arguments are those of `info_nce_loss`."""
        return info_nce_loss(embeddings, keys=keys, key_labels=key_labels, anchor_index=anchor_index, **self.options())
