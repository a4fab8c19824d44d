"""A training step and the views of its batch never wait for an accelerator, but for the losses of every 20th step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode

import sincere
from sincere.catalog import AUGMENTATIONS
from sincere.data import loader
from sincere.data.colour import jitter
from sincere.data.counter_rng import CounterRNG
from sincere.data.feature_views import make_feature_views
from sincere.data.views import make_views
from sincere.training.fit import FLUSH_STEPS, Fit
from tests.no_synchronisation import SynchronisationError, no_synchronisation, outside_the_guard
from tests.workflows.conftest import QUICK

STEPS = pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "muon"},
        {"optimizer": "sgd", "clip_norm": 1.0},
        {"optimizer": "adamw"},
        {"micro_batch": 8, "norm": "group"},
        {"queue": 50},
        {"loss": "supcon+0.5*cross-entropy"},
    ],
    ids=lambda settings: next(iter(settings.values())),
)


def guard_steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Put every step under the guard; return the list of the steps at which losses were copied from the device."""
    take_step, flush = Fit._step, Fit._flush_losses
    flushed: list[int] = []

    def step(fit: Fit, batch: Any) -> Tensor:
        with no_synchronisation(monkeypatch):
            return take_step(fit, batch)

    def flush_losses(fit: Fit) -> None:
        if fit._pending_losses:
            flushed.append(fit.state.step)
        outside_the_guard(flush)(fit)

    monkeypatch.setattr(Fit, "_step", step)
    monkeypatch.setattr(Fit, "_flush_losses", flush_losses)
    # Its counters of steps are on the host, whatever the device of the parameters.
    monkeypatch.setattr(torch.optim.AdamW, "step", outside_the_guard(torch.optim.AdamW.step))
    return flushed


@STEPS
def test_a_step_reads_nothing_back(
    settings: dict[str, Any], data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed = guard_steps(monkeypatch)
    sincere.train(data=data, out=tmp_path / "run", **{**QUICK, **settings})
    assert flushed == [3, 6, 9, 12]  # the ends of the epochs, which have fewer than FLUSH_STEPS steps
    assert FLUSH_STEPS > 3


def test_a_synchronisation_in_the_loss_is_caught(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guard_steps(monkeypatch)

    def reads(embeddings: Tensor, labels: Tensor) -> Tensor:
        loss = sincere.sincere_loss(embeddings, labels)
        return loss / max(1.0, loss.item())

    def train_with_it() -> None:
        sincere.train(data=data, out=tmp_path / "run", loss=reads, **QUICK)

    with pytest.raises(SynchronisationError, match="item"):
        train_with_it()


@pytest.mark.parametrize("name", list(AUGMENTATIONS))
def test_views_are_made_on_the_device(name: str) -> None:
    with FakeTensorMode(), no_synchronisation():
        images = torch.empty(6, 3, 32, 32, dtype=torch.uint8, device="cuda")
        ids, visits = (torch.empty(6, dtype=torch.int64, device="cuda") for _ in range(2))
        views = make_views(images, ids, visits, AUGMENTATIONS[name], size=32, seed=0, n_views=2)
    assert views.device.type == "cuda"
    assert views.shape == (6, 2, 3, 32, 32)


def test_so_are_views_of_features() -> None:
    with FakeTensorMode(), no_synchronisation():
        features = torch.empty(6, 1, 40, device="cuda")
        ids, visits = (torch.empty(6, dtype=torch.int64, device="cuda") for _ in range(2))
        views = make_feature_views(features, ids, visits, dropout=0.5, seed=0, n_views=2)
    assert views.device.type == "cuda"
    assert views.shape == (6, 2, 40)


def test_batches_go_to_a_gpu_from_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: calls.append("pinned") or tensor)
    monkeypatch.setattr(Tensor, "to", lambda tensor, *args, **options: calls.append((args, options)) or tensor)
    tensor = torch.zeros(3)
    loader._on_device(tensor, "cuda")
    assert calls == ["pinned", ((torch.device("cuda"),), {"non_blocking": True})]
    calls.clear()
    loader._on_device(tensor, "cpu")
    assert calls == [((torch.device("cpu"),), {"non_blocking": False})]


def test_colours_change_alike_in_groups_and_under_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.rand(40, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    rng = CounterRNG(0, torch.zeros(40, dtype=torch.int64), torch.arange(40), 0)
    in_groups = jitter(images, rng, (0.4, 0.4, 0.4, 0.1), 0.8)
    with no_synchronisation(monkeypatch):
        under_masks = jitter(images, rng, (0.4, 0.4, 0.4, 0.1), 0.8)
    assert 0 < (in_groups == images).all(dim=3).all(dim=2).all(dim=1).sum() < 40
    torch.testing.assert_close(under_masks, in_groups)
