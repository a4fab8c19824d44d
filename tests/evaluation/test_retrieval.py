"""Retrieval metrics equal those of pytorch-metric-learning, and closed-form cases."""

from __future__ import annotations

import pytest
import torch
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import CustomKNN
from torch import Tensor

from sincere.errors import InputValueError
from sincere.evaluation import retrieval
from sincere.evaluation.retrieval import retrieve


def unit(n: int, d: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(n, d, generator=generator), dim=1)


@pytest.mark.parametrize("rows", [1, 60])
@pytest.mark.parametrize("alone", [False, True])
def test_equal_to_pytorch_metric_learning(alone: bool, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrieval, "BLOCK_SIZE", 90 * rows)
    z, y = unit(90, 6), torch.arange(90) % 4
    q, w = (z, y) if alone else (unit(50, 6, 1), torch.arange(50) % 4)
    calculator = AccuracyCalculator(
        include=("precision_at_1", "r_precision", "mean_average_precision_at_r"),
        k="max_bin_count",
        knn_func=CustomKNN(CosineSimilarity()),
    )
    theirs = calculator.get_accuracy(q, w, z, y, ref_includes_query=alone)
    ours = retrieve(q, w, z, y, leave_out=torch.arange(90) if alone else None)
    assert float(ours.recall[1].mean()) == pytest.approx(theirs["precision_at_1"])
    assert float(ours.r_precision.mean()) == pytest.approx(theirs["r_precision"])
    assert float(ours.map_at_r.mean()) == pytest.approx(theirs["mean_average_precision_at_r"])


def test_perfect_and_worst() -> None:
    z, y = torch.eye(6).repeat_interleave(3, dim=0), torch.arange(6).repeat_interleave(3)
    perfect = retrieve(z, y, z, y, ks=(1, 2), leave_out=torch.arange(18))
    for values in (perfect.recall[1], perfect.recall[2], perfect.r_precision, perfect.map_at_r):
        assert torch.equal(values, torch.ones(18, dtype=torch.float64))
    unknown = retrieve(z[:2], torch.tensor([9, 9]), z, y)
    assert float(unknown.map_at_r.sum() + unknown.r_precision.sum() + unknown.recall[5].sum()) == 0


def test_by_hand() -> None:
    """Nearest to the query: wrong, right, right, with three of its class: precisions 0, 1/2, 2/3 at the three ranks."""
    angles = torch.tensor([0.1, 0.2, 0.3, 3.0])
    z, y = torch.stack([angles.cos(), angles.sin()], dim=1), torch.tensor([1, 0, 0, 0])
    found = retrieve(torch.tensor([[1.0, 0.0]]), torch.tensor([0]), z, y, ks=(1, 2))
    assert (found.recall[1].item(), found.recall[2].item()) == (0, 1)
    assert found.r_precision.item() == pytest.approx(2 / 3)
    assert found.map_at_r.item() == pytest.approx((1 / 2 + 2 / 3) / 3)


def test_bad_k() -> None:
    with pytest.raises(InputValueError, match="retrieve: k must be 1 to 4, the number of references; got 5"):
        retrieve(unit(4, 3), torch.zeros(4).long(), unit(4, 3), torch.zeros(4).long())
