"""Classifiers over embeddings, against plain loops and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import pairwise_distances_argmin
from torch import Tensor
from torch.nn.functional import normalize

from sincere.catalog import CLASSIFIERS, load
from sincere.evaluation.classifiers import DINO, KNN, LIGHTLY, MEANS, Classifier, Votes, measure
from sincere.evaluation.model_outputs import ModelOutputs, PartOutputs
from sincere.evaluation.neighbours import find_neighbours, nearest_references

N_CLASSES = 4


@pytest.fixture
def sets() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries and references around class centres, of unit length, with labels; class 3 has no reference."""
    torch.manual_seed(0)
    centres = torch.randn(N_CLASSES, 6)
    query_labels, labels = torch.randint(3, (50,)), torch.randint(3, (300,))
    queries = normalize(centres[query_labels] + torch.randn(50, 6), dim=1)
    return queries, query_labels, normalize(centres[labels] + torch.randn(300, 6), dim=1), labels


def voted(query: Tensor, references: Tensor, labels: Tensor, k: int, temperature: float) -> list[float]:
    """Return the shares of the classes by a plain loop."""
    similarities = sorted(
        ((float(r.double() @ query.double()), int(y)) for r, y in zip(references, labels, strict=True)), reverse=True
    )
    votes = [0.0] * N_CLASSES
    for similarity, label in similarities[:k]:
        votes[label] += np.exp(similarity / temperature)
    return [vote / sum(votes) for vote in votes]


@pytest.mark.parametrize("classifier", [DINO, LIGHTLY, Votes(k=1000, temperature=0.5)])
def test_exponential_votes(classifier: Votes, sets: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    queries, _, references, labels = sets
    shares = classifier.probabilities(queries, references, labels, N_CLASSES)
    assert classifier.temperature is not None
    expected = [voted(query, references, labels, classifier.k, classifier.temperature) for query in queries]
    torch.testing.assert_close(shares, torch.tensor(expected, dtype=torch.float64), atol=1e-5, rtol=0)


def test_the_presets_are_those_of_their_sources() -> None:
    assert (DINO.k, DINO.temperature) == (20, 0.07)
    assert (LIGHTLY.k, LIGHTLY.temperature) == (200, 0.1)


def test_votes_of_the_paper_are_those_of_the_metric(sets: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    queries, query_labels, references, labels = sets
    expected = find_neighbours(queries, query_labels, references, labels, ks=(5,)).predictions[5]
    shares = KNN.probabilities(queries, references, labels, N_CLASSES)
    assert torch.equal(shares.argmax(dim=1), expected)
    assert torch.allclose(shares.sum(dim=1), torch.ones(50, dtype=torch.float64))
    assert (shares >= 0).all()


def test_votes_with_negative_similarities() -> None:
    references, labels = torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.tensor([1, 0])
    queries = torch.tensor([[-1.0, 0.0]])
    expected = find_neighbours(queries, torch.tensor([0]), references, labels, ks=(2,)).predictions[2]
    shares = Votes(k=2).probabilities(queries, references, labels, 3)
    assert shares.tolist() == [[1.0, 0.0, 0.0]]
    assert expected.tolist() == [0]


def test_class_means_are_nearest_centroids(sets: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    queries, _, references, labels = sets
    means = torch.stack([normalize(references[labels == label].mean(dim=0), dim=0) for label in range(3)])
    nearest = pairwise_distances_argmin(queries.numpy(), means.numpy())
    shares = MEANS.probabilities(queries, references, labels, N_CLASSES)
    assert np.array_equal(shares.argmax(dim=1), nearest)
    expected = torch.softmax((queries @ means.T).double() / 0.1, dim=1)
    torch.testing.assert_close(shares[:, :3], expected, atol=1e-5, rtol=0)
    assert (shares[:, 3] == 0).all(), "a class without references is never predicted"


def test_the_metrics_count_correct_test_images(sets: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    queries, query_labels, references, labels = sets
    ids = torch.arange(300)
    outputs = ModelOutputs(
        PartOutputs(references, references, labels, ids), PartOutputs(queries, queries, query_labels, ids[:50])
    )
    found = measure(outputs)
    assert list(found) == ["dino", "lightly", "means"]
    for name, metric in found.items():
        method: Classifier = load(CLASSIFIERS[name].target or "")
        predicted = method.probabilities(queries, references, labels, N_CLASSES).argmax(dim=1)
        assert np.array_equal(metric.values, (predicted == query_labels).double().numpy())
        assert 0.5 < metric.values.mean() <= 1


def test_nearest_references_in_blocks(
    sets: tuple[Tensor, Tensor, Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    queries, _, references, _ = sets
    similarities, positions = nearest_references(queries, references, 7)
    everything = queries @ references.T
    assert torch.equal(positions, everything.topk(7, dim=1).indices)
    monkeypatch.setattr("sincere.evaluation.neighbours.BLOCK_BYTES", 5000)
    blocks = nearest_references(queries, references, 7)
    torch.testing.assert_close(blocks[0], similarities)
    assert torch.equal(blocks[1], positions)
