"""Embeddings of a whole set, un-augmented and in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from sincere.evaluation.neighbours import find_neighbours


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


@torch.no_grad()
def half_is_enough(
    full: Callable[[Tensor], Tensor], half: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor
) -> bool:
    """Tell whether embeddings computed in half precision leave the metrics of a sample unchanged, leave-one-out.

    Args:
        full: Images to embeddings of unit length.
        half: The same in half precision.
        images: A sample to try both on.
        labels: Their classes.

    Returns:
        Whether 1-NN accuracy and margin both differ by at most 0.001.
    """
    own = torch.arange(len(labels), device=labels.device)
    figures = []
    for compute in (full, half):
        z = compute(images).float()
        found = find_neighbours(z, labels, z, labels, ks=(1,), leave_out=own)
        right = (found.predictions[1] == labels).double().mean()
        figures.append((right, found.target_similarity.median() - found.noise_similarity.median()))
    (right, margin), (half_right, half_margin) = figures
    return bool((right - half_right).abs() <= 1e-3 and (margin - half_margin).abs() <= 1e-3)
