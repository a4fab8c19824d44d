"""Gradient coefficients are those of autograd, stay in the paper's ranges, and feed the repulsion meter."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch.nn.functional import normalize

from sincere.errors import InputTypeError, InputValueError
from sincere.loss_catalog import LOSSES
from sincere.losses import equations
from sincere.theory.coefficients import gradient_coefficients, repulsion_meter

PAIR_LOSSES = {
    "sincere": equations.sincere_pair,
    "supcon": equations.supcon_pair,
    "eps-supinfonce": partial(equations.eps_supinfonce_pair, epsilon=0.25),
}
losses = pytest.mark.parametrize("loss", PAIR_LOSSES)


def batch(n: int = 24, d: int = 5, n_classes: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(n, d, dtype=torch.float64), torch.randint(n_classes, (n,))


@losses
@pytest.mark.parametrize("temperature", [1.0, 0.1, 0.02])
def test_coefficients_are_the_derivatives_of_each_anchors_loss(loss: str, temperature: float) -> None:
    """Against autograd through the oracle, with similarities as the leaves: z = I makes s the keys' rows."""
    x, labels = batch()
    labels[5] = 99  # a class with one member
    z = normalize(x, dim=1)
    s = (z @ z.T / temperature).requires_grad_()
    # With unit vectors as anchors and the columns of s as keys, the oracle's similarities are s itself.
    each = equations.anchor_losses(
        PAIR_LOSSES[loss],
        torch.eye(24, dtype=torch.float64),
        labels,
        1.0,
        keys=s.T,
        key_labels=labels,
        anchor_index=torch.arange(24),
    )
    (expected,) = torch.autograd.grad(each.sum(), s)
    actual = gradient_coefficients(x, labels, loss=loss, temperature=temperature)
    torch.testing.assert_close(actual, expected, rtol=1e-7, atol=1e-9)
    assert (actual[5] == 0).all()


@losses
def test_pulls_and_pushes_balance(loss: str) -> None:
    """Raising all similarities of an anchor by one amount changes nothing: each row sums to 0."""
    x, labels = batch()
    rows = gradient_coefficients(x, labels, loss=loss).sum(dim=1)
    torch.testing.assert_close(rows, torch.zeros_like(rows), atol=1e-9, rtol=0)


@pytest.mark.parametrize("temperature", [1.0, 0.1, 0.01])
def test_ranges(temperature: float) -> None:
    """SINCERE in [-1, 0] per pair loss; SupCon in [-1/|P|, 1 - 1/|P|] per anchor."""
    for _ in range(20):
        x, labels = batch()
        partners = (labels[:, None] == labels) & ~torch.eye(24, dtype=torch.bool)
        counts = partners.sum(dim=1, keepdim=True).double()
        sincere = (gradient_coefficients(x, labels, loss="sincere", temperature=temperature) * counts)[partners]
        assert (sincere >= -1).all()
        assert (sincere <= 0).all()
        supcon = gradient_coefficients(x, labels, loss="supcon", temperature=temperature)
        assert (supcon >= -1 / counts - 1e-12)[partners].all()
        assert (supcon <= 1 - 1 / counts + 1e-12)[partners].all()


def test_both_ends_of_the_ranges_are_approached() -> None:
    """An anchor beside one partner and opposite the other two, with noise at its side or opposite."""
    z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0], [1.0, 0.01]], dtype=torch.float64)
    far = torch.cat([z[:4], torch.tensor([[-1.0, 0.0]], dtype=torch.float64)])
    labels = torch.tensor([0, 0, 0, 0, 1])
    with_noise_near = gradient_coefficients(z, labels, loss="sincere", temperature=0.01)[0] * 3
    assert with_noise_near[2] == pytest.approx(-1, abs=1e-9)
    with_noise_far = gradient_coefficients(far, labels, loss="sincere", temperature=0.01)[0] * 3
    assert with_noise_far[1] == pytest.approx(0, abs=1e-9)
    supcon = gradient_coefficients(far, labels, loss="supcon", temperature=0.01)[0]
    assert supcon[1] == pytest.approx(1 - 1 / 3, abs=1e-9), "the nearest partner is pushed away"
    assert supcon[2] == pytest.approx(-1 / 3, abs=1e-9)


