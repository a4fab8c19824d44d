"""What is reached without training: the most frequent class, and the nearest neighbour by pixels or features."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate, normalize

from sincere.evaluation.embed import PlainBatch

SIDE = 32  # pixels: larger images are reduced, which costs a nearest neighbour by pixels nothing


def majority_correct(train_labels: NDArray[np.int64], test_labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return 1 for each test image of the most frequent class of the training images, else 0."""
    correct: NDArray[np.float64] = (test_labels == np.bincount(train_labels).argmax()).astype(np.float64)
    return correct


@torch.no_grad()
def nearest_correct(queries: Iterable[PlainBatch], references: Iterable[PlainBatch]) -> NDArray[np.float64]:
    """Return 1 for each query whose nearest reference is of its class, else 0.

    Pixels are compared by Euclidean distance, features by cosine similarity, as in evaluation.
    References are read batch by batch, so that memory does not grow with their number.
    """
    parts = [(_vectors(batch.inputs), batch.labels) for batch in queries]
    vectors, labels = (torch.cat(column) for column in zip(*parts, strict=True))
    best = vectors.new_full((len(vectors),), -torch.inf)
    found = torch.full_like(labels, -1)
    for batch in references:
        others = _vectors(batch.inputs)
        # The nearest has the largest x.y - ||y||^2 / 2.
        nearness, at = (vectors @ others.T - others.square().sum(dim=1) / 2).max(dim=1)
        nearer = nearness > best
        best = torch.where(nearer, nearness, best)
        found = torch.where(nearer, batch.labels[at], found)
    correct: NDArray[np.float64] = (found == labels).double().cpu().numpy()
    return correct


def _vectors(inputs: Tensor) -> Tensor:
    """Return pixels from -1/2 to 1/2, of images of at most 32 px a side, or features of unit length (n, d)."""
    if inputs.ndim == 2:
        return normalize(inputs.float(), dim=1)
    pixels = inputs.float().div(255).sub(0.5) if inputs.dtype == torch.uint8 else inputs.float() - 0.5
    if max(pixels.shape[-2:]) > SIDE:
        pixels = interpolate(pixels, (SIDE, SIDE), mode="bilinear", antialias=True)
    return pixels.flatten(1)
