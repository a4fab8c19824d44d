"""The modules hold hyper-parameters and hand them to the functions."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest
import torch

from sincere import (
    EpsSupInfoNCELoss,
    InfoNCELoss,
    SINCERELoss,
    SupConLoss,
    eps_supinfonce_loss,
    info_nce_loss,
    sincere_loss,
    supcon_loss,
)
from sincere.errors import InputValueError
from sincere.loss_catalog import LOSSES, find_loss

X, Y = torch.randn(8, 2, 4), torch.tensor([0, 1, 0, 1, 2, 2, 0, -1])
OPTIONS = {"temperature": 0.3, "normalize": False, "reduction": "none", "kernel": "dense"}


@pytest.mark.parametrize(
    ("module", "function"),
    [(SINCERELoss, sincere_loss), (SupConLoss, supcon_loss), (EpsSupInfoNCELoss, eps_supinfonce_loss)],
)
def test_supervised_modules_pass_everything_on(module: type, function: object) -> None:
    assert torch.equal(module()(X, Y), function(X, Y))
    assert torch.equal(module(**OPTIONS)(X, Y), function(X, Y, **OPTIONS))
    keyed = {"keys": X.flip(0), "key_labels": Y.flip(0), "anchor_index": torch.arange(16).view(8, 2)}
    assert torch.equal(module(**OPTIONS)(X, Y, **keyed), function(X, Y, **keyed, **OPTIONS))


def test_epsilon_is_passed_on() -> None:
    assert torch.equal(EpsSupInfoNCELoss(epsilon=0.7)(X, Y), eps_supinfonce_loss(X, Y, epsilon=0.7))
    assert not torch.equal(EpsSupInfoNCELoss(epsilon=0.7)(X, Y), EpsSupInfoNCELoss()(X, Y))


def test_temperature_tensor_is_a_buffer() -> None:
    criterion = SINCERELoss(torch.tensor(0.3))
    assert criterion.state_dict() == {"temperature": torch.tensor(0.3)}
    torch.testing.assert_close(criterion(X, Y), sincere_loss(X, Y, temperature=0.3))


def test_infonce_module() -> None:
    assert torch.equal(InfoNCELoss(**OPTIONS)(X), info_nce_loss(X, **OPTIONS))


def test_infonce_with_a_queue() -> None:
    """MoCo's loss: one positive key per image, the rest of the keys are negatives."""
    queries, keys, queue = torch.randn(3, 4), torch.randn(3, 4), torch.randn(5, 4)
    labels = torch.cat([torch.arange(3), torch.full((5,), -1)])
    value = info_nce_loss(queries, keys=torch.cat([keys, queue]), key_labels=labels, temperature=0.2)
    q, k, negatives = (torch.nn.functional.normalize(x, dim=1) for x in (queries, keys, queue))
    # Unlike MoCo, the other images' keys are negatives, too.
    logits = torch.cat([q @ k.T, q @ negatives.T], dim=1) / 0.2
    torch.testing.assert_close(value, torch.nn.functional.cross_entropy(logits, torch.arange(3)))


@pytest.mark.parametrize("copy_of", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_copies_are_equal(copy_of: Any) -> None:
    module = EpsSupInfoNCELoss(torch.nn.Parameter(torch.tensor(0.3)), epsilon=0.7, reduction="sum", group="world")
    other = copy_of(module)
    assert repr(other) == repr(module)
    assert torch.equal(other(X, Y), module(X, Y))
    other.load_state_dict({"temperature": torch.tensor(0.5)})
    assert torch.equal(other(X, Y), eps_supinfonce_loss(X, Y, temperature=0.5, epsilon=0.7, reduction="sum"))


def sizes(name: str) -> dict[str, int]:
    """What a loss must be told to be made."""
    return {"n_classes": 3, "dim": 4} if LOSSES[name].needs_classes else {}


@pytest.mark.parametrize("name", LOSSES)
def test_the_table_loads_every_loss(name: str) -> None:
    criterion = LOSSES[name].load()(**sizes(name))
    assert "temperature=0.1" in repr(criterion)
    assert not list(criterion.parameters())


def test_the_table_suggests() -> None:
    with pytest.raises(InputValueError) as caught:
        find_loss("sincer", caller="train")
    names = ", ".join(map(repr, LOSSES))
    assert str(caught.value) == f"train: loss must be one of {names}; got 'sincer'. Did you mean 'sincere'?"


@pytest.mark.parametrize("name", LOSSES)
def test_defaults_are_those_of_the_catalog(name: str) -> None:
    module = LOSSES[name].load()
    for callable_ in (module, module.function):
        parameters = inspect.signature(callable_).parameters
        for own in LOSSES[name].hyper_parameters:
            assert parameters[own.name].default == own.default
