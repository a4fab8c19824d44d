"""The loss with targets: equal to its equation; targets are uniform, and matched to the class means."""

from __future__ import annotations

import copy
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.functional import normalize

from sincere import TargetedLoss, targeted_loss
from sincere.errors import InputTypeError, InputValueError
from sincere.losses import equations
from sincere.losses.targets import best_assignment, uniform_targets
from tests.losses.problems import KERNELS

IGNORED = -100
PAIRS = {True: equations.supcon_pair, False: equations.sincere_pair}
kernels = pytest.mark.parametrize("kernel", KERNELS)


def brute_force(x: Tensor, labels: Tensor, targets: Tensor, t: Any, weight: float, kept: bool) -> list[Tensor | None]:
    """Each anchor's loss with all positives, by the equation; None for one without a positive."""
    views = x.shape[1]
    rows = normalize(x.flatten(0, 1), dim=1)
    classes = [label for label in labels.tolist() for _ in range(views)]
    centres = normalize(targets, dim=1)
    losses: list[Tensor | None] = []
    for i, label in enumerate(classes):
        there = [j for j in range(len(rows)) if j != i and classes[j] != IGNORED]
        same = [j for j in there if (classes[j] == label and label != -1) or (label == -1 and j // views == i // views)]
        s, to_targets = rows @ rows[i] / t, centres @ rows[i] / t
        noise = s[[j for j in there if j not in same]]
        if label == IGNORED or not (same or (label >= 0 and weight)):
            losses.append(None)
        elif label >= 0:
            others = to_targets[[c for c in range(len(targets)) if c != label]]
            losses.append(equations.targeted(PAIRS[kept], s[same], noise, to_targets[label], others, weight=weight))
        else:
            noise = torch.cat([noise, to_targets])
            losses.append(torch.stack([PAIRS[kept](s[p], s[same], noise) for p in same]).mean())
    return losses


def problem(n_views: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    labels = torch.tensor([0, 1, 2, 0, 0, -1, 3, 1, IGNORED, -1, 0])  # no image of class 4
    x = torch.randn(len(labels), n_views, 3, generator=generator, dtype=torch.float64)
    return x, labels, torch.randn(5, 3, generator=generator, dtype=torch.float64)


@kernels
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("n_views", [1, 2])
def test_value_and_gradient(kernel: str, kept: bool, weight: float, reduction: str, n_views: int) -> None:
    x, labels, targets = problem(n_views)
    x.requires_grad_()
    t = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    each = brute_force(x, labels, targets, t, weight, kept)
    stacked = torch.stack([torch.zeros((), dtype=torch.float64) if loss is None else loss for loss in each])
    n_counted = sum(loss is not None for loss in each)
    expected = {"mean": stacked.sum() / n_counted, "sum": stacked.sum(), "none": stacked.view(len(x), n_views)}
    actual = targeted_loss(
        x,
        labels,
        targets=targets,
        target_weight=weight,
        n_positives=99,
        positives_in_denominator=kept,
        temperature=t,
        reduction=reduction,
        kernel=kernel,
    )
    torch.testing.assert_close(actual, expected[reduction], rtol=1e-10, atol=1e-10)
    upstream = torch.randn_like(actual)
    wanted = torch.autograd.grad(expected[reduction], (x, t), upstream)
    torch.testing.assert_close(torch.autograd.grad(actual, (x, t), upstream), wanted, rtol=1e-8, atol=1e-9)


@kernels
@pytest.mark.parametrize("kept", [True, False])
def test_the_target_is_taken_beside_the_drawn_positives(kernel: str, kept: bool) -> None:
    """The mean over one drawn positive and the target is that of some positive, whichever was drawn."""
    x, labels = torch.randn(8, 3, dtype=torch.float64), torch.arange(8) % 2
    targets, drawn = torch.eye(3, dtype=torch.float64)[:2], set()
    rows, pair = normalize(x, dim=1), PAIRS[kept]
    for draw in range(6):
        options = {"n_positives": 1, "positives_in_denominator": kept, "draw": draw, "temperature": 0.5}
        each = targeted_loss(x, labels, targets=targets, reduction="none", kernel=kernel, **options)
        for i in range(8):
            s, to_targets = rows @ rows[i] / 0.5, targets @ rows[i] / 0.5
            same = [j for j in range(8) if j != i and labels[j] == labels[i]]
            own, others = to_targets[labels[i]], to_targets[1 - labels[i]][None]
            partners, noise = torch.cat([s[same], own[None]]), torch.cat([s[labels != labels[i]], others])
            means = [(pair(s[p], partners, noise) + pair(own, partners, noise)) / 2 for p in same]
            nearest = (torch.stack(means) - each[i]).abs()
            assert nearest.min() < 1e-9
            drawn.add((i, int(nearest.argmin())))
    assert len(drawn) > 16, "every anchor has drawn more than two of its three positives, or nearly"


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    labels=st.lists(st.sampled_from([IGNORED, -1, 0, 1, 2]), min_size=1, max_size=8),
    temperature=st.floats(1e-3, 10),
    kept=st.booleans(),
    equal=st.booleans(),
)
@kernels
def test_finite(kernel: str, seed: int, labels: list[int], temperature: float, kept: bool, equal: bool) -> None:
    x = torch.randn(len(labels), 2, 3, generator=torch.Generator().manual_seed(seed))
    x = (torch.zeros_like(x) if equal else x).requires_grad_()
    criterion = TargetedLoss(temperature, n_classes=3, dim=3, positives_in_denominator=kept, kernel=kernel)
    value = criterion(x, torch.tensor(labels))
    value.backward()
    assert value.isfinite()
    assert x.grad.isfinite().all()
    assert criterion.means.isfinite().all()


@pytest.mark.parametrize(("n", "dim"), [(2, 1), (3, 2), (4, 8), (9, 8), (20, 64)])
def test_few_targets_are_a_simplex(n: int, dim: int) -> None:
    similarities = uniform_targets(n, dim) @ uniform_targets(n, dim).T
    expected = torch.full((n, n), -1 / (n - 1), dtype=torch.float64).fill_diagonal_(1.0)
    torch.testing.assert_close(similarities, expected)


def test_more_targets_are_spread() -> None:
    """Seven points on a circle are a heptagon, six on a sphere an octahedron; equal on every call."""
    angles = torch.atan2(*uniform_targets(7, 2).T).sort().values
    torch.testing.assert_close(angles.diff(), torch.full((6,), 2 * torch.pi / 7).double(), atol=1e-3, rtol=0)
    octahedron = uniform_targets(6, 3)
    closest = (octahedron @ octahedron.T).sort(dim=1).values
    torch.testing.assert_close(closest[:, 0], -torch.ones(6).double(), atol=1e-3, rtol=0)
    torch.testing.assert_close(closest[:, 1:5], torch.zeros(6, 4).double(), atol=1e-2, rtol=0)
    assert torch.equal(octahedron, uniform_targets(6, 3))


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 6), seed=st.integers(0, 2**16), whole=st.booleans(), warm=st.booleans())
def test_the_assignment_is_the_best_of_all(n: int, seed: int, whole: bool, warm: bool) -> None:
    generator = np.random.default_rng(seed)
    scores = generator.normal(size=(n, n))
    scores = scores.round() if whole else scores  # with ties
    columns, prices = best_assignment(scores, generator.normal(size=n) if warm else None)
    assert sorted(columns) == list(range(n))
    best = max(sum(scores[i, j] for i, j in enumerate(order)) for order in permutations(range(n)))
    assert scores[np.arange(n), columns].sum() == pytest.approx(best)
    net = scores - prices
    assert net[np.arange(n), columns] == pytest.approx(net.max(axis=1))


