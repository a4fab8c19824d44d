"""A loss by its name in the catalog, in the form that the drop-ins for other libraries hold it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sincere import checks
from sincere.errors import InputTypeError, InputValueError
from sincere.loss_catalog import find_loss
from sincere.losses.options import MODULE_DEFAULTS


class NamedLoss(nn.Module):
    """A loss of `sincere.loss_catalog.LOSSES`, called with labels if it compares classes, else without.

    Attributes:
        name: Its name in the catalog.
        entry: What the catalog says about it.
        criterion: The loss itself; a temperature that is an `nn.Parameter` is one of its parameters.
    """

    def __init__(self, caller: str, loss: str, temperature: float | Tensor, options: dict[str, Any]) -> None:
        """Load the loss.

        Args:
            caller: Name of the drop-in, for messages.
            loss: Name of the loss.
            temperature: Divides the similarities. An `nn.Parameter` with one element is learned.
            options: Further keyword arguments of the loss, such as `epsilon` or `kernel`.

        Raises:
            InputTypeError, InputValueError: There is no such loss or option, or it returns more than one number.
        """
        super().__init__()
        self.entry = find_loss(loss, caller=caller)
        if options.get("reduction") == "none":
            requirement = "reduction must be 'mean' or 'sum', because a trainer needs one number"
            raise InputValueError(checks.wording(caller, requirement, "'none'"))
        if self.entry.needs_classifier:
            requirement = "loss must be a contrastive loss, or a sum of such: here is no classifier for cross-entropy"
            raise InputValueError(checks.wording(caller, requirement, repr(loss)))
        if self.entry.needs_classes and not {"n_classes", "dim"} <= options.keys():
            requirement = f"n_classes and dim must be given for the loss {loss}, which keeps something for each class"
            raise InputTypeError(checks.wording(caller, requirement, ", ".join(options) or "neither"))
        self.caller, self.name = caller, loss
        self.criterion: Any = self.entry.load()(temperature, **options)

    def forward(self, embeddings: Tensor, labels: Tensor | None) -> Tensor:
        """Return the loss of embeddings (n, d) or (n, views, d) and labels (n,), which may be None without classes.

        Raises:
            InputTypeError: The loss compares classes, and there are no labels.
        """
        if not self.entry.needs_labels:
            loss: Tensor = self.criterion(embeddings)
            return loss
        if labels is None:
            requirement = f"labels must be given, because {self.name} compares classes"
            remedy = 'Without labels, use several views and loss="infonce"'
            raise InputTypeError(checks.wording(self.caller, requirement, None, remedy))
        loss = self.criterion(embeddings, labels)
        return loss

    def learn_temperature(self, start: Tensor) -> None:
        """Make the temperature one that is learned, from a given value on; the terms of a sum share it."""
        learned = nn.Parameter(start.detach().clone())
        for module in self.criterion.modules():
            if "temperature" in vars(module):
                module.temperature = learned

    def config(self) -> dict[str, Any]:
        """Return name, hyper-parameters and options that are not the defaults, as plain values.

        Example:
            >>> NamedLoss("demo", "eps-supinfonce", 0.1, {"kernel": "dense"}).config()
            {'loss': 'eps-supinfonce', 'temperature': 0.1, 'epsilon': 0.25, 'kernel': 'dense'}
        """
        options: dict[str, Any] = self.criterion.options()
        own = ["temperature", *(parameter.name for parameter in self.entry.hyper_parameters)]
        defaults: dict[str, Any] = {**MODULE_DEFAULTS, "positives_in_denominator": True}
        changed = [name for name, default in defaults.items() if options.get(name, default) != default]
        values = {name: options[name] for name in (*own, *changed)}
        return {"loss": self.name, **{name: _plain(value) for name, value in values.items()}}


def stack_views(views: Sequence[Tensor]) -> Tensor:
    """Return the embeddings (n, d) of one view as they are, those of several as (n, views, d)."""
    return views[0] if len(views) == 1 else torch.stack(list(views), dim=1)


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return round(value.item(), 6)
    return value if isinstance(value, bool | int | float | str) else str(value)
