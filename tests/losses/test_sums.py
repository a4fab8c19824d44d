"""Sums of losses: what text means, and that each is the sum of its terms."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from sincere import EpsSupInfoNCELoss, info_nce_loss, sincere_loss, supcon_loss
from sincere.errors import InputTypeError, InputValueError
from sincere.loss_catalog import LOSSES, find_loss, loss_name, sum_terms

X, Y = torch.randn(8, 2, 5, dtype=torch.float64), torch.tensor([0, 1, 0, 1, -1, -1, 2, 2])


def test_text() -> None:
    assert sum_terms("0.35*sincere+0.65 * infonce") == (("sincere", 0.35), ("infonce", 0.65))
    assert loss_name(" sincere + 1.0*supcon") == "sincere+supcon"
    assert loss_name("sincere") == "sincere"
    assert loss_name("python:my+loss@0123") == "python:my+loss@0123"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "sincere + 0.5*cross-entrpy",
            "a term of 'sincere + 0.5*cross-entrpy' must be one of {names}, 'cross-entropy'; got 'cross-entrpy'. "
            "Did you mean 'cross-entropy'?",
        ),
        ("sincere + -1*supcon", "the weight '-1' must be a finite number greater than 0, in 'sincere + -1*supcon'"),
        ("x*sincere", "the weight 'x' must be a finite number greater than 0, in 'x*sincere'"),
        ("sincere + sincere", "sincere must be there once in 'sincere + sincere'"),
        (
            "2*cross-entropy",
            "cross-entropy alone trains no embedding; add another, as in 'sincere + 0.5*cross-entropy'",
        ),
    ],
)
def test_wrong_text(text: str, message: str) -> None:
    with pytest.raises(InputValueError) as caught:
        loss_name(text)
    assert str(caught.value) == f"loss: {message.format(names=', '.join(map(repr, LOSSES)))}"
    assert text not in LOSSES


def test_the_table_has_sums() -> None:
    assert "sincere+0.5*cross-entropy" in LOSSES
    assert "sincere+0.5*cross-entropy" not in list(LOSSES)
    entry = find_loss("0.5*eps-supinfonce+infonce", caller="train")
    assert entry.title == "0.5 eps-SupInfoNCE + InfoNCE"
    assert entry.needs_views
    assert not entry.colour  # the report gives it one that no other loss has
    assert [own.name for own in entry.hyper_parameters] == ["epsilon"]
    assert not entry.has_levels


def test_a_sum_is_the_sum_of_its_terms() -> None:
    labels = Y.clamp_min(0)
    criterion = LOSSES["0.5*eps-supinfonce+2*supcon"].load()(0.3, epsilon=0.7)
    expected = 0.5 * EpsSupInfoNCELoss(0.3, epsilon=0.7)(X, labels) + 2 * supcon_loss(X, labels, temperature=0.3)
    torch.testing.assert_close(criterion(X, labels), expected)


def test_supervised_terms_leave_out_unlabelled_images_beside_a_self_supervised_one() -> None:
    terms = LOSSES["0.35*sincere+0.65*infonce"].load()(0.2).terms(X, Y)
    torch.testing.assert_close(terms["infonce"], 0.65 * info_nce_loss(X, temperature=0.2))
    torch.testing.assert_close(terms["sincere"], 0.35 * sincere_loss(X[Y >= 0], Y[Y >= 0], temperature=0.2))
    alone = LOSSES["sincere+supcon"].load()(0.2).terms(X, Y)
    torch.testing.assert_close(alone["sincere"], sincere_loss(X, Y, temperature=0.2))


def test_cross_entropy_of_labelled_images() -> None:
    logits = torch.randn(8, 2, 3, requires_grad=True)
    terms = LOSSES["sincere+0.5*cross-entropy"].load()(0.2).terms(X, Y, logits=logits)
    rows = logits[Y >= 0].flatten(0, 1)
    torch.testing.assert_close(terms["cross-entropy"], 0.5 * cross_entropy(rows, Y[Y >= 0].repeat_interleave(2)))


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "sincere+supcon",
            {"epsilon": 0.1},
            "takes .*, kernel, label_similarity, normalize, soft; got epsilon",
        ),
        ("sincere+supcon", {"reduction": "sum"}, "takes exchange, group, .*; got reduction"),
        ("sincere+set-sincere", {"kernel": "dense"}, "set-sincere takes no kernel"),
        ("sincere+infonce", {"soft": True}, "takes exchange, group, kernel, normalize; got soft"),
        ("sincere+cross-entropy", {"soft": True}, "takes exchange, group, kernel, normalize; got soft"),
    ],
)
def test_unknown_options_are_refused(text: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputTypeError, match=f"^the sum {re.escape(text)}: {message}$"):
        LOSSES[text].load()(0.1, **options)


def test_options_reach_all_terms() -> None:
    labels = Y.clamp_min(0)
    criterion = LOSSES["sincere+supcon"].load()(0.3, normalize=False, kernel="tiled")
    expected = sum(f(X, labels, temperature=0.3, normalize=False) for f in (sincere_loss, supcon_loss))
    torch.testing.assert_close(criterion(X, labels), expected, rtol=1e-12, atol=0)
    assert {own.kernel for own in criterion.criteria.values()} == {"tiled"}
    chosen = {"temperature": 0.3, "normalize": False, "kernel": "tiled", "soft": False}
    assert chosen.items() <= criterion.options().items()


@pytest.mark.parametrize("weight", [0.1234567, 1e6, 1e16, 1e-7, 1 / 3, 2.0])
def test_a_name_is_read_as_the_same_sum(weight: float) -> None:
    name = loss_name(f"{weight!r} * sincere + supcon".replace("e+", "e"))
    assert sum_terms(name) == (("sincere", weight), ("supcon", 1.0))
    assert loss_name(name) == name
