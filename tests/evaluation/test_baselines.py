"""Baselines without training, against scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from sincere.evaluation.baselines import majority_correct, nearest_correct


@dataclass
class Plain:
    inputs: Tensor
    labels: Tensor
    ids: Tensor


def batches(inputs: Tensor, labels: Tensor, size: int) -> list[Plain]:
    return [Plain(x, y, y) for x, y in zip(inputs.split(size), labels.split(size), strict=True)]


@pytest.mark.parametrize("size", [7, 64, 1000])
@pytest.mark.parametrize(("kind", "metric"), [("pixels", "euclidean"), ("features", "cosine")])
def test_the_nearest_is_that_of_scikit_learn(kind: str, metric: str, size: int) -> None:
    generator = torch.Generator().manual_seed(0)
    shape = (3, 5, 4) if kind == "pixels" else (12,)
    labels = torch.randint(3, (160,), generator=generator)
    if kind == "pixels":
        values = torch.randint(256, (160, *shape), generator=generator, dtype=torch.uint8)
    else:
        values = torch.randn(160, *shape, generator=generator) * torch.rand(160, 1, generator=generator) * 9
    found = nearest_correct(batches(values[:40], labels[:40], 16), batches(values[40:], labels[40:], size))
    rows = values.flatten(1).double().numpy()
    other = KNeighborsClassifier(1, metric=metric).fit(rows[40:], labels[40:])
    assert np.array_equal(found, (other.predict(rows[:40]) == labels[:40].numpy()).astype(float))


def test_large_images_are_reduced() -> None:
    generator = torch.Generator().manual_seed(0)
    coarse = torch.randint(256, (6, 3, 4, 4), generator=generator, dtype=torch.uint8)
    large = coarse.repeat_interleave(20, dim=2).repeat_interleave(20, dim=3)
    labels = torch.arange(6)
    assert nearest_correct(batches(large, labels, 6), batches(large, labels, 2)).tolist() == [1.0] * 6


def test_the_majority_is_that_of_the_training_images() -> None:
    assert majority_correct(np.array([2, 2, 1]), np.array([1, 1, 2])).tolist() == [0, 0, 1]
