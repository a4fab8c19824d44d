"""Every family of metrics returns a finite value for each test image; missing classes are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sincere.catalog import METRICS, load_named
from sincere.errors import DataError, InputValueError
from sincere.evaluation.model_outputs import ModelOutputs, PartOutputs
from sincere.evaluation.probe import Probe
from sincere.evaluation.projection import project_2d, sample_positions


def part(n: int, n_classes: int, seed: int, d: int = 6) -> PartOutputs:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % n_classes
    centres = torch.randn(n_classes, d, generator=torch.Generator().manual_seed(99))
    features = centres[labels] + 0.4 * torch.randn(n, d, generator=generator)
    return PartOutputs(torch.nn.functional.normalize(features, dim=1), features, labels, torch.arange(n) + 1000)


def outputs(n_classes: int = 4, ks: tuple[int, ...] = (1, 5)) -> ModelOutputs:
    probe = Probe(torch.eye(n_classes, 6), torch.zeros(n_classes), 0.1)
    return ModelOutputs(part(80, n_classes, 0), part(30, n_classes, 1), ks, {"linear": probe})


@pytest.mark.parametrize("family", METRICS)
def test_a_value_for_each_test_image(family: str) -> None:
    found = load_named(METRICS, family, caller="test", argument="metric")(outputs())
    assert found
    for measure in found.values():
        assert measure.title
        assert measure.values.shape in ((30,), (30, 2))
        assert np.isfinite(measure.values).all()
        if measure.share:
            assert 0 <= measure.values.mean() <= 1
        assert measure.about or measure.group in ("main", "retrieval")  # how to read it


def test_all_families_agree_on_the_nearest_neighbour() -> None:
    s = outputs(ks=(5,))
    families = {name: load_named(METRICS, name, caller="test", argument="metric")(s) for name in METRICS}
    assert list(families["knn"]) == ["knn5", "knn5_balanced"]
    nearest_is_right = families["margin"]["margin"].values @ [1, -1] > 0
    assert np.array_equal(nearest_is_right, families["retrieval"]["precision1"].values == 1)
    assert 0.5 < nearest_is_right.mean() <= 1


def test_missing_classes_are_refused() -> None:
    train, test = part(80, 3, 0), part(30, 4, 1)
    with pytest.raises(DataError, match="evaluate: class 3 has test images but no training image"):
        _ = ModelOutputs(train, test).neighbours
    with pytest.raises(DataError, match="of one class only; a margin needs two"):
        _ = ModelOutputs(part(20, 1, 0), part(5, 1, 1)).neighbours
    with pytest.raises(InputValueError, match="k must be 1 to 80, the number of references; got 81"):
        _ = ModelOutputs(train, part(30, 3, 1), ks=(81,)).neighbours


def test_points_in_the_plane() -> None:
    z = part(60, 3, 0).embeddings
    points, method = project_2d(z)
    assert method == "t-SNE"
    assert np.array_equal(points, project_2d(z)[0])
    few, method = project_2d(z[:4])
    assert method == "PCA"
    assert few.shape == (4, 2)
    centred = (z[:4] - z[:4].mean(dim=0)).double()
    _, s, _ = torch.linalg.svd(centred)
    np.testing.assert_allclose(np.linalg.norm(few, axis=0), s[:2], rtol=1e-4)
    for odd in (z[:1], torch.ones(50, 3), torch.ones(2, 1)):
        assert project_2d(odd)[0].shape == (len(odd), 2)
        assert np.isfinite(project_2d(odd)[0]).all()


def test_the_same_points_for_every_model() -> None:
    chosen = sample_positions(5000)
    assert len(chosen) == 2000
    assert (np.diff(chosen) > 0).all()
    assert np.array_equal(chosen, sample_positions(5000))
    assert sample_positions(7).tolist() == list(range(7))
