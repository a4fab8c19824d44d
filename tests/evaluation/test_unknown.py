"""Scores of unknown images against independent formulas, and the false-alarm rate that p-values promise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.spatial.distance import mahalanobis
from scipy.stats import binom
from sklearn.metrics import roc_auc_score, roc_curve
from torch import Tensor
from torch.nn.functional import normalize

from sincere.catalog import UNKNOWN_SCORES
from sincere.evaluation.unknown import (
    SCORES,
    SHRINKAGE,
    Scores,
    auroc_values,
    fpr95_values,
    mahalanobis_score,
    nearest_score,
    p_values,
)


def sample(n: int, seed: int, centres: Tensor) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % len(centres)
    noise = 0.4 * torch.randn(n, centres.shape[1], generator=generator)
    return normalize(centres[labels] + noise, dim=1), labels


@pytest.fixture
def centres() -> Tensor:
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


def test_the_table_of_names_is_that_of_the_scores() -> None:
    assert tuple(SCORES) == UNKNOWN_SCORES


def test_nearest_is_the_largest_similarity(centres: Tensor) -> None:
    references, labels = sample(50, 1, centres)
    queries, _ = sample(20, 2, centres)
    assert torch.allclose(nearest_score(references, labels)(queries), (queries @ references.T).amax(dim=1))


def test_mahalanobis_is_that_of_scipy(centres: Tensor) -> None:
    references, labels = sample(200, 1, centres)
    queries, _ = sample(10, 2, centres)
    x, y = references.double().numpy(), labels.numpy()
    means = [x[y == label].mean(axis=0) for label in range(4)]
    covariance = np.mean([np.cov(x[y == label].T, bias=True) for label in range(4)], axis=0)
    inverse = np.linalg.inv(covariance + SHRINKAGE * np.trace(covariance) / 6 * np.eye(6))
    expected = [-min(mahalanobis(query, mean, inverse) ** 2 for mean in means) for query in queries.double().numpy()]
    np.testing.assert_allclose(mahalanobis_score(references, labels)(queries), expected, rtol=1e-6)


def test_mahalanobis_of_collapsed_embeddings_is_finite() -> None:
    references = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]).repeat(10, 1)
    labels = torch.arange(20) % 2
    scores = mahalanobis_score(references, labels)(torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))
    assert torch.isfinite(scores).all()
    assert scores[0] > scores[1]


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("rate", [0.01, 0.05, 0.2])
def test_false_alarms_have_the_stated_rate(score: str, rate: float, centres: Tensor) -> None:
    references, labels = sample(400, 1, centres)
    held_out, new = sample(2000, 2, centres)[0], sample(2000, 3, centres)[0]
    score_of = SCORES[score](references, labels)
    known = p_values(score_of(new), score_of(held_out))
    alarms = int((known <= rate).sum())
    low, high = binom.interval(0.999, 2000, rate)  # of new images; the held-out ones vary as much
    assert low - (high - low) / 2 <= alarms <= high + (high - low) / 2
    far = normalize(-centres.sum(dim=0) + 0.1 * torch.randn(200, 6), dim=1)
    unknown = p_values(score_of(far), score_of(held_out))
    assert (unknown <= 0.05).double().mean() > 0.9


def test_p_values_have_a_smallest_value() -> None:
    assert p_values(torch.tensor([-1.0]), torch.arange(9.0)).tolist() == [0.1]
    assert p_values(torch.tensor([99.0]), torch.arange(9.0)).tolist() == [1.0]


def test_auroc_and_false_positive_rate_are_those_of_scikit_learn() -> None:
    generator = np.random.default_rng(0)
    known, unknown = generator.normal(1, 1, 500).round(1), generator.normal(0, 1, 300).round(1)  # with ties
    truth, scores = np.repeat([1, 0], [500, 300]), np.concatenate([known, unknown])
    assert auroc_values(known, unknown).mean() == pytest.approx(roc_auc_score(truth, scores))
    false, true, _ = roc_curve(truth, scores, drop_intermediate=False)
    assert fpr95_values(known, unknown).mean() == pytest.approx(false[np.argmax(true >= 0.95)], abs=0.02)


@pytest.mark.parametrize(("n_known", "n_unknown"), [(300, 80), (80, 300)])
@pytest.mark.parametrize("values", [auroc_values, fpr95_values])
def test_the_spread_of_the_values_is_the_error_over_known_and_unknown_images(
    values: Callable[[Scores, Scores], Scores], n_known: int, n_unknown: int
) -> None:
    """The standard error of the mean of the values is the standard deviation over many samples of both kinds."""
    generator = np.random.default_rng(1)
    found = [values(generator.normal(1.5, 1, n_known), generator.normal(0, 1, n_unknown)) for _ in range(400)]
    estimates, errors = [x.mean() for x in found], [x.std() / np.sqrt(len(x)) for x in found]
    assert np.mean(errors) == pytest.approx(
        np.std(estimates), rel=0.15
    )  # a threshold between 4 of 80 images is no smooth function


@pytest.mark.parametrize("n", [1, 10, 20, 30, 53, 100, 359])
def test_at_least_95_percent_of_the_known_images_pass(n: int) -> None:
    known = np.random.default_rng(n).permutation(n).astype(float)
    assert fpr95_values(known, known).mean() >= 0.95
    assert fpr95_values(known, known).mean() < 0.95 + 1 / n + 1e-9


def test_values_of_few_images_are_finite() -> None:
    for known, unknown in (([0.5], [0.1]), ([0.5, 0.5], [0.5]), ([0.1], [0.2, 0.3])):
        for values in (auroc_values, fpr95_values):
            found = values(np.array(known), np.array(unknown))
            assert found.shape == (len(known) + len(unknown),)
            assert np.isfinite(found).all()
            assert 0 <= found.mean() <= 1
