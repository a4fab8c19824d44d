"""Chance level and floor are what the losses themselves give at the two extremes."""

from __future__ import annotations

import pytest
import torch

from sincere.errors import InputTypeError, InputValueError, UnsupportedError
from sincere.loss_catalog import LOSSES
from sincere.losses.queue import MemoryQueue, queued_loss
from sincere.losses.reference_levels import Levels, loss_levels
from tests.losses.problems import OVER_SETS, PAIRWISE, PLAIN

LABELS = torch.tensor([0, 0, 0, 1, 1, 2, -1, -1, 3])


@pytest.mark.parametrize("name", [*PLAIN, *OVER_SETS])
@pytest.mark.parametrize("n_views", [1, 2, 3])
def test_levels_are_the_losses_at_the_extremes(name: str, n_views: int) -> None:
    if name == "infonce" and n_views == 1:
        assert loss_levels(name, LABELS) == Levels(0.0, 0.0)
        return
    exactly = {"method": "exact"} if LOSSES[name].over_sets else {}
    loss = LOSSES[name].load()(temperature=0.002, **exactly)
    arguments = () if name == "infonce" else (LABELS,)
    levels = loss_levels(name, LABELS, n_views=n_views)
    same = torch.ones(len(LABELS), n_views, 12, dtype=torch.float64)
    assert float(loss(same, *arguments)) == pytest.approx(levels.chance, abs=1e-9)
    ids = torch.arange(len(LABELS)) if name == "infonce" else torch.tensor([0, 0, 0, 1, 1, 2, 4, 5, 3])
    apart = torch.eye(12, dtype=torch.float64)[ids][:, None].repeat(1, n_views, 1)
    assert float(loss(apart, *arguments)) == pytest.approx(levels.floor, abs=1e-9)


@pytest.mark.parametrize("name", PAIRWISE)
@pytest.mark.parametrize("n_views", [1, 2])
def test_levels_with_a_queue_are_the_losses_at_the_extremes(name: str, n_views: int) -> None:
    queue, key_labels = MemoryQueue(8, 14).double(), torch.tensor([0, 0, 1, 5, -1, -1])
    criterion = LOSSES[name].load()(temperature=0.002, reduction="sum")
    levels = loss_levels(name, LABELS, n_views=n_views, key_labels=key_labels)
    queue.enqueue(torch.ones(6, 14), key_labels)
    same = torch.ones(len(LABELS), n_views, 14, dtype=torch.float64)
    assert float(queued_loss(criterion, queue, same, LABELS)) == pytest.approx(levels.chance, abs=1e-9)
    axes = torch.eye(14, dtype=torch.float64)
    queue = MemoryQueue(8, 14).double()
    queue.enqueue(axes[[0, 0, 1, 6, 7, 8]], key_labels)
    apart = axes[[0, 0, 0, 1, 1, 2, 4, 5, 3]][:, None].repeat(1, n_views, 1)
    assert float(queued_loss(criterion, queue, apart, LABELS)) == pytest.approx(levels.floor, abs=1e-9)


def test_hyper_parameters_are_those_of_the_loss() -> None:
    labels = torch.tensor([0, 0, 1, 1])
    assert loss_levels("eps-supinfonce", labels) == loss_levels("eps-supinfonce", labels, epsilon=0.25)
    assert loss_levels("eps-supinfonce", labels, epsilon=0.5).floor == -0.5
    with pytest.raises(InputTypeError) as caught:
        loss_levels("sincere", labels, epsilon=0.5)
    expected = "unexpected keyword argument 'epsilon'; sincere has no hyper-parameter besides the temperature"
    assert str(caught.value) == f"loss_levels: {expected}"
    with pytest.raises(InputTypeError, match=r"'margin'; eps-supinfonce has hyper-parameters epsilon$"):
        loss_levels("eps-supinfonce", labels, margin=0.5)
    with pytest.raises(InputValueError, match=r"^loss_levels: epsilon must be a finite number of at least 0; got -1$"):
        loss_levels("eps-supinfonce", labels, epsilon=-1)


@pytest.mark.parametrize("like", ["sincere", "supcon", "eps-supinfonce", "infonce", "set-sincere"])
def test_a_loss_that_is_only_in_the_table(like: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new entry has its levels, by what it says of itself and not by its name."""
    monkeypatch.setitem(LOSSES, "toy", LOSSES[like])
    assert loss_levels("toy", LABELS, n_views=2) == loss_levels(like, LABELS, n_views=2)


def test_no_positive_at_all() -> None:
    assert loss_levels("supcon", torch.tensor([0, 1, 2])) == Levels(0.0, 0.0)


def test_a_loss_without_levels() -> None:
    expected = (
        "decoupled has none of the formulas that are known here, those of sincere, supcon, eps-supinfonce, infonce"
    )
    with pytest.raises(UnsupportedError) as caught:
        loss_levels("decoupled", LABELS)
    assert str(caught.value) == f"loss_levels: {expected}"


def test_unknown_loss() -> None:
    with pytest.raises(InputValueError, match="Did you mean 'supcon'"):
        loss_levels("subcon", LABELS)
