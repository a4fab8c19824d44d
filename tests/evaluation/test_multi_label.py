"""Metrics of images with several labels: against brute force, scikit-learn and a bootstrap of the statistic itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score
from torch import Tensor
from torch.nn.functional import normalize

from sincere.evaluation import label_neighbours
from sincere.evaluation.knn import accuracy_1nn
from sincere.evaluation.label_neighbours import find_label_neighbours, label_scores
from sincere.evaluation.model_outputs import ModelOutputs, PartOutputs
from sincere.evaluation.multi_label import average_precisions, knn_scores, measure


def part(n: int, seed: int, n_labels: int = 5) -> PartOutputs:
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(n, n_labels, generator=generator) < 0.25).long()
    centres = torch.randn(n_labels, 8, generator=torch.Generator().manual_seed(99))
    features = labels.float() @ centres + 0.7 * torch.randn(n, 8, generator=generator)
    return PartOutputs(normalize(features, dim=1), features, labels, torch.arange(n))


OUTPUTS = ModelOutputs(part(150, 0), part(70, 1))


def test_neighbours_and_metrics_equal_brute_force() -> None:
    train, test = OUTPUTS.train, OUTPUTS.test
    margins, shared, scores = [], [], []
    for z, labels in zip(test.embeddings, test.labels, strict=True):
        pairs = sorted(((float(z @ other), i) for i, other in enumerate(train.embeddings)), reverse=True)
        alike = {i for i in range(150) if bool((train.labels[i] & labels).any())}
        if labels.any():
            shared.append(pairs[0][1] in alike)
            margins.append(max(s for s, i in pairs if i in alike) - max(s for s, i in pairs if i not in alike))
        nearest = [(max(s, 1e-6), train.labels[i]) for s, i in pairs[:20]]
        scores.append(sum(s * y for s, y in nearest) / sum(s for s, _ in nearest))
    found = measure(OUTPUTS)
    assert list(found) == ["label_map", "label_margin", "label_shared"]
    assert found["label_margin"].values.mean() == pytest.approx(np.mean(margins), abs=1e-6)
    assert found["label_shared"].values.mean() == pytest.approx(np.mean(shared))
    torch.testing.assert_close(knn_scores(OUTPUTS), torch.stack(scores).double(), atol=1e-6, rtol=0)
    expected = [average_precision_score(test.labels[:, i], knn_scores(OUTPUTS)[:, i]) for i in range(5)]
    np.testing.assert_allclose(average_precisions(knn_scores(OUTPUTS), test.labels), expected, rtol=1e-12)
    assert found["label_map"].values.mean() == pytest.approx(np.mean(expected))
    assert 0.5 < np.mean(expected) < 0.99  # neither chance nor perfect


def test_images_of_equal_score_enter_together() -> None:
    generator = np.random.default_rng(0)
    scores, labels = generator.integers(0, 4, (40, 6)) / 3, generator.integers(0, 2, (40, 6))
    expected = [average_precision_score(labels[:, i], scores[:, i]) for i in range(6)]
    found = average_precisions(torch.from_numpy(scores), torch.from_numpy(labels))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    order = torch.from_numpy(generator.permutation(40))
    torch.testing.assert_close(
        average_precisions(torch.from_numpy(scores)[order], torch.from_numpy(labels)[order]), found
    )


def test_the_value_of_an_image_has_the_spread_of_a_bootstrap_of_the_statistic() -> None:
    outputs = ModelOutputs(part(300, 0), part(400, 1))
    scores, labels = knn_scores(outputs), outputs.test.labels
    generator = np.random.default_rng(0)
    chosen = [torch.from_numpy(generator.integers(0, 400, 400)) for _ in range(400)]
    resampled = [float(average_precisions(scores[rows], labels[rows]).mean()) for rows in chosen]
    values = measure(outputs)["label_map"].values
    assert values.std() / np.sqrt(400) == pytest.approx(np.std(resampled), rel=0.2)
    assert np.mean(resampled) == pytest.approx(values.mean(), abs=np.std(resampled))


def test_weights_count_images_several_times() -> None:
    scores, labels = knn_scores(OUTPUTS), OUTPUTS.test.labels
    counts = torch.from_numpy(np.random.default_rng(0).integers(1, 4, 70))
    repeated = average_precisions(scores.repeat_interleave(counts, dim=0), labels.repeat_interleave(counts, dim=0))
    torch.testing.assert_close(average_precisions(scores, labels, counts.double()), repeated)


def test_images_without_a_label_have_no_influence_on_margin_and_shared() -> None:
    found, labelled = measure(OUTPUTS), OUTPUTS.test.labels.any(dim=1).numpy()
    for name in ("label_margin", "label_shared"):
        values = found[name].values
        assert np.ptp(values[~labelled]) == 0
        assert values[~labelled][0] == pytest.approx(values[labelled].mean())


def test_labels_without_test_images_are_left_out_of_the_mean() -> None:
    test = OUTPUTS.test
    labels = test.labels.clone()
    labels[:, 2] = 0
    outputs = ModelOutputs(OUTPUTS.train, PartOutputs(test.embeddings, test.features, labels, test.ids))
    precisions = average_precisions(knn_scores(outputs), labels)
    assert precisions.isnan().tolist() == [False, False, True, False, False]
    values = measure(outputs)["label_map"].values
    assert np.isfinite(values).all()
    assert values.mean() == pytest.approx(float(precisions.nanmean()))


def test_a_label_that_all_have_leaves_no_margin() -> None:
    def common(of: PartOutputs) -> PartOutputs:
        labels = of.labels.clone()
        labels[:, 0] = 1
        return PartOutputs(of.embeddings, of.features, labels, of.ids)

    found = measure(ModelOutputs(common(OUTPUTS.train), common(OUTPUTS.test)))
    assert list(found) == ["label_map", "label_shared"]
    assert found["label_shared"].values.mean() == 1


def test_block_size_agnostic(monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = OUTPUTS.train, OUTPUTS.test
    arguments = (test.embeddings, test.labels, train.embeddings, train.labels)
    whole = find_label_neighbours(*arguments, k=7)
    monkeypatch.setattr(label_neighbours, "BLOCK_BYTES", 150 * 4 * 2 * 11)
    blocks = find_label_neighbours(*arguments, k=7)
    assert torch.equal(whole.position, blocks.position)
    for name in ("sharing", "disjoint", "similarity"):
        torch.testing.assert_close(getattr(whole, name), getattr(blocks, name))


def test_leave_one_out_and_1_nn() -> None:
    train = OUTPUTS.train
    own = torch.arange(150)
    found = find_label_neighbours(train.embeddings, train.labels, train.embeddings, train.labels, k=3, leave_out=own)
    assert not bool((found.position == own[:, None]).any())
    labelled = train.labels.any(dim=1)
    expected = (train.labels & train.labels[found.position[:, 0]]).any(dim=1)[labelled].double().mean()
    shared = accuracy_1nn(train.embeddings, train.labels, train.embeddings, train.labels, leave_out=own)
    assert shared == pytest.approx(float(expected))
    assert accuracy_1nn(train.embeddings, train.labels, train.embeddings, train.labels) == 1


def test_scores_of_neighbours_that_are_all_opposite() -> None:
    def score(similarities: list[float]) -> Tensor:
        return label_scores(torch.tensor([similarities]), torch.tensor([[0, 1]]), torch.tensor([[1, 0], [0, 1]]))

    assert score([-0.5, -0.9]).tolist() == [[0.5, 0.5]]
    torch.testing.assert_close(score([0.5, -0.9]), torch.tensor([[1.0, 0.0]]).double(), atol=1e-5, rtol=0)


def test_classes_are_sets_of_one_label() -> None:
    labels = torch.arange(60) % 3
    z = normalize(torch.eye(3, 4)[labels] + 0.3 * torch.randn(60, 4), dim=1)
    outputs = ModelOutputs(
        PartOutputs(z[:40], z[:40], labels[:40], labels), PartOutputs(z[40:], z[40:], labels[40:], labels)
    )
    found = measure(outputs)
    right = (outputs.neighbours.predictions[1] == labels[40:]).double().numpy()
    np.testing.assert_allclose(found["label_shared"].values, right)
    margins = outputs.neighbours.target_similarity - outputs.neighbours.noise_similarity
    np.testing.assert_allclose(found["label_margin"].values, margins.double(), atol=1e-6)
