"""Embeddings of all images of a set, in order and without augmentation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from sincere.evaluation.neighbours import find_neighbours


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
    """Embeddings (n, d) with the label (n,) and id (n,) of each image."""

    embeddings: Tensor
    labels: Tensor
    ids: Tensor


@torch.no_grad()
def embed(compute: Callable[[Tensor], Tensor], batches: Iterable[PlainBatch]) -> EmbeddedImages:
    """Return the output of `compute` for each image, in the order of the batches."""
    parts = [(compute(batch.inputs), batch.labels, batch.ids) for batch in batches]
    embeddings, labels, ids = (torch.cat(column) for column in zip(*parts, strict=True))
    return EmbeddedImages(embeddings, labels, ids)


@torch.no_grad()
def half_precision_suffices(
    full: Callable[[Tensor], Tensor], half: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor
) -> bool:
    """Return whether half precision leaves the metrics of a sample unchanged.

    Args:
        full: Maps images to embeddings of unit length, in full precision.
        half: The same in half precision.
        images: A sample of images.
        labels: Class of each image.

    Returns:
        Whether leave-one-out 1-NN accuracy and margin both differ by at most 0.001.
    """
    own = torch.arange(len(labels), device=labels.device)
    metrics = []
    for compute in (full, half):
        z = compute(images).float()
        neighbours = find_neighbours(z, labels, z, labels, ks=(1,), leave_out=own)
        accuracy = (neighbours.predictions[1] == labels).double().mean()
        metrics.append((accuracy, neighbours.target_similarity.median() - neighbours.noise_similarity.median()))
    (accuracy, margin), (half_accuracy, half_margin) = metrics
    return bool((accuracy - half_accuracy).abs() <= 1e-3 and (margin - half_margin).abs() <= 1e-3)
