"""docs/guides/migration.md, row by row: each call of another library and ours give the same value.

The reference values were computed with the code named beside them, in float64, on `features`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from pytorch_metric_learning.losses import NTXentLoss
from pytorch_metric_learning.losses import SupConLoss as OtherSupConLoss
from torch import Tensor
from torch.nn.functional import normalize

from sincere import eps_supinfonce_loss, info_nce_loss, sincere_loss, supcon_loss


def features(n_views: int = 2) -> Tensor:
    """Unit vectors (6, views, 5) that no random generator can change."""
    i = torch.arange(6 * n_views * 5, dtype=torch.float64)
    return normalize(torch.sin(1.7 * i * i).view(6, n_views, 5), dim=-1)


LABELS = torch.tensor([0, 1, 0, 2, 1, 0])
x = features()


class TestKhosla:
    """HobbitLong/SupContrast, losses.py, commit 02f458c. It adds 1e-9 inside its logarithm: hence 1e-5."""

    def test_default(self) -> None:
        ours = supcon_loss(x, LABELS, temperature=0.07)
        assert ours.item() == pytest.approx(8.435053999897113, rel=1e-5)

    def test_base_temperature_scales_the_loss(self) -> None:
        """Its default base_temperature is 0.07: at another temperature its loss is ours times tau / 0.07."""
        ours = supcon_loss(x, LABELS, temperature=0.1)
        assert ours.item() * 0.1 / 0.07 == pytest.approx(8.671972816018508, rel=1e-5)
        assert ours.item() == pytest.approx(6.0703809712129555, rel=1e-5), "base_temperature=0.1"

    def test_contrast_mode_one(self) -> None:
        ours = supcon_loss(
            x[:, 0], LABELS, keys=x, key_labels=LABELS, anchor_index=torch.arange(6) * 2, temperature=0.07
        )
        assert ours.item() == pytest.approx(9.10413567972274, rel=1e-5)

    @pytest.mark.parametrize(("n_views", "expected"), [(2, 8.541328922526766), (3, 10.399682703045022)])
    def test_no_labels(self, n_views: int, expected: float) -> None:
        ours = supcon_loss(features(n_views), torch.arange(6), temperature=0.07)
        assert ours.item() == pytest.approx(expected, rel=1e-5)


class TestResearchCode:
    """tufts-ml/SupContrast, revised_losses.py, commit 0288eb2."""

    def test_sincere(self) -> None:
        ours = sincere_loss(x.flatten(0, 1), LABELS.repeat_interleave(2), temperature=0.07)
        assert ours.item() == pytest.approx(7.8612692128093355, rel=1e-12)

    @pytest.mark.parametrize(("temperature", "expected"), [(0.07, 7.8612692128093355), (0.1, 5.619621133380498)])
    def test_multiview_sincere(self, temperature: float, expected: float) -> None:
        assert sincere_loss(x, LABELS, temperature=temperature).item() == pytest.approx(expected, rel=1e-12)

    @pytest.mark.parametrize(("n_views", "expected"), [(2, 8.54131740380989), (3, 10.388901231049454)])
    def test_infonce(self, n_views: int, expected: float) -> None:
        assert info_nce_loss(features(n_views), temperature=0.07).item() == pytest.approx(expected, rel=1e-12)

    def test_multiview_eps_supinfonce(self) -> None:
        ours = eps_supinfonce_loss(x, LABELS, temperature=0.1, epsilon=0.5)
        assert ours.item() == pytest.approx(5.580543183396702, rel=1e-12)

    def test_its_nan_case_is_finite_here(self) -> None:
        """Class 2 has one member in a single view: 0/0 there and in Khosla's code, a mean over the others here."""
        assert sincere_loss(x[:, 0], LABELS, temperature=0.07).isfinite()
        assert supcon_loss(x[:, 0], LABELS, temperature=0.07).isfinite()


class TestPytorchMetricLearning:
    """The installed pytorch-metric-learning, value and gradient, where the formulas agree."""

    @pytest.mark.parametrize("temperature", [0.05, 0.1, 1.0])
    def test_supcon(self, temperature: float) -> None:
        embeddings = torch.randn(40, 8, dtype=torch.float64, requires_grad=True)
        labels = torch.randint(12, (40,))
        assert (torch.bincount(labels) == 1).any(), "has a singleton class"
        expected = OtherSupConLoss(temperature=temperature)(embeddings, labels)
        ours = supcon_loss(embeddings, labels, temperature=temperature)
        torch.testing.assert_close(ours, expected)
        torch.testing.assert_close(*(torch.autograd.grad(loss, embeddings) for loss in (ours, expected)))

    def test_supcon_with_reference_embeddings(self) -> None:
        embeddings, reference = torch.randn(20, 8, dtype=torch.float64), torch.randn(30, 8, dtype=torch.float64)
        labels, reference_labels = torch.randint(4, (20,)), torch.randint(4, (30,))
        expected = OtherSupConLoss(temperature=0.1)(embeddings, labels, ref_emb=reference, ref_labels=reference_labels)
        ours = supcon_loss(embeddings, labels, keys=reference, key_labels=reference_labels, temperature=0.1)
        torch.testing.assert_close(ours, expected)

    def test_ntxent_averages_over_pairs(self) -> None:
        """Its NTXentLoss is SINCERE's pair loss averaged over all pairs: equal where every class is as large."""
        embeddings, labels = torch.randn(24, 8, dtype=torch.float64), torch.arange(24) % 6
        expected = NTXentLoss(temperature=0.1)(embeddings, labels)
        torch.testing.assert_close(sincere_loss(embeddings, labels, temperature=0.1), expected)
        uneven = torch.cat([labels[:18], torch.zeros(6, dtype=torch.int64)])
        other = NTXentLoss(temperature=0.1)(embeddings, uneven)
        assert abs(sincere_loss(embeddings, uneven, temperature=0.1) - other) > 1e-3

    def test_one_class_differs(self) -> None:
        """Without any negative it returns 0; the formula, and we, return the loss among positives."""
        embeddings, labels = torch.randn(6, 8), torch.zeros(6, dtype=torch.int64)
        assert OtherSupConLoss(temperature=0.1)(embeddings, labels) == 0
        assert supcon_loss(embeddings, labels) > 0


def test_every_row_of_the_table_is_tested_here() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guides" / "migration.md").read_text()
    rows = re.findall(r"<!-- tested: (\w+) -->", page)
    here = Path(__file__).read_text()
    assert len(rows) >= 8
    assert all(f"def {row}(" in here for row in rows)
