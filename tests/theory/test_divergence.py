"""Divergence bounds of classes: right on known distributions, honest at the edges, memory-bounded."""

from __future__ import annotations

import math

import pytest
import torch

from sincere import sincere_loss
from sincere.errors import InputTypeError, InputValueError
from sincere.statistics.bootstrap import interval
from sincere.theory.bounds import divergence_cap, divergence_lower_bound
from sincere.theory.divergence import _bootstrap_mean, class_divergence_bounds


def two_gaussians(n: int, separation: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Two classes in the plane with J = separation^2, compared by inner product (not normalised)."""
    labels = torch.arange(n) % 2
    return torch.randn(n, 2) + separation * (labels[:, None] - 0.5) * torch.tensor([1.0, 0.0]), labels


@pytest.mark.parametrize("separation", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("n_noise", [None, 20])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_bound_is_below_the_true_divergence(separation: float, n_noise: int | None, temperature: float) -> None:
    z, labels = two_gaussians(3000, separation)
    for bound in class_divergence_bounds(z, labels, temperature=temperature, normalize=False, n_noise=n_noise):
        assert bound.bound.low <= separation**2 + 0.05
        assert bound.bound.low <= bound.bound.estimate <= bound.bound.high <= bound.cap


def test_bound_says_something() -> None:
    """Far classes: a bound of several nats, near its cap, which grows with the number of noise items."""
    z, labels = two_gaussians(2000, 8.0)
    few, many = (class_divergence_bounds(z, labels, n_noise=n, temperature=0.2)[0] for n in (10, 1000))
    assert few.bound.estimate > 0.8 * few.cap
    assert few.cap == pytest.approx(11 / 10 * math.log(11))
    assert many.bound.estimate > 0.8 * many.cap > few.cap


@pytest.mark.parametrize("n", [2, 3, 1001, 30_000])
def test_interval_is_that_of_the_statistics(n: int) -> None:
    """The theory resamples by NumPy alone; the numbers are those of SciPy's bootstrap."""
    values = (3 * torch.rand(n)).numpy()
    assert _bootstrap_mean(values, 1000, 7) == interval(values, n_resamples=1000, seed=7)


def test_values_fit_together() -> None:
    z, labels = torch.randn(90, 5), torch.arange(90) % 3
    each = sincere_loss(z, labels, temperature=0.3, reduction="none")
    for bound in class_divergence_bounds(z, labels, temperature=0.3):
        loss = each[labels == bound.label].mean().item()
        assert (bound.n_anchors, bound.n_noise) == (30, 60)
        assert bound.loss == pytest.approx(loss, rel=1e-5)
        assert bound.bound.estimate == pytest.approx(divergence_lower_bound(loss, 60), rel=1e-4, abs=1e-5)
        assert bound.paper_bound <= bound.bound.estimate
        assert bound.cap == divergence_cap(60)


def test_drawn_noise_is_seeded_and_all_of_it_is_the_default() -> None:
    z, labels = two_gaussians(200, 2.0)
    options = {"temperature": 1.0, "normalize": False}
    once, again, other = (class_divergence_bounds(z, labels, n_noise=30, seed=s, **options) for s in (1, 1, 2))
    assert once == again
    assert once != other
    everything, default = (class_divergence_bounds(z, labels, n_noise=n, **options) for n in (100, None))
    for a, b in zip(everything, default, strict=True):
        assert a.loss == pytest.approx(b.loss, rel=1e-5)


def test_unlabelled_items_are_left_out() -> None:
    z, labels = two_gaussians(60, 1.0)
    hidden = torch.cat([labels, torch.full((10,), -1)])
    assert class_divergence_bounds(torch.cat([z, torch.randn(10, 2)]), hidden) == class_divergence_bounds(z, labels)


def test_a_class_may_have_any_number() -> None:
    """-100, which the losses leave out by default, is one like others."""
    z, labels = two_gaussians(60, 1.0)
    bounds = {bound.label: bound for bound in class_divergence_bounds(z, labels)}
    renamed = {bound.label: bound for bound in class_divergence_bounds(z, torch.where(labels == 0, -100, labels))}
    assert (renamed[-100].bound, renamed[1].bound) == (bounds[0].bound, bounds[1].bound)


def test_interval_narrows_with_more_anchors() -> None:
    widths = []
    for n in (100, 1600):
        z, labels = two_gaussians(n, 4.0)
        bound = class_divergence_bounds(z, labels, n_noise=50, temperature=2.0, normalize=False)[0].bound
        assert bound.low > 0
        widths.append(bound.high - bound.low)
    assert widths[1] < widths[0] / 2


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"labels": torch.tensor([0, 0, 1, 1, 1, 7])},
            InputValueError,
            "every class must have at least 2 items; got 1 of class 7. "
            "Leave such classes out: an anchor needs a partner",
        ),
        ({"labels": torch.zeros(6, dtype=torch.int64)}, InputValueError, "labels must hold at least 2 classes; got 1"),
        ({"labels": torch.full((6,), -1)}, InputValueError, "labels must hold at least 2 classes; got 0"),
        ({"n_noise": 0}, InputValueError, "n_noise must be an integer of at least 1; got 0"),
        ({"n_noise": 4}, InputValueError, "n_noise must be at most 3, the items outside the largest class; got 4"),
        (
            {"labels": torch.zeros(6)},
            InputTypeError,
            "labels must have an integer type; got torch.float32. Convert them with labels.long()",
        ),
        ({"temperature": -1}, InputValueError, "temperature must be a finite number greater than 0; got -1"),
        ({"n_resamples": 0}, InputValueError, "n_resamples must be an integer of at least 1; got 0"),
        ({"seed": -1}, InputValueError, "seed must be an integer of at least 0; got -1"),
        (
            {"embeddings": torch.full((6, 3), torch.nan)},
            InputValueError,
            "embeddings must be finite; got NaN or infinity",
        ),
        ({"embeddings": torch.randn(6, 2, 3)}, InputValueError, "embeddings must have shape (n, d); got (6, 2, 3)"),
    ],
)
def test_bad_input(change: dict[str, object], error: type[Exception], message: str) -> None:
    good = {"embeddings": torch.randn(6, 3), "labels": torch.arange(6) % 2}
    with pytest.raises(error) as caught:
        class_divergence_bounds(**{**good, **change})
    assert str(caught.value) == f"class_divergence_bounds: {message}"
