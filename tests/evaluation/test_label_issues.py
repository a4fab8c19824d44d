"""Labels that the neighbours of a sample contradict, against a plain loop and with labels changed on purpose."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score
from torch.nn.functional import normalize

from sincere.evaluation.label_issues import find_label_issues


def classes(n: int, d: int, spread: float) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    labels = torch.arange(n) % 5
    return normalize(torch.randn(5, d)[labels] + spread * torch.randn(n, d), dim=1), labels


def test_agreement_is_the_share_of_the_votes() -> None:
    vectors, labels = classes(60, 4, 1.0)
    issues = find_label_issues(vectors, labels, k=7)
    for i in range(60):
        others = [j for j in range(60) if j != i]
        nearest = sorted(others, key=lambda j: -float(vectors[i] @ vectors[j]))[:7]
        weights = [np.exp(float(vectors[i] @ vectors[j]) / 0.1) for j in nearest]
        votes = np.bincount(labels[nearest], weights, minlength=5) / sum(weights)
        assert issues.agreement[i] == pytest.approx(votes[labels[i]], abs=1e-5)
        assert issues.suggested[i] == votes.argmax()


def test_changed_labels_are_found() -> None:
    vectors, labels = classes(1000, 16, 0.8)
    changed = torch.randperm(1000)[:50]
    noisy = labels.clone()
    noisy[changed] = (labels[changed] + torch.randint(1, 5, (50,))) % 5
    issues = find_label_issues(vectors, noisy)
    assert issues.k == 100, "half of the median class size"
    wrong = np.zeros(1000)
    wrong[changed] = 1
    assert average_precision_score(wrong, -issues.agreement) > 0.9
    ranked = issues.ranking(noisy.numpy())
    assert np.isin(ranked[:30], changed).all()
    assert (np.diff(issues.agreement[ranked]) >= 0).all()
    assert (issues.suggested[ranked] != noisy.numpy()[ranked]).all()
    found = issues.suggested[ranked[:30]] == labels.numpy()[ranked[:30]]
    assert found.mean() > 0.9, "the suggestion is the true label"


def test_copies_do_not_vote_for_themselves() -> None:
    vectors = torch.tensor([[1.0, 0.0]] * 4 + [[0.0, 1.0]] * 4)
    labels = torch.tensor([0, 0, 0, 1, 1, 1, 1, 1])
    issues = find_label_issues(vectors, labels, k=2)
    assert issues.ranking(labels.numpy()).tolist() == [3]
    assert issues.agreement[3] == pytest.approx(0)
    assert find_label_issues(vectors, labels, k=100).k == 7
