"""Accuracies of frequent and rare classes are means over their classes, with intervals like any other metric."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sincere.evaluation.knn import balanced_values
from sincere.evaluation.long_tail import measure
from sincere.evaluation.model_outputs import ModelOutputs, PartOutputs
from sincere.statistics.bootstrap import interval


def part(sizes: list[int], seed: int) -> PartOutputs:
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    centres = torch.randn(len(sizes), 6, generator=torch.Generator().manual_seed(9))
    noise = torch.randn(len(labels), 6, generator=torch.Generator().manual_seed(seed))
    rows = torch.nn.functional.normalize(centres[labels] + 0.9 * noise, dim=1)
    return PartOutputs(rows, rows, labels, torch.arange(len(labels)))


TRAIN, TEST = [101, 100, 20, 19, 3], [10, 20, 30, 40, 50]


def test_each_group_is_the_mean_over_its_classes() -> None:
    outputs = ModelOutputs(part(TRAIN, 0), part(TEST, 1))
    correct = (outputs.neighbours.predictions[1] == outputs.test.labels).double()
    by_class = [float(correct[outputs.test.labels == label].mean()) for label in range(5)]
    assert 0.2 < np.mean(by_class) < 0.95
    metrics = measure(outputs)
    expected = {
        "knn1_balanced": by_class,
        "knn1_many": by_class[:1],
        "knn1_medium": by_class[1:3],
        "knn1_few": by_class[3:],
    }
    assert list(metrics) == list(expected)
    for name, values in expected.items():
        assert metrics[name].values.shape == (150,)
        assert metrics[name].values.mean() == pytest.approx(np.mean(values), abs=1e-12)


def test_a_group_without_classes_is_left_out() -> None:
    assert list(measure(ModelOutputs(part([30, 40], 0), part([5, 5], 1)))) == ["knn1_balanced", "knn1_medium"]
    without_test_images = ModelOutputs(part([30, 40, 2], 0), part([5, 5, 0], 1))
    assert list(measure(without_test_images)) == ["knn1_balanced", "knn1_medium"]


def test_the_interval_of_a_group_is_that_of_its_images() -> None:
    """A class of 400 images among 2,000: the interval of its accuracy is as if there were no others."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(5), 400)
    correct = (generator.random(2000) < 0.7).astype(np.float64)
    among = labels == 2
    spread = interval(balanced_values(correct, labels, among=among), n_resamples=2000, seed=0)
    alone = interval(correct[among], n_resamples=2000, seed=0)
    assert spread.estimate == pytest.approx(alone.estimate, abs=1e-12)
    assert spread.high - spread.low == pytest.approx(alone.high - alone.low, rel=0.08)
