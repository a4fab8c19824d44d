"""The loss that a run minimises: over the batch of all its processes, with or without a queue."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sincere.catalog import own_name
from sincere.errors import UnsupportedError
from sincere.loss_catalog import LOSSES
from sincere.losses.queue import MemoryQueue, queued_loss
from sincere.losses.sums import LossSum
from sincere.settings.requests import RunSettings

LossFunction = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class TrainingLoss:
    """The loss of a run and what it keeps from step to step.

    Attributes:
        function: Maps a network's output (n, n_views, d) and labels (n,) to the loss. The output begins with the
            embeddings; where the loss needs a classifier, its logits follow.
        criterion: The loss as it is in the catalog. Its buffers change in training if it keeps something.
        queue: The queue that it reads, if any.
    """

    function: LossFunction
    criterion: Any
    queue: MemoryQueue | None = None

    @property
    def state(self) -> nn.Module | None:
        """What belongs into a checkpoint besides the queue: the loss, if it has buffers."""
        has_state = isinstance(self.criterion, nn.Module) and any(True for _ in self.criterion.buffers())
        return self.criterion if has_state else None


def training_loss(settings: RunSettings, *, n_processes: int, dim: int, n_classes: int) -> TrainingLoss:
    """Return the loss of a run, for embeddings of a dimension and a number of classes.

    Raises:
        UnsupportedError: The settings have a queue, and the loss takes no keys.
    """
    name = settings.loss.name
    make = partial(_make, settings, dim=dim, n_classes=n_classes)
    needs_labels = LOSSES[name].needs_labels
    if not settings.batches.queue:
        across: dict[str, Any] = {"group": "world"} if n_processes > 1 else {}
        criterion = make(**across)

        def loss(outputs: Tensor, labels: Tensor) -> Tensor:
            value: Tensor
            if LOSSES[name].needs_classifier:
                value = criterion(outputs[..., :dim], labels, logits=outputs[..., dim:])
            else:
                value = criterion(outputs, labels) if needs_labels else criterion(outputs)
            return value

        return TrainingLoss(loss, criterion)
    criterion = make()
    if "keys" not in inspect.signature(getattr(criterion, "forward", criterion)).parameters:
        raise UnsupportedError(f"train: the loss {own_name(name)} takes no keys= and cannot use a queue; use --queue 0")
    criterion = make(reduction="sum")
    queue = MemoryQueue(settings.batches.queue, dim, group="world" if n_processes > 1 else None)
    if needs_labels:
        return TrainingLoss(partial(queued_loss, criterion, queue), criterion, queue)

    def image_loss(embeddings: Tensor, images: Tensor, *, key_labels: Tensor, **keys: Tensor) -> Tensor:
        numbers = key_labels - images[0]  # a self-supervised loss counts the images of its anchors from 0
        is_own = (numbers >= 0) & (numbers < len(images))
        value: Tensor = criterion(embeddings, key_labels=numbers.where(is_own, -1), **keys)
        return value

    def unlabelled_loss(embeddings: Tensor, labels: Tensor) -> Tensor:
        return queued_loss(image_loss, queue, embeddings, torch.full_like(labels, -1))

    return TrainingLoss(unlabelled_loss, criterion, queue)


def _make(settings: RunSettings, *, dim: int, n_classes: int, **options: Any) -> Any:
    """Return the loss of the settings as the catalog makes it."""
    entry = LOSSES[settings.loss.name]
    sizes = {"n_classes": n_classes, "dim": dim} if entry.needs_classes else {}
    return entry.load()(settings.loss.temperature, **settings.hyper_parameters(), **sizes, **options)


@torch.no_grad()
def terms_of_sum(
    settings: RunSettings, trained: TrainingLoss, outputs: Tensor, labels: Tensor, *, dim: int, n_classes: int
) -> dict[str, float]:
    """Return the terms of a sum of losses for the log, weighted, by the names "term_<loss>"; empty for another loss.

    `outputs` are those of the batch of all processes.
    """
    if not isinstance(trained.criterion, LossSum):
        return {}
    criterion: LossSum = _make(settings, dim=dim, n_classes=n_classes).to(outputs.device).eval()
    criterion.load_state_dict(trained.criterion.state_dict())
    terms = criterion.terms(outputs[..., :dim], labels, logits=outputs[..., dim:])
    return {f"term_{name}": float(value) for name, value in terms.items()}
