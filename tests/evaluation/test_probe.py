"""Probes separate separable classes, and their hyper-parameter is chosen on held-out images."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from sincere.evaluation.probe import Probe, fast_probe, paper_probe


def blobs(n: int, n_classes: int, spread: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % n_classes
    centres = 3 * torch.nn.functional.one_hot(labels, 8).float()
    return 5 + 10 * (centres + spread * torch.randn(n, 8, generator=generator)), labels


def halves(n: int) -> dict[str, np.ndarray]:
    return {"learn": np.arange(n // 2), "held_out": np.arange(n // 2, n)}


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_fast_probe_separates_blobs(n_classes: int) -> None:
    features, labels = blobs(300, n_classes, 0.5)
    probe = fast_probe(features, labels, **halves(300))
    fresh, fresh_labels = blobs(300, n_classes, 0.5, seed=1)
    assert probe.weight.shape == (n_classes, 8)
    assert float(probe.correct(fresh, fresh_labels).mean()) > 0.95


def test_fast_probe_is_scikit_learns_on_standardised_features() -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    features, labels = blobs(200, 4, 2.0)
    probe = fast_probe(features, labels, strengths=(0.01,), **halves(200))
    scaler = StandardScaler().fit(features.double().numpy())
    theirs = LogisticRegression(C=1 / (0.01 * 200), max_iter=1000).fit(scaler.transform(features.double()), labels)
    fresh, _ = blobs(500, 4, 2.0, seed=1)
    agreement = np.mean(theirs.predict(scaler.transform(fresh.double().numpy())) == probe.predict(fresh).numpy())
    assert agreement > 0.99


def test_regularisation_is_chosen_on_the_images_held_out() -> None:
    generator = torch.Generator().manual_seed(0)
    features, labels = torch.randn(80, 60, generator=generator), torch.arange(80) % 2
    features[:, 0] += 1.5 * labels
    weak, strong = (fast_probe(features, labels, strengths=(s,), **halves(80)).weight.norm() for s in (1e-6, 1.0))
    assert strong < weak
    chosen = fast_probe(features, labels, strengths=(1e-6, 1.0), **halves(80)).chosen
    assert chosen == 1.0, "with 59 useless features of 60, strong regularisation generalises better"


def make_batches(features: Tensor, labels: Tensor, seen: list[int]) -> Iterator[tuple[Tensor, Tensor]]:
    for x, y in zip(features.split(50), labels.split(50), strict=True):
        seen.append(len(x))
        yield (x - 5) / 10, y


def test_paper_probe_chooses_a_rate_and_then_trains_on_all() -> None:
    features, labels = blobs(400, 4, 0.6)
    seen: list[int] = []
    everything: list[int] = []
    scored: list[float] = []

    def score(probe: Probe) -> float:
        scored.append(probe.chosen)
        assert float(probe.correct((features[200:] - 5) / 10, labels[200:]).mean()) > 0.9
        return float(probe.chosen == 0.1)

    probe = paper_probe(
        lambda epoch: make_batches(features[:200], labels[:200], seen),
        lambda epoch: make_batches(features, labels, everything),
        score,
        n_features=8,
        n_classes=4,
        rates=(0.05, 0.1, 0.2),
        epochs=10,
    )
    assert scored == [0.05, 0.1, 0.2]
    assert probe.chosen == 0.1
    assert (sum(seen), sum(everything)) == (10 * 200, 10 * 400)  # one pass serves all rates
    fresh, fresh_labels = blobs(300, 4, 0.6, seed=1)
    assert float(probe.correct((fresh - 5) / 10, fresh_labels).mean()) > 0.95


def test_the_papers_step_decay(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []
    real = torch.optim.SGD.step

    def noting(self: torch.optim.SGD, *arguments: object) -> object:
        rates.append(round(self.param_groups[0]["lr"], 6))
        return real(self, *arguments)

    monkeypatch.setattr(torch.optim.SGD, "step", noting)
    x, y = torch.randn(4, 3), torch.arange(4) % 2
    paper_probe(lambda e: [], lambda e: [(x, y)], lambda p: 0.0, n_features=3, n_classes=2, rates=(1.0,), epochs=100)
    assert [rates.index(r) for r in (1.0, 0.2, 0.04, 0.008)] == [0, 60, 75, 90]
