"""A memory queue: the embeddings of earlier batches, kept to be contrasted with.

He et al. 2020 (https://arxiv.org/abs/1911.05722) keep those of a slowly moving copy of the network, Wang et al. 2020
(https://arxiv.org/abs/1912.06798) those of the network itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sincere import checks
from sincere.errors import InputValueError
from sincere.losses.distributed.collectives import GatherRows, TotalLoss, gather, sizes_of
from sincere.losses.distributed.groups import check_group, default_as_none, find_group
from sincere.losses.inputs import FIRST_UNLABELLED
from sincere.losses.options import DEFAULTS

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

EMPTY = -100  # label of a row that is not filled


class MemoryQueue(nn.Module):
    """A ring buffer of embeddings and labels: the newest take the place of the oldest.

    It is part of `state_dict()` and moves between devices and types like any module, but has no parameters.

    Attributes:
        embeddings: Stored embeddings (size, dim), without gradients.
        labels: Their labels (size,): -1 for an image without a label, -100 for a row that is not filled yet.

    Example:
        >>> queue = MemoryQueue(size=3, dim=2)
        >>> _ = queue.enqueue(torch.eye(2), torch.tensor([7, 8]))
        >>> queue.filled()[1].tolist(), queue.labels.tolist()
        ([7, 8], [7, 8, -100])
        >>> queue.enqueue(torch.eye(2), torch.tensor([9, 4])).tolist()  # where they are now
        [2, 0]
        >>> queue.labels.tolist()
        [4, 8, 9]
    """

    embeddings: Tensor
    labels: Tensor

    def __init__(self, size: int, dim: int, *, group: ProcessGroup | Literal["world"] | None = None) -> None:
        """Make an empty queue.

        Args:
            size: Number of embeddings that it holds; each view of an image is one.
            dim: Dimension of an embedding.
            group: The processes that share it, as in `sincere_loss`: each enqueues the rows of all of them, in order
                of rank, so that all hold the same queue. None for a queue of this process alone.

        Raises:
            InputTypeError, InputValueError: `size` or `dim` is no positive integer, or `group` is wrong.
        """
        super().__init__()
        caller = type(self).__name__
        self.size = checks.count(caller, "size", size, least=1)
        self.dim = checks.count(caller, "dim", dim, least=1)
        check_group(caller, {**DEFAULTS, "group": group})
        self.group = group
        # The number of rows ever enqueued is known to the CPU, so that reading it waits for no device.
        self.n_enqueued = 0
        self.register_buffer("embeddings", torch.zeros(self.size, self.dim))
        self.register_buffer("labels", torch.full((self.size,), EMPTY))

    def __len__(self) -> int:
        """Return the number of rows that are filled."""
        return min(self.n_enqueued, self.size)

    def filled(self) -> tuple[Tensor, Tensor]:
        """Return the filled embeddings (m, dim) and their labels (m,): views that the next `enqueue` changes."""
        return self.embeddings[: len(self)], self.labels[: len(self)]

    @torch.no_grad()
    def enqueue(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Store a batch, detached; of one that is larger than the queue, its last rows.

        Args:
            embeddings: (n, dim), or (n, views, dim) for several views of each image.
            labels: (n,), any integer type; -1 means "no label": a key that is a negative for every anchor.

        Returns:
            The row of the queue that each embedding went to, (n,) or (n, views), for `anchor_index` of a loss; -1 where
            later rows of the batch have taken its place.

        Raises:
            InputTypeError, InputValueError: The embeddings have another dimension or device, or the labels do not fit.
        """
        caller = f"{type(self).__name__}.enqueue"
        checks.float_rows(caller, "embeddings", embeddings)
        if embeddings.shape[-1] != self.dim:
            requirement = f"embeddings must have the queue's dimension {self.dim}"
            raise InputValueError(checks.wording(caller, requirement, f"shape {checks.shape(embeddings)}"))
        if embeddings.device != self.embeddings.device:
            requirement = f"embeddings must be on the queue's device {self.embeddings.device}"
            raise InputValueError(checks.wording(caller, requirement, embeddings.device, "Move the queue with .to()"))
        n, shape = len(embeddings), checks.shape(embeddings)[:-1]
        form = f"(n,) with n = {n} embeddings"
        labels = checks.integers(caller, "labels", labels, expected=(n,), form=form, like=embeddings)
        rows = embeddings.flatten(0, -2).to(self.embeddings.dtype)
        classes = labels.repeat_interleave(len(rows) // n)
        first, n_own = 0, len(rows)
        if (processes := self.processes()) is not None:
            group = default_as_none(processes)
            sizes = sizes_of(n_own, group)
            rows, classes = gather(rows, sizes, group), gather(classes, sizes, group)
            first = sum(sizes[: dist.get_rank(group)])
        order = torch.arange(len(rows), device=rows.device)
        slots = (order + self.n_enqueued % self.size) % self.size
        n_replaced = max(0, len(rows) - self.size)
        self.embeddings[slots[n_replaced:]] = rows[n_replaced:]
        self.labels[slots[n_replaced:]] = classes[n_replaced:]
        self.n_enqueued += len(rows)
        return slots.masked_fill(order < n_replaced, -1)[first : first + n_own].view(shape)

    def processes(self) -> ProcessGroup | None:
        """Return the processes that share the queue; None for this process alone."""
        return find_group(type(self).__name__, {**DEFAULTS, "group": self.group})

    def get_extra_state(self) -> Tensor:
        """Return what `state_dict` holds besides the rows: how many were ever enqueued."""
        return torch.tensor(self.n_enqueued)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore what `get_extra_state` has returned."""
        self.n_enqueued = int(state)

    def extra_repr(self) -> str:
        """Return size and dimension for `print(module)`."""
        return f"size={self.size}, dim={self.dim}, group={self.group!r}"


def queued_loss(criterion: Callable[..., Tensor], queue: MemoryQueue, embeddings: Tensor, labels: Tensor) -> Tensor:
    """Return the mean loss of a batch, of all processes that share it, contrasted with itself and with a queue.

    Equal to one process that holds the whole batch; gradients are right after the averaging of
    DistributedDataParallel.

    Args:
        criterion: Maps embeddings and labels, with `keys`, `key_labels` and `anchor_index`, to the sum of the losses of
            the anchors: a supervised loss with reduction="sum".
        queue: Earlier embeddings; this batch is not enqueued.
        embeddings: (n, views, d).
        labels: (n,); -1 means "no label": the other views are the only positives.

    Example:
        >>> from sincere import SINCERELoss
        >>> queue, z = MemoryQueue(8, 2), torch.tensor([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])
        >>> criterion = SINCERELoss(1.0, reduction="sum")
        >>> queued_loss(criterion, queue, z, torch.tensor([0, 1]))  # log(e + 2) - 1
        tensor(0.5514)
        >>> _ = queue.enqueue(z, torch.tensor([2, 2]))
        >>> queued_loss(criterion, queue, z, torch.tensor([0, 1]))  # four negatives more: log(3 e + 4) - 1
        tensor(1.4977)
    """
    n, n_views = embeddings.shape[:2]
    rows, classes, first = embeddings.flatten(0, 1), labels, 0
    processes = queue.processes()
    group = None if processes is None else default_as_none(processes)
    if processes is not None:
        sizes = sizes_of(n, group)
        classes, first = gather(labels, sizes, group), sum(sizes[: dist.get_rank(group)])
        rows = GatherRows.apply(rows, [size * n_views for size in sizes], group)
    # Each unlabelled image of the batch is a class of its own; those of the queue match nobody.
    classes = classes.where(classes != -1, FIRST_UNLABELLED + torch.arange(len(classes), device=classes.device))
    old, old_classes = queue.filled()
    key_classes = torch.cat([classes.repeat_interleave(n_views), old_classes])
    own = torch.arange(first * n_views, (first + n) * n_views, device=rows.device).view(n, n_views)
    total = criterion(
        embeddings,
        classes[first : first + n],
        keys=torch.cat([rows, old.to(rows.dtype)]),
        key_labels=key_classes,
        anchor_index=own,
    )
    mean = total / _count_anchors(classes.repeat_interleave(n_views), key_classes)
    if processes is None:
        return mean
    everyone: Tensor = TotalLoss.apply(mean, group)
    return everyone


def _count_anchors(classes: Tensor, key_classes: Tensor) -> Tensor:
    """Return how many anchors, which are keys themselves, have another key of their class; at least 1."""
    ordered = key_classes.sort().values
    n_same = torch.searchsorted(ordered, classes, right=True) - torch.searchsorted(ordered, classes)
    return (n_same > 1).sum().clamp_min(1)
