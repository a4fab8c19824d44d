"""Each metric of geometry against an independent formula, its interval, and the cases where it is undefined."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.metrics import normalized_mutual_info_score, silhouette_score
from torch import Tensor
from torch.nn.functional import normalize

from sincere.evaluation.geometry import READING, cluster, measure
from sincere.evaluation.model_outputs import ModelOutputs, PartOutputs
from sincere.evaluation.probe import Probe

D, F, C = 7, 5, 4
Array = NDArray[np.float64]


def part(n: int, seed: int, *, spread: float = 0.6, n_classes: int = C) -> PartOutputs:
    generator = torch.Generator().manual_seed(seed)
    centres = torch.Generator().manual_seed(99)
    labels = torch.randint(n_classes, (n,), generator=generator)
    points = [torch.randn(n_classes, d, generator=centres)[labels] for d in (D, F)]
    vectors, features = (x + spread * torch.randn(x.shape, generator=generator) for x in points)
    return PartOutputs(normalize(vectors, dim=1), features, labels, torch.arange(n))


def probe(n_classes: int = C) -> Probe:
    generator = torch.Generator().manual_seed(5)
    return Probe(torch.randn(n_classes, F, generator=generator, dtype=torch.float64), torch.zeros(n_classes), 0.1)


@pytest.fixture(scope="module")
def outputs() -> ModelOutputs:
    return ModelOutputs(part(200, 0), part(90, 1), (1,), {"linear": probe()})


def expected(outputs: ModelOutputs) -> dict[str, float]:
    """Return every metric by its definition, in numpy, pair by pair and class by class."""
    z, x = outputs.test.embeddings.double().numpy(), outputs.test.features.double().numpy()
    y, n = outputs.test.labels.numpy(), len(outputs.test.labels)
    squared = ((z[:, None] - z[None]) ** 2).sum(axis=2)
    different = ~np.eye(n, dtype=bool)
    same = (y[:, None] == y[None]) & different
    classes = np.unique(y)
    means = np.array([z[y == c].mean(axis=0) for c in classes])
    centred = means - means.mean(axis=0)
    residuals = z - means[np.searchsorted(classes, y)]
    within = residuals.T @ residuals / n
    between = centred.T @ centred / len(classes)
    norms = np.linalg.norm(centred, axis=1)
    cosines = [
        centred[i] @ centred[j] / (norms[i] * norms[j]) for i in range(len(classes)) for j in range(i)
    ]  # fmt: skip
    weight = outputs.probes["linear"].weight.numpy()
    weight = weight - weight.mean(axis=0)
    of_features = np.array([x[y == c].mean(axis=0) for c in classes])
    of_features = of_features - of_features.mean(axis=0)
    train, train_y = outputs.train.features.double().numpy(), outputs.train.labels.numpy()
    train_means = np.array([train[train_y == c].mean(axis=0) for c in np.unique(train_y)])
    nearest = ((x[:, None] - train_means[None]) ** 2).sum(axis=2).argmin(axis=1)
    singular = np.linalg.svd(z, compute_uv=False)
    shares = singular / singular.sum()
    return {
        "alignment": squared[same].mean(),
        "uniformity": np.log(np.exp(-2 * squared)[different].mean()),
        "nc1": np.trace(within @ np.linalg.pinv(between)) / len(classes),
        "nc2_norms": norms.std() / norms.mean(),
        "nc2_angles": np.mean(np.abs(np.array(cosines) + 1 / (len(classes) - 1))),
        "nc3": np.linalg.norm(weight / np.linalg.norm(weight) - of_features / np.linalg.norm(of_features)),
        "nc4": np.mean(nearest != outputs.probes["linear"].predict(outputs.test.features).numpy()),
        "rankme": np.exp(-(shares * np.log(shares)).sum()),
        "silhouette": silhouette_score(z, y, metric="cosine"),
        "nmi": normalized_mutual_info_score(y, cluster(outputs.test.embeddings, len(classes)).numpy()),
    }


def test_every_metric_is_its_definition(outputs: ModelOutputs) -> None:
    found, by_hand = measure(outputs), expected(outputs)
    assert found.keys() == by_hand.keys() == READING.keys()
    for name, value in by_hand.items():
        assert found[name].values.mean() == pytest.approx(value, rel=1e-5), name


def bootstrapped(outputs: ModelOutputs, n_resamples: int) -> dict[str, float]:
    """Return the standard deviation of the definitions over resamples of the test images."""
    generator, test = np.random.default_rng(0), outputs.test
    values: dict[str, list[float]] = {name: [] for name in READING}
    for _ in range(n_resamples):
        chosen = torch.from_numpy(generator.integers(len(test.labels), size=len(test.labels)))
        again = PartOutputs(*(x[chosen] for x in (test.embeddings, test.features, test.labels, test.ids)))
        for name, metric in measure(ModelOutputs(outputs.train, again, (1,), outputs.probes)).items():
            values[name].append(float(metric.values.mean()))
    return {name: float(np.std(x)) for name, x in values.items()}


def test_the_spread_of_the_values_is_that_of_a_bootstrap() -> None:
    """The linearised error is that of recomputing the metric on resamples; k-means also finds other clusters there."""
    made = ModelOutputs(part(200, 0), part(400, 1), (1,), {"linear": probe()})
    resampled = bootstrapped(made, 150)
    for name, metric in measure(made).items():
        error = metric.values.std() / np.sqrt(len(metric.values))
        tolerance = 0.5 if name == "nmi" else 0.3  # 150 resamples; duplicates bring pairs at distance 0
        assert error == pytest.approx(resampled[name], rel=tolerance), name


def simplex() -> Tensor:
    """Return four unit vectors with cosines of -1/3."""
    return normalize(torch.eye(4) - 0.25, dim=1)


def test_collapsed_classes_at_the_corners_of_a_simplex() -> None:
    labels = torch.arange(40) % 4
    corners = simplex()[labels]
    collapsed = PartOutputs(corners, corners, labels, torch.arange(40))
    found = measure(ModelOutputs(collapsed, collapsed, (1,), {"linear": Probe(simplex(), torch.zeros(4), 0.1)}))
    for name in ("alignment", "nc1", "nc2_norms", "nc2_angles", "nc3", "nc4"):
        assert found[name].values.mean() == pytest.approx(0, abs=1e-5), name
    assert found["silhouette"].values.mean() == pytest.approx(1)
    assert found["nmi"].values.mean() == pytest.approx(1)
    assert found["rankme"].values.mean() == pytest.approx(3, abs=0.02)  # a simplex of four corners has three dimensions
    pairs = 40 * 39
    kernel = (40 * 9 + 40 * 30 * np.exp(-2 * (2 + 2 / 3))) / pairs
    assert found["uniformity"].values.mean() == pytest.approx(np.log(kernel))


def constant(labels: Tensor) -> PartOutputs:
    same = normalize(torch.ones(len(labels), D), dim=1)
    return PartOutputs(same, torch.ones(len(labels), F), labels, torch.arange(len(labels)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: constant(torch.arange(12) % 3),  # all embeddings are the same
        lambda: part(3, 0, n_classes=3),
        lambda: PartOutputs(*(x[:1] for x in vars(part(3, 0)).values())),  # a single image
        lambda: constant(torch.zeros(5, dtype=torch.int64)),  # one class
        lambda: part(9, 0, n_classes=40),  # most classes have one image
        lambda: PartOutputs(*(x[:2] for x in vars(part(9, 3)).values())),
    ],
)
def test_odd_data_give_finite_values(make: Callable[[], PartOutputs]) -> None:
    test = make()
    n_classes = int(test.labels.max()) + 1
    found = measure(ModelOutputs(part(60, 0, n_classes=n_classes), test, (1,), {"linear": probe(n_classes)}))
    assert "rankme" in found
    for name, metric in found.items():
        assert metric.values.shape == (len(test.labels),), name
        assert np.isfinite(metric.values).all(), name
        assert abs(metric.values.mean()) < 1e9, name


def test_many_blocks_are_one(monkeypatch: pytest.MonkeyPatch, outputs: ModelOutputs) -> None:
    whole = measure(outputs)["uniformity"].values
    monkeypatch.setattr("sincere.evaluation.geometry.BLOCK_BYTES", 4 * 90 * 7)
    np.testing.assert_allclose(measure(outputs)["uniformity"].values, whole, rtol=1e-6)


def test_without_a_probe_nc3_and_nc4_are_left_out(outputs: ModelOutputs) -> None:
    found = measure(ModelOutputs(outputs.train, outputs.test))
    assert found.keys() == READING.keys() - {"nc3", "nc4"}


def test_two_classes_have_no_nc2() -> None:
    """Two means are opposite and equally far from their centre, whatever they are."""
    found = measure(ModelOutputs(part(40, 0, n_classes=2), part(40, 1, n_classes=2)))
    assert found.keys() == READING.keys() - {"nc2_norms", "nc2_angles", "nc3", "nc4"}


def test_clusters_of_a_sample_are_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    made = part(300, 2, spread=0.05)
    monkeypatch.setattr("sincere.evaluation.geometry.MOST_CLUSTERED", 60)
    clusters = cluster(made.embeddings, C)
    assert normalized_mutual_info_score(made.labels, clusters) == pytest.approx(1)
