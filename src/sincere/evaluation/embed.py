"""Embeddings of all images of a set, in order and without augmentation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class PlainBatch(Protocol):
    """A batch of images or features without augmentation."""

    @property
    def inputs(self) -> Tensor:
        """Pixels of each image, or the features of each sample."""
        ...

    @property
    def labels(self) -> Tensor:
        """Class of each image."""
        ...

    @property
    def ids(self) -> Tensor:
        """Id of each image."""
        ...


@dataclass(frozen=True, eq=False)
class EmbeddedImages:
    """Embeddings (n, d) with the class (n,) or label set (n, L), and the id (n,) of each image."""

    embeddings: Tensor
    labels: Tensor
    ids: Tensor


@torch.no_grad()
def embed(compute: Callable[[Tensor], Tensor], batches: Iterable[PlainBatch]) -> EmbeddedImages:
    """Return the output of `compute` for each image, in the order of the batches."""
    parts = [(compute(batch.inputs), batch.labels, batch.ids) for batch in batches]
    embeddings, labels, ids = (torch.cat(column) for column in zip(*parts, strict=True))
    return EmbeddedImages(embeddings, labels, ids)