def test_many_classes_are_assigned_as_by_scipy() -> None:
    generator = np.random.default_rng(0)
    scores, prices = generator.normal(size=(80, 80)), None
    for _ in range(3):  # with the prices of the scores before
        columns, prices = best_assignment(scores, prices)
        assert scores[np.arange(80), columns].sum() == pytest.approx(scores[linear_sum_assignment(-scores)].sum())
        scores = scores + 0.1 * generator.normal(size=(80, 80))


def test_means_and_assignment_follow_the_classes() -> None:
    criterion = TargetedLoss(n_classes=4, dim=3)
    order = torch.tensor([2, 0, 3, 1])
    batch = criterion.targets[order].repeat(2, 1), torch.arange(4).repeat(2)
    before = criterion.eval().state_dict()
    criterion(*batch)
    assert all(torch.equal(value, before[name]) for name, value in criterion.state_dict().items())
    criterion.train()(*batch)
    assert torch.equal(criterion.assignment, order)
    torch.testing.assert_close(criterion.means, criterion.targets[order])
    torch.testing.assert_close(criterion.class_targets(), batch[0][:4])
    moved = torch.tensor([[1.0, 0.0, 0.0]])
    criterion(moved, torch.tensor([1]))
    torch.testing.assert_close(criterion.means[1], normalize(0.9 * criterion.targets[0] + 0.1 * moved[0], dim=0))
    torch.testing.assert_close(criterion.means[0], criterion.targets[2])  # of a class that was not there


