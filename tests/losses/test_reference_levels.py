"""Chance level and floor are what the losses themselves give at the two extremes."""

from __future__ import annotations

import pytest
import torch

from sincere.catalog import LOSSES
from sincere.errors import InputValueError
from sincere.losses.reference_levels import Levels, loss_levels

LABELS = torch.tensor([0, 0, 0, 1, 1, 2, -1, -1, 3])


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("n_views", [1, 2, 3])
def test_levels_are_the_losses_at_the_extremes(name: str, n_views: int) -> None:
    if name == "infonce" and n_views == 1:
        assert loss_levels(name, LABELS) == Levels(0.0, 0.0)
        return
    loss = LOSSES[name].load()(temperature=0.002)
    arguments = () if name == "infonce" else (LABELS,)
    levels = loss_levels(name, LABELS, n_views=n_views)
    same = torch.ones(len(LABELS), n_views, 12, dtype=torch.float64)
    assert float(loss(same, *arguments)) == pytest.approx(levels.chance, abs=1e-9)
    ids = torch.arange(len(LABELS)) if name == "infonce" else torch.tensor([0, 0, 0, 1, 1, 2, 4, 5, 3])
    apart = torch.eye(12, dtype=torch.float64)[ids][:, None].repeat(1, n_views, 1)
    assert float(loss(apart, *arguments)) == pytest.approx(levels.floor, abs=1e-9)


def test_no_partner_at_all() -> None:
    assert loss_levels("supcon", torch.tensor([0, 1, 2])) == Levels(0.0, 0.0)


def test_unknown_loss() -> None:
    with pytest.raises(InputValueError, match="Did you mean 'supcon'"):
        loss_levels("subcon", LABELS)
