"""The losses as `compute_loss_func` of the Hugging Face `Trainer` (https://huggingface.co/docs/transformers).

loss_func = contrastive_loss_func(temperature=0.1, embedding="pooler_output")
Trainer(model, args, train_dataset=dataset, compute_loss_func=loss_func).train()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from sincere import checks
from sincere.errors import InputTypeError, InputValueError, MissingPackageError, UnsupportedError, missing_package
from sincere.integrations.named_loss import NamedLoss
from sincere.loss_catalog import DEFAULT_LOSS

try:
    from transformers.utils.generic import ModelOutput
except ModuleNotFoundError as error:
    raise MissingPackageError(missing_package("sincere.integrations.transformers", error)) from error

IGNORED = -100  # label of an item that the Trainer does not count
_CALLER = "contrastive_loss_func"


def contrastive_loss_func(
    loss: str = DEFAULT_LOSS,
    *,
    temperature: float = 0.1,
    embedding: str | Callable[[Any], Tensor] = "pooler_output",
    **options: Any,
) -> Callable[..., Tensor]:
    """Return a function for `Trainer(compute_loss_func=...)` that contrasts the embeddings of a batch by label.

    The Trainer adds up the losses of the batches between two optimiser steps (`gradient_accumulation_steps`) and passes
    the number of their items. Each batch therefore counts by its share of these items: the sum is the mean of the
    losses of the batches. It is not the loss of the combined batch, because items of different batches never meet.

    Args:
        loss: Name of the loss in `sincere.loss_catalog.LOSSES`.
        temperature: Divides the similarities. A number: the optimiser of the Trainer sees no parameters of a loss.
        embedding: Where the embedding is: the name of a field of the model's output with shape (n, d), or a function
            from the output to embeddings (n, d) or (n, views, d), such as `lambda out: out.last_hidden_state[:, 0]`.
        **options: Further arguments of the loss: `epsilon`, `normalize` or `kernel`.

    Returns:
        A function of the model's output, the labels (n,) and `num_items_in_batch`. The label -100, which the Trainer
        does not count, means "no label", as -1 does in `sincere_loss`.

    Raises:
        InputTypeError, InputValueError: There is no such loss or option, or a value is out of range.
        UnsupportedError: An option that the Trainer's own scaling of the loss excludes.
    """
    for name in ("reduction", "group", "exchange"):
        if name in options:
            message = f"the Trainer scales the mean over the batch of each process; leave {name} out"
            raise UnsupportedError(f"{_CALLER}: {name} is not supported: {message}")
    if not isinstance(embedding, str) and not callable(embedding):
        requirement = "embedding must be the name of an output field or a function"
        raise InputTypeError(checks.wording(_CALLER, requirement, type(embedding).__name__))
    criterion = NamedLoss(_CALLER, loss, checks.number(_CALLER, "temperature", temperature, above=0.0), options)

    def compute_loss(outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        embeddings = _field(outputs, embedding) if isinstance(embedding, str) else embedding(outputs)
        if labels is None:
            return criterion(embeddings, None)  # type: ignore[no-any-return]
        ignored = labels == IGNORED
        value: Tensor = criterion(embeddings, labels.masked_fill(ignored, -1))
        if num_items_in_batch is None:
            return value
        share = (~ignored).sum() / num_items_in_batch
        return value * share.nan_to_num(0.0)  # nothing counts where every label is -100

    return compute_loss


def _field(outputs: Any, name: str) -> Tensor:
    """Return the embeddings (n, d) that a field of a model's output holds."""
    fields = list(outputs) if isinstance(outputs, ModelOutput | dict) else []
    if name not in fields:
        names = ", ".join(map(repr, fields))
        got = f"one with {names}" if fields else type(outputs).__name__
        remedy = "Pass a function as embedding: it takes the output and returns embeddings (n, d)"
        raise InputValueError(checks.wording(_CALLER, f"the model's output must have a field {name!r}", got, remedy))
    value = checks.tensor(_CALLER, name, outputs[name])
    if value.ndim != 2:
        remedy = f"Pass a function as embedding, such as lambda out: out.{name}[:, 0]"
        raise InputValueError(checks.wording(_CALLER, f"{name} must have shape (n, d)", checks.shape(value), remedy))
    return value
