"""Views of features: dropout and versions depend on the sample, its visit and the view alone."""

from __future__ import annotations

import pytest
import torch

from sincere.data.feature_views import make_feature_views, plain_feature_views

N, D = 64, 1001  # no multiple of 8: the last random number is used in part


@pytest.fixture
def ids() -> torch.Tensor:
    return torch.arange(N) * 7 + 3


def test_dropout_keeps_the_expectation(ids: torch.Tensor) -> None:
    ones = torch.ones(N, D)
    views = make_feature_views(ones, ids, torch.zeros_like(ids), dropout=0.3, seed=0, n_views=2)
    assert views.shape == (N, 2, D)
    dropped = (views == 0).double().mean()
    assert abs(dropped - 77 / 256) < 0.005
    torch.testing.assert_close(views[views > 0], torch.full(((views > 0).sum(),), 256 / (256 - 77)))
    assert abs(views.mean() - 1) < 0.01
    assert not torch.equal(views[:, 0], views[:, 1])


def test_any_split_of_the_batch_gives_the_same_views(ids: torch.Tensor) -> None:
    features, visits = torch.randn(N, D), torch.arange(N) % 3
    whole = make_feature_views(features, ids, visits, dropout=0.5, seed=1, n_views=2)
    parts = [
        make_feature_views(features[rows], ids[rows], visits[rows], dropout=0.5, seed=1, n_views=2)
        for rows in (slice(0, 1), slice(1, 40), slice(40, N))
    ]
    assert torch.equal(whole, torch.cat(parts))


@pytest.mark.parametrize("change", ["seed", "visit"])
def test_seed_and_visit_change_the_views(change: str, ids: torch.Tensor) -> None:
    features, none = torch.randn(N, D), torch.zeros_like(ids)
    one = make_feature_views(features, ids, none, dropout=0.5, seed=0, n_views=1)
    visits, seed = (none, 1) if change == "seed" else (none + 1, 0)
    other = make_feature_views(features, ids, visits, dropout=0.5, seed=seed, n_views=1)
    same = ((one == 0) == (other == 0)).double().mean()
    assert abs(same - 0.5) < 0.02, "as of independent coins"


def test_a_view_is_one_of_the_versions(ids: torch.Tensor) -> None:
    versions = torch.arange(3.0).expand(N, 5, 3).transpose(1, 2).contiguous()  # (N, 3 versions, 5): 0, 1 or 2
    views = make_feature_views(versions, ids, torch.zeros_like(ids), dropout=0.0, seed=0, n_views=4)
    assert views.shape == (N, 4, 5)
    assert torch.equal(views, views[..., :1].expand_as(views)), "all features are of the same version"
    assert set(views.unique().tolist()) == {0.0, 1.0, 2.0}


def test_without_dropout_views_are_the_features(ids: torch.Tensor) -> None:
    features = torch.randn(N, D)
    views = make_feature_views(features, ids, torch.zeros_like(ids), dropout=0.0, seed=0, n_views=2)
    assert torch.equal(views, features[:, None].expand(-1, 2, -1))


def test_plain_views_are_the_features_of_the_image_itself() -> None:
    versions = torch.arange(24.0).view(2, 3, 4)
    ids = torch.arange(2)
    views = plain_feature_views(versions, ids, ids, n_views=2)
    assert torch.equal(views, versions[:, :1].expand(-1, 2, -1))
    assert torch.equal(plain_feature_views(versions[:, 1], ids, ids, n_views=1), versions[:, 1:2])
