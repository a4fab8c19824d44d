"""Values of single images whose mean is a statistic and whose spread is its sampling error."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from sincere.evaluation.influence import influence_values
from sincere.evaluation.knn import balanced_values

CPU = torch.device("cpu")


def test_the_mean_is_the_statistic_and_the_spread_its_error() -> None:
    """Of a variance, whose sampling error is known: 2 sigma^4 / n for normal data."""
    generator = np.random.default_rng(0)
    x = torch.from_numpy(generator.normal(0, 2, 4000))

    def variance(weights: Tensor) -> Tensor:
        mean = (weights * x).sum() / weights.sum()
        return (weights * (x - mean).square()).sum() / weights.sum()

    values = influence_values(variance, len(x), CPU)
    assert values.mean() == pytest.approx(float(x.var(correction=0)))
    assert values.std() / np.sqrt(len(x)) == pytest.approx(np.sqrt(2 * 2.0**4 / len(x)), rel=0.05)


def test_influence_is_what_a_little_more_weight_changes() -> None:
    x = torch.tensor([1.0, 2.0, 3.0, 10.0], dtype=torch.float64)

    def statistic(weights: Tensor) -> Tensor:
        return ((weights * x).sum() / weights.sum()).log()

    values = influence_values(statistic, 4, CPU)
    for i in range(4):
        more = torch.ones(4, dtype=torch.float64)
        more[i] += 1e-6
        change = float(statistic(more) - statistic(torch.ones(4, dtype=torch.float64)))
        assert values[i] - values.mean() == pytest.approx(4 * change / 1e-6, abs=1e-4)


def test_a_constant_has_no_spread() -> None:
    assert influence_values(lambda weights: (weights.sum() / weights.sum()) * 3, 5, CPU).tolist() == [3.0] * 5
    assert influence_values(lambda weights: torch.tensor(2.0, requires_grad=True) * 1, 2, CPU).tolist() == [2.0] * 2


def test_balanced_accuracy_is_that_of_scikit_learn_and_its_spread_the_error() -> None:
    from sklearn.metrics import balanced_accuracy_score

    estimates, errors = [], []
    for seed in range(400):
        generator = np.random.default_rng(seed)
        labels = generator.choice(3, size=300, p=[0.8, 0.15, 0.05])
        right = generator.random(300) < np.array([0.95, 0.6, 0.4])[labels]
        values = balanced_values(right.astype(float), labels)
        assert values.mean() == pytest.approx(
            balanced_accuracy_score(labels, np.where(right, labels, (labels + 1) % 3))
        )
        estimates.append(values.mean())
        errors.append(values.std() / np.sqrt(300))
    assert np.mean(errors) == pytest.approx(np.std(estimates), rel=0.1)