def test_supcon_pushes_noise_less_than_sincere() -> None:
    """Its softmax shares its mass with the whole class."""
    x, labels = batch(n=60, n_classes=2)
    noise = labels[:, None] != labels
    sincere, supcon = (gradient_coefficients(x, labels, loss=loss)[noise].sum() for loss in ("sincere", "supcon"))
    assert supcon < 0.9 * sincere


@losses
@pytest.mark.parametrize("n_classes", [1, 2, 7, 30])
@pytest.mark.parametrize("temperature", [0.1, 0.01])
def test_meter_is_the_count_over_the_matrix(loss: str, n_classes: int, temperature: float) -> None:
    x, labels = torch.randn(61, 4, dtype=torch.float64), torch.randint(n_classes, (61,))
    matrix = gradient_coefficients(x, labels, loss=loss, temperature=temperature)
    force = matrix + matrix.T
    meter = repulsion_meter(x, labels, loss=loss, temperature=temperature)
    upper = torch.ones(61, 61, dtype=torch.bool).triu(1)
    groups = {label: (labels[:, None] == label) & (labels == label) & upper for label in labels.unique().tolist()}
    for label, pairs in groups.items():
        if pairs.sum() == 0:
            assert label not in meter.by_class
            continue
        positive = force[pairs][force[pairs] > 0]
        reading = meter.by_class[label]
        assert reading.n_pairs == pairs.sum()
        assert reading.share == pytest.approx(len(positive) / reading.n_pairs)
        assert reading.strength == pytest.approx(positive.mean().item() if len(positive) else 0.0)
    together = sum(reading.n_pairs for reading in meter.by_class.values())
    assert meter.overall.n_pairs == together
    if together:
        repelled = sum(reading.share * reading.n_pairs for reading in meter.by_class.values())
        assert meter.overall.share == pytest.approx(repelled / together)


def test_two_classes_of_512() -> None:
    """Random embeddings: SupCon repels many pairs within a class, SINCERE exactly none."""
    z, labels = torch.randn(1024, 128), torch.arange(1024) % 2
    supcon, sincere = (repulsion_meter(z, labels, loss=loss).overall for loss in ("supcon", "sincere"))
    assert 0.05 < supcon.share < 0.3
    assert supcon.strength > 0
    assert supcon.n_pairs == sincere.n_pairs == 2 * 512 * 511 // 2
    assert sincere.share == sincere.strength == 0


def test_repulsion_grows_with_the_number_of_partners() -> None:
    """The paper's claim: the more of a class there are, the more of its pairs are pushed apart."""
    z = torch.randn(512, 32)
    shares = [repulsion_meter(z, torch.arange(512) % n_classes).overall.share for n_classes in (256, 16, 4, 2)]
    assert shares[0] == 0, "one partner: SupCon is SINCERE"
    assert shares == sorted(set(shares))


@pytest.mark.parametrize("temperature", [0.1, 0.03, 0.01])
@pytest.mark.parametrize("spread", [0.0, 0.01, 0.05])
def test_rounding_is_no_repulsion(temperature: float, spread: float) -> None:
    """One partner each: SupCon is SINCERE and repels nothing, also in float32; nor do identical vectors."""
    labels = torch.arange(128).repeat_interleave(2)
    z = normalize(torch.randn(128, 64), dim=1)[labels] + spread * torch.randn(256, 64)
    assert repulsion_meter(z, labels, temperature=temperature).overall.share == 0
    one_class = torch.ones(50, 8)
    assert repulsion_meter(one_class, torch.zeros(50).long(), temperature=temperature).overall.share == 0


