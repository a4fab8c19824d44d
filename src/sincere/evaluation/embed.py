"""Embeddings of a whole set, un-augmented and in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class PlainBatch(Protocol):
    """A batch of a set that is read in order."""

    @property
    def images(self) -> Tensor:
        """Pixels."""
        ...

    @property
    def labels(self) -> Tensor:
        """Classes."""
        ...

    @property
    def ids(self) -> Tensor:
        """Which image of the source each is."""
        ...


@dataclass(frozen=True, eq=False)
class Embedded:
    """Embeddings (n, d) with the class and id of each image."""

    embeddings: Tensor
    labels: Tensor
    ids: Tensor


@torch.no_grad()
def embed(compute: Callable[[Tensor], Tensor], batches: Iterable[PlainBatch]) -> Embedded:
    """Return what `compute` makes of each image, in the order of the batches."""
    parts = [(compute(batch.images), batch.labels, batch.ids) for batch in batches]
    embeddings, labels, ids = (torch.cat(column) for column in zip(*parts, strict=True))
    return Embedded(embeddings, labels, ids)