def test_state_goes_on_where_it_was() -> None:
    generator = torch.Generator().manual_seed(0)
    batches = [(torch.randn(12, 4, generator=generator), torch.arange(12) % 6) for _ in range(6)]
    whole = TargetedLoss(n_classes=6, dim=4, draw=1)
    for batch in batches[:3]:
        whole(*batch)
    resumed = TargetedLoss(n_classes=6, dim=4, draw=1)
    resumed.load_state_dict(copy.deepcopy(whole.state_dict()))
    for batch in batches[3:]:
        assert torch.equal(whole(*batch), resumed(*batch))
    assert all(torch.equal(value, resumed.state_dict()[name]) for name, value in whole.state_dict().items())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": torch.tensor([0, 5])}, "labels must be 0 to 2, a class with a target, or -1; got 5"),
        ({"labels": torch.tensor([0, -2])}, "labels must be 0 to 2, a class with a target, or -1; got -2"),
        (
            {"targets": torch.zeros(3, 4)},
            "targets must be floating-point numbers of shape (C, d) with d = 2 as the embeddings have; "
            "got torch.float32 of shape (3, 4)",
        ),
        ({"target_weight": -1.0}, "target_weight must be a finite number of at least 0; got -1.0"),
        ({"n_positives": 0}, "n_positives must be an integer of at least 1; got 0"),
    ],
)
def test_wrong_values(options: dict[str, Any], message: str) -> None:
    given = {"labels": torch.tensor([0, 1]), "targets": torch.zeros(3, 2), **options}
    with pytest.raises(InputValueError) as caught:
        targeted_loss(torch.randn(2, 2), **given)
    assert str(caught.value) == f"targeted_loss: {message}"


@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        ((1, 4), InputValueError, "n_classes must be an integer of at least 2; got 1"),
        ((3, 1), InputValueError, "dim must be at least 2 for 3 targets; got 1"),
        ((3.0, 2), InputTypeError, "n_classes must be an integer of at least 2; got float"),
    ],
)
def test_wrong_sizes(sizes: tuple[Any, int], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        TargetedLoss(n_classes=sizes[0], dim=sizes[1])
    assert str(caught.value) == f"TargetedLoss: {message}"


@pytest.mark.parametrize("kernel", ["dense", "tiled"])
@pytest.mark.parametrize("positives_in_denominator", [True, False])
def test_gradcheck(kernel: str, positives_in_denominator: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(7, 2, 4, generator=generator, dtype=torch.float64).requires_grad_()
    temperature = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    labels, targets = torch.tensor([0, 1, 2, 0, -1, 1, -100]), uniform_targets(3, 4)

    def loss(z: Tensor, temperature: Tensor) -> Tensor:
        options = {"kernel": kernel, "positives_in_denominator": positives_in_denominator}
        return targeted_loss(z, labels, targets=targets, temperature=temperature, draw=3, **options)

    assert torch.autograd.gradcheck(loss, (z, temperature))