def test_nan_is_not_hidden() -> None:
    z, labels = torch.randn(20, 4), torch.arange(20) % 2
    z[3] = torch.nan
    overall = repulsion_meter(z, labels).overall
    assert math.isnan(overall.share)
    assert math.isnan(overall.strength)


def test_large_classes_are_cut_into_tiles() -> None:
    """More members than a tile has rows: the off-diagonal tiles count each pair once."""
    z, labels = torch.randn(1500, 8), torch.cat([torch.zeros(1300), torch.ones(200)]).long()
    meter = repulsion_meter(z, labels)
    matrix = gradient_coefficients(z, labels, loss="supcon")
    pairs = (labels[:, None] == labels) & torch.ones(1500, 1500, dtype=torch.bool).triu(1)
    expected = ((matrix + matrix.T)[pairs] > 0).double().mean()
    assert meter.overall.share == pytest.approx(expected.item(), abs=1e-4)


def test_inside_autocast() -> None:
    """As in a training step."""
    z, labels = torch.randn(200, 8), torch.arange(200) % 2
    with torch.autocast("cpu", dtype=torch.bfloat16):
        meter, matrix = repulsion_meter(z, labels), gradient_coefficients(z, labels)
    assert meter == repulsion_meter(z, labels)
    assert torch.equal(matrix, gradient_coefficients(z, labels))


@pytest.mark.parametrize("like", ["sincere", "supcon", "eps-supinfonce"])
def test_a_loss_that_is_only_in_the_table(like: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new entry has its meter, by what it says of itself and not by its name."""
    monkeypatch.setitem(LOSSES, "toy", replace(LOSSES[like], title="Toy"))
    z, labels = batch()
    assert repulsion_meter(z, labels, loss="toy") == repulsion_meter(z, labels, loss=like)
    assert torch.equal(gradient_coefficients(z, labels, loss="toy"), gradient_coefficients(z, labels, loss=like))
    assert (repulsion_meter(z, labels, loss="toy").overall.share > 0) == LOSSES["toy"].positives_in_denominator


def test_hyper_parameters_reach_the_coefficients() -> None:
    z, labels = batch()
    zero = gradient_coefficients(z, labels, loss="eps-supinfonce", epsilon=0.0)
    assert torch.equal(zero, gradient_coefficients(z, labels, loss="sincere"))
    assert not torch.equal(zero, gradient_coefficients(z, labels, loss="eps-supinfonce"))
    assert repulsion_meter(z, labels, loss="eps-supinfonce", epsilon=0.5).overall.share == 0


LABELLED = ", ".join(repr(name) for name, loss in LOSSES.items() if loss.needs_labels)


@pytest.mark.parametrize("instrument", [repulsion_meter, gradient_coefficients])
def test_a_loss_without_labels_is_refused(instrument: Any) -> None:
    z, labels = batch()
    with pytest.raises(InputValueError) as caught:
        instrument(z, labels, loss="infonce")
    requirement = f"loss must be one that takes labels, {LABELLED}"
    expected = f"{instrument.__name__}: {requirement}; got 'infonce', whose classes are single images"
    assert str(caught.value) == expected


def test_bad_input() -> None:
    z, labels = torch.randn(6, 3), torch.arange(6) % 2
    with pytest.raises(InputValueError) as caught:
        repulsion_meter(z, labels, loss="supcom")
    expected = f"repulsion_meter: loss must be one of {LABELLED}; got 'supcom'."
    expected += " Did you mean 'supcon'?"
    assert str(caught.value) == expected
    with pytest.raises(InputValueError, match=r"^repulsion_meter: labels must have shape \(n,\) with n = 6 embeddings"):
        repulsion_meter(z, labels[:4])
    with pytest.raises(InputTypeError, match=r"^gradient_coefficients: labels must have an integer type"):
        gradient_coefficients(z, labels.float())
