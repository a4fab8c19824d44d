"""Every loss, kernel and form of labels gives what brute force gives: label sets, weights of keys, ignored rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sincere import k_positives_loss, sincere_loss, supcon_loss
from sincere.errors import InputValueError
from sincere.loss_catalog import LOSSES
from tests.losses.problems import KERNELS
from tests.losses.weighted_problems import CASES, FORMS, IGNORED, PROBLEMS, WeightedProblem, loss_of, oracle, suits

cases = pytest.mark.parametrize(("form", "case"), CASES)
kernels = pytest.mark.parametrize("kernel", KERNELS)
LABELLED = [form for form in FORMS if FORMS[form].labelled]


def test_every_loss_of_the_family_has_a_form() -> None:
    family = {name for name, loss in LOSSES.items() if loss.takes_label_sets}
    assert family == {form.partition(",")[0] for form in FORMS}


@cases
@kernels
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_value_and_gradient_are_those_of_brute_force(form: str, case: str, kernel: str, reduction: str) -> None:
    problem = PROBLEMS[case].leaves()
    expected = oracle(form, problem, reduction=reduction)
    actual = loss_of(form, problem, kernel=kernel, reduction=reduction)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
    upstream = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, problem.differentiable, upstream)
    found = torch.autograd.grad(actual, problem.differentiable, upstream)
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-9)


@pytest.mark.slow
@cases
@kernels
def test_gradcheck(form: str, case: str, kernel: str) -> None:
    problem = PROBLEMS[case].leaves()
    options = {"draw": 5} if form.startswith("k-positives") else {}
    assert torch.autograd.gradcheck(
        lambda *_: loss_of(form, problem, kernel=kernel, **options), problem.differentiable, atol=1e-5, fast_mode=True
    )


@pytest.mark.parametrize("form", LABELLED)
@kernels
def test_one_hot_rows_are_integer_labels(form: str, kernel: str) -> None:
    x = torch.randn(24, 2, 6, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(5, (24,))
    options = {"draw": 1} if form.startswith("k-positives") else {}
    by_class = loss_of(form, WeightedProblem(x, labels), kernel=kernel, **options)
    by_set = loss_of(form, WeightedProblem(x, torch.eye(5)[labels]), kernel=kernel, **options)
    torch.testing.assert_close(by_set, by_class, rtol=0, atol=1e-12)
    gradients = [torch.autograd.grad(loss, x)[0] for loss in (by_class, by_set)]
    torch.testing.assert_close(gradients[1], gradients[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("form", LABELLED)
@kernels
def test_ignored_rows_are_as_if_they_were_not_there(form: str, kernel: str) -> None:
    x = torch.randn(12, 2, 5, dtype=torch.float64)
    labels = torch.arange(12) % 3
    kept = torch.arange(12) % 4 != 1
    options = {"draw": 1, "n_positives": 99} if form.startswith("k-positives") else {}
    marked = labels.masked_fill(~kept, IGNORED)
    x_with_garbage = x.clone()
    x_with_garbage[~kept] = torch.nan
    whole = loss_of(form, WeightedProblem(x_with_garbage, marked), kernel=kernel, reduction="none", **options)
    part = loss_of(form, WeightedProblem(x[kept], labels[kept]), kernel=kernel, reduction="none", **options)
    assert torch.equal(whole[~kept], torch.zeros_like(whole[~kept]))
    torch.testing.assert_close(whole[kept], part)


def test_another_label_can_be_ignored() -> None:
    x, labels = torch.randn(8, 4), torch.tensor([0, 0, 1, 1, -1, -1, 2, 2])
    alone = sincere_loss(x[labels >= 0], labels[labels >= 0])
    torch.testing.assert_close(sincere_loss(x, labels, ignore_index=-1), alone)


@kernels
def test_ignored_rows_get_no_gradient(kernel: str) -> None:
    x = torch.randn(10, 4, requires_grad=True)
    labels = torch.tensor([0, 0, 1, 1, 0, 1, IGNORED, IGNORED, 2, 2])
    sincere_loss(x, labels, kernel=kernel).backward()
    assert torch.equal(x.grad[6:8], torch.zeros(2, 4))
    assert x.grad[:6].abs().sum() > 0


@kernels
@pytest.mark.parametrize("loss", [sincere_loss, supcon_loss])
def test_a_weight_of_two_is_a_key_twice(loss: object, kernel: str) -> None:
    """Among negatives the weight counts copies."""
    x, keys = torch.randn(4, 3), torch.randn(6, 3)
    labels, key_labels = torch.zeros(4, dtype=torch.long), torch.tensor([0, 0, 1, 1, 2, 2])
    weights = torch.tensor([1.0, 1.0, 1.0, 2.0, 1.0, 3.0])
    twice = torch.tensor([0, 1, 2, 3, 3, 4, 5, 5, 5])
    weighted = loss(x, labels, keys=keys, key_labels=key_labels, key_weights=weights, kernel=kernel)  # type: ignore[operator]
    copied = loss(x, labels, keys=keys[twice], key_labels=key_labels[twice], kernel=kernel)  # type: ignore[operator]
    torch.testing.assert_close(weighted, copied)


@kernels
def test_a_row_of_zeros_is_an_image_without_label(kernel: str) -> None:
    x, labels = torch.randn(8, 2, 4), torch.tensor([0, -1, 0, 1, -1, 1, 2, 2])
    sets = torch.eye(4)[labels.clamp_min(0)] * (labels >= 0)[:, None]
    torch.testing.assert_close(sincere_loss(x, sets, kernel=kernel), sincere_loss(x, labels, kernel=kernel))


@kernels
@pytest.mark.parametrize("positives_in_denominator", [True, False])
def test_k_positives_are_drawn_among_the_positives(kernel: str, positives_in_denominator: bool) -> None:
    """The loss of each anchor is that of some k of its positives, and which of them differs from draw to draw."""
    x, labels = torch.randn(12, 4, dtype=torch.float64), torch.arange(12) % 2
    s = torch.nn.functional.normalize(x, dim=1) @ torch.nn.functional.normalize(x, dim=1).T / 0.5
    drawn = set()
    for draw in range(4):
        each = k_positives_loss(
            x,
            labels,
            n_positives=1,
            draw=draw,
            temperature=0.5,
            reduction="none",
            kernel=kernel,
            positives_in_denominator=positives_in_denominator,
        )
        for i in range(12):
            others = torch.arange(12) != i
            same = others & (labels == labels[i])
            negatives = s[i, labels != labels[i]].logsumexp(0)
            pairs = s[i, others].logsumexp(0) - s[i, same]
            if not positives_in_denominator:
                pairs = torch.nn.functional.softplus(negatives - s[i, same])
            nearest = (pairs - each[i]).abs()
            assert nearest.min() < 1e-9
            drawn.add((i, int(nearest.argmin())))
    assert len(drawn) > 24, "every anchor has drawn more than one positive in four draws, or nearly"


def test_the_draw_does_not_depend_on_blocks_or_kernels() -> None:
    x, labels = torch.randn(40, 8, dtype=torch.float64), torch.arange(40) % 3
    values = [k_positives_loss(x, labels, n_positives=2, draw=7, kernel=kernel) for kernel in KERNELS]
    torch.testing.assert_close(values[0], values[1])
    assert k_positives_loss(x, labels, n_positives=2, draw=8) != values[0]


def test_draws_come_from_the_global_generator() -> None:
    x, labels = torch.randn(40, 8), torch.arange(40) % 3
    values = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        values.append(k_positives_loss(x, labels, n_positives=2).item())
    assert values[0] == values[1] != values[2]


@st.composite
def any_problems(draw: st.DrawFn) -> WeightedProblem:
    n, m, views, n_labels = (draw(st.integers(1, high)) for high in (9, 10, 3, 4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    dtype = draw(st.sampled_from([torch.float16, torch.float32, torch.float64]))
    kind = draw(st.sampled_from(["classes", "sets", "probabilities"]))

    def rows(*shape: int) -> torch.Tensor:
        x = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return (x[:1].expand_as(x) if draw(st.booleans()) else x).to(dtype)

    def labels(size: int) -> torch.Tensor:
        if kind == "classes":
            return torch.tensor(draw(st.lists(st.sampled_from([IGNORED, -1, 0, 1, 2]), min_size=size, max_size=size)))
        sets = (torch.rand(size, n_labels, generator=generator) < draw(st.floats(0, 1))).double()
        if kind == "probabilities":
            return sets / sets.sum(dim=1, keepdim=True).clamp_min(1)
        sets[torch.rand(size, generator=generator) < 0.2] = IGNORED
        return sets

    keyed = draw(st.booleans())
    weight = draw(st.sampled_from([None, 1e-3, 1e3]))
    return WeightedProblem(
        rows(n, views, 4),
        labels(n),
        rows(m, 4) if keyed else None,
        labels(m) if keyed else None,
        torch.randint(-1, m, (n, views), generator=generator) if keyed and draw(st.booleans()) else None,
        None if weight is None else torch.rand(m if keyed else n, generator=generator) * weight + 1e-4,
        draw(st.floats(1e-3, 10)),
        soft=kind == "probabilities",
    )


@pytest.mark.parametrize("form", FORMS)
@kernels
@settings(max_examples=40, deadline=None)
@given(problem=any_problems(), reduction=st.sampled_from(["mean", "none"]))
def test_finite(form: str, kernel: str, problem: WeightedProblem, reduction: str) -> None:
    """No NaN and no infinity, in the value or any gradient."""
    if not suits(form, problem) or (not FORMS[form].labelled and problem.embeddings.shape[1] < 2):
        return
    leaves = problem.leaves()
    value = loss_of(form, leaves, kernel=kernel, reduction=reduction)
    assert value.isfinite().all()
    value.sum().backward()
    for x in leaves.differentiable:
        assert not x.grad.isnan().any()
        assert x.dtype == torch.float16 or x.grad.isfinite().all()


SETS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 0.0]])


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (-SETS, {}, "labels of shape (n, L) must be label sets, finite numbers of at least 0; got -1"),
        (SETS * torch.nan, {}, "labels of shape (n, L) must be label sets, finite numbers of at least 0; got nan"),
        (
            SETS,
            {"soft": True},
            "rows of labels must be probabilities, with a sum of at most 1, with soft=True; got a sum of 2",
        ),
        (
            SETS,
            {"keys": torch.ones(3, 2), "key_labels": torch.arange(3)},
            "key_labels must be label sets of shape (m, L) with L = 2, as labels are; got (3,)",
        ),
        (
            SETS,
            {"key_weights": torch.tensor([1.0, 0.0, 1.0, 1.0])},
            "key_weights must be finite numbers greater than 0; got 0",
        ),
        (SETS, {"key_weights": torch.ones(3)}, "key_weights must have shape (n,) with n = 4 embeddings; got (3,)"),
    ],
)
def test_bad_input(labels: torch.Tensor, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputValueError) as caught:
        sincere_loss(torch.ones(4, 2), labels, **options)
    assert str(caught.value) == f"sincere_loss: {message}"
