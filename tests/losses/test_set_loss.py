"""The loss over sets: both methods against enumeration of all sets, each other, and what they must be at the edges."""

from __future__ import annotations

import inspect
import math
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize

from sincere import SetSINCERELoss, host, set_sincere_loss, sincere_loss
from sincere.errors import InputTypeError, InputValueError, UnsupportedError
from sincere.losses.equations import set_losses
from sincere.losses.kernels import set_blocks, set_terms
from sincere.losses.kernels.saddle_point import log_probability
from sincere.losses.kernels.subset_counts import CountTree
from tests.losses.problems import PROBLEMS, Problem, loss_of, oracle_loss
from tests.losses.test_bad_input import TYPE_ERRORS, VALUE_ERRORS
from tests.losses.test_finite import problems

METHODS = ["auto", "exact", "saddle"]
methods = pytest.mark.parametrize("method", METHODS)


def similarity_loss(s: Tensor, n_positives: int, method: str) -> Tensor:
    """The loss of one anchor with given similarities, positives first: vectors that have them as inner products."""
    labels = torch.ones(1, dtype=torch.int64)
    key_labels = (torch.arange(len(s)) < n_positives).long()
    return set_sincere_loss(
        torch.ones(1, 1, dtype=s.dtype),
        labels,
        temperature=1.0,
        keys=s[:, None],
        key_labels=key_labels,
        normalize=False,
        method=method,
    )


@pytest.mark.parametrize("n", range(2, 13))
@pytest.mark.parametrize("temperature", [1.0, 0.1, 0.01])
def test_value_and_gradient_are_those_of_all_subsets(n: int, temperature: float) -> None:
    for n_classes in (1, 2, 3):
        x = torch.randn(n, 4, dtype=torch.float64, requires_grad=True)
        labels = torch.randint(n_classes, (n,))
        losses = set_losses(normalize(x, dim=1), labels, temperature)
        expected = losses.sum() / max(1, sum(int((labels == label).sum()) > 1 for label in labels))
        actual = set_sincere_loss(x, labels, temperature=temperature, method="exact")
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
        gradients = [torch.autograd.grad(value, x)[0] for value in (actual, expected)]
        torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10 / temperature)


@methods
@pytest.mark.parametrize("case", ["rows", "views", "large class", "keys that hold the anchors", "views and key views"])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_gradcheck(method: str, case: str, reduction: str) -> None:
    """The backward of the saddle point is the derivative of the value it returns; embeddings, keys, temperature."""
    problem = PROBLEMS[case].leaves()
    assert torch.autograd.gradcheck(
        lambda *_: loss_of("set-sincere", problem, method=method, reduction=reduction),
        problem.differentiable,
        fast_mode=True,
    )


def grid() -> list[tuple[Tensor, int]]:
    """Similarities, positives first: classes apart by gaps of 0 to 40, with noise or a few hard items."""
    generator = torch.Generator().manual_seed(0)
    result = []
    gaps = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0, 30.0, 40.0)
    for k, n_negatives, gap in product((8, 10, 16, 40), (1, 2, 4, 8, 30, 200), gaps):
        positives = torch.arange(k + n_negatives) < k
        for spread in (0.0, 1.0, 3.0):
            noise = spread * torch.randn(k + n_negatives, generator=generator, dtype=torch.float64)
            result.append((torch.where(positives, gap, 0.0) + noise, k))
        for n_hard in (1, 2, 4):
            hard = torch.where(positives, gap, 0.0).double()
            hard[:n_hard] = gap / 2  # a few positives and negatives meet half way
            hard[k : k + n_hard] = gap / 2
            result.append((hard, k))
    return result


@pytest.mark.slow
def test_error_of_the_saddle_point() -> None:
    """At most 0.01 per positive for k of 8 and more; below, "auto" is exact."""
    errors = [similarity_loss(s, k, "saddle") - similarity_loss(s, k, "exact") for s, k in grid()]
    assert torch.stack(errors).abs().max() <= 0.01
    assert set_terms.EXACT_BELOW == 8


def test_without_its_corrections_the_saddle_point_would_not_do() -> None:
    """Else the test above would say nothing about them: i0e(V) alone errs by 0.03 where one pair is undecided."""
    quarter = torch.tensor([0.25], dtype=torch.float64)
    variance = 2 * quarter
    error = torch.special.i0e(variance).log() - math.log(0.5)
    assert error / 8 > 0.03
    torch.testing.assert_close(log_probability(variance, 2 * quarter**2, 0 * quarter).value.exp(), 2 * quarter)


@pytest.mark.parametrize("variance", [1e-6, 0.1, 1.0, 5.0, 19.0, 21.0, 300.0, 1e5])
def test_many_small_probabilities_give_the_bessel_function(variance: float) -> None:
    V = torch.tensor([variance], dtype=torch.float64)
    value = log_probability(V, 1e-10 * V, 0 * V).value
    torch.testing.assert_close(value, torch.special.i0e(V).log(), rtol=1e-8, atol=1e-8)


def test_derivatives_of_the_saddle_points_model() -> None:
    V = torch.tensor([0.01, 0.5, 2.0, 19.0, 25.0, 200.0], dtype=torch.float64)
    at, step = [V, 0.1 * V, 0.3 * V], 1e-6
    result = log_probability(*at)
    for which, derivative in enumerate((result.by_variance, result.by_squares, result.by_skew)):
        more, less = ([x + sign * step * (i == which) * x for i, x in enumerate(at)] for sign in (1, -1))
        difference = (log_probability(*more).value - log_probability(*less).value) / (2 * step * at[which])
        torch.testing.assert_close(derivative, difference, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("m", [1, 2, 3, 7, 8, 13])
@pytest.mark.parametrize("degree", [1, 2, 5, 20])
def test_count_tree(m: int, degree: int) -> None:
    """The distribution, and that given each event, against the product one factor at a time."""

    def distribution(q: list[float]) -> Tensor:
        result = torch.tensor([1.0], dtype=torch.float64)
        for p in q:
            result = torch.cat([result * (1 - p), torch.zeros(1)]) + torch.cat([torch.zeros(1), result * p])
        return result

    q = torch.rand(3, m, dtype=torch.float64)
    tree, weights = CountTree(q, degree), torch.rand(min(degree, m) + 1, 3, dtype=torch.float64)
    size = min(degree, m) + 1
    for row in range(3):
        probabilities = q[row].tolist()
        torch.testing.assert_close(tree.distribution[:size, row], distribution(probabilities)[:size])
        for j in range(m):
            given_j = distribution(probabilities[:j] + probabilities[j + 1 :])
            expected = (weights[1:, row] * given_j[: size - 1]).sum()
            torch.testing.assert_close(tree.given_each(weights)[row, j], expected)


@methods
def test_one_positive_each_is_sincere(method: str) -> None:
    x = torch.randn(9, 2, 5, dtype=torch.float64, requires_grad=True)
    labels = torch.full((9,), -1)
    actual, expected = set_sincere_loss(x, labels, method=method), sincere_loss(x, labels)
    gradients = [torch.autograd.grad(value, x)[0] for value in (actual, expected)]
    tolerance = {"rtol": 1e-10, "atol": 1e-10} if method != "saddle" else {"rtol": 0.0, "atol": 0.08}
    torch.testing.assert_close(actual, expected, **tolerance)
    if method != "saddle":
        torch.testing.assert_close(*gradients, **tolerance)


@methods
@pytest.mark.parametrize("temperature", [0.1, 0.001])
def test_no_negatives_give_zero(method: str, temperature: float) -> None:
    for n in (2, 6, 20):
        x = torch.randn(n, 4, requires_grad=True)
        value = set_sincere_loss(x, torch.zeros(n, dtype=torch.int64), method=method, temperature=temperature)
        value.backward()
        assert value.item() == 0
        assert torch.equal(x.grad, torch.zeros_like(x))


@methods
@pytest.mark.parametrize("n_positives", [3, 12])
def test_coefficients_are_probabilities(method: str, n_positives: int) -> None:
    """A positive's coefficient is in [-1, 0] before the division by k, a negative's in [0, 1], and they sum to 0."""
    for scale in (0.1, 1.0, 10.0, 100.0):
        s = (scale * torch.randn(30, dtype=torch.float64)).requires_grad_()
        (gradient,) = torch.autograd.grad(similarity_loss(s, n_positives, method) * n_positives, s)
        slack = 0.01 if method == "saddle" or n_positives >= 8 else 1e-12
        assert (gradient[:n_positives] <= slack).all()
        assert (gradient[:n_positives] >= -1 - slack).all()
        assert (gradient[n_positives:] >= -slack).all()
        assert (gradient[n_positives:] <= 1 + slack).all()
        assert gradient.sum().abs() < 1e-9


@methods
def test_closed_form_of_chance(method: str) -> None:
    """All similarities equal: one of C(m, k) sets."""
    x, labels = torch.ones(30, 3, dtype=torch.float64), torch.arange(30) // 10
    expected = math.log(math.comb(29, 9)) / 9
    assert set_sincere_loss(x, labels, method=method).item() == pytest.approx(
        expected, abs=1e-10 + 0.01 * (method != "exact")
    )


@methods
def test_order_of_the_items(method: str) -> None:
    x, labels, order = torch.randn(40, 6, dtype=torch.float64), torch.randint(-1, 4, (40,)), torch.randperm(40)
    each = set_sincere_loss(x, labels, method=method, reduction="none")
    shuffled = set_sincere_loss(x[order], labels[order], method=method, reduction="none")
    torch.testing.assert_close(shuffled, each[order])


@methods
@pytest.mark.parametrize("rows_per_block", [1, 7, 40])
def test_blocks_do_not_matter(method: str, rows_per_block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = torch.cat([torch.zeros(20), torch.arange(1, 6).repeat_interleave(4)]).long()
    problem = Problem(torch.randn(40, 6, dtype=torch.float64), labels).leaves()
    expected = torch.autograd.grad(loss_of("set-sincere", problem, method=method), problem.differentiable)
    monkeypatch.setattr(set_blocks, "_block_rows", lambda *_: rows_per_block)
    actual = torch.autograd.grad(loss_of("set-sincere", problem, method=method), problem.differentiable)
    torch.testing.assert_close(actual, expected)


@methods
def test_without_reading_back(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of accelerators: every key has a column, both methods under "auto", and no early end of the search."""
    labels = torch.cat([torch.zeros(15), torch.arange(1, 6).repeat_interleave(3)]).long()
    problem = Problem(torch.randn(30, 6, dtype=torch.float64), labels).leaves()
    expected = torch.autograd.grad(loss_of("set-sincere", problem, method=method), problem.differentiable)
    monkeypatch.setattr(host, "reads_back", lambda device: False)
    actual = torch.autograd.grad(loss_of("set-sincere", problem, method=method), problem.differentiable)
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("temperature", [0.1, 0.01, 0.001])
@methods
def test_float32(method: str, temperature: float) -> None:
    exact = Problem(torch.randn(60, 16, dtype=torch.float64), torch.arange(60) % 5, temperature=temperature)
    wide, problem = exact.leaves(), exact.to(torch.float32).leaves()
    expected, actual = (loss_of("set-sincere", p, method=method) for p in (wide, problem))
    torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-6 / temperature)
    gradients = [torch.autograd.grad(v, p.embeddings)[0].double() for v, p in ((actual, problem), (expected, wide))]
    assert (gradients[0] - gradients[1]).norm() / gradients[1].norm() < 1e-6 / temperature + 1e-5


@methods
@settings(max_examples=100, deadline=None)
@given(problem=problems(), reduction=st.sampled_from(["mean", "sum", "none"]))
def test_finite(method: str, problem: tuple[Problem, bool], reduction: str) -> None:
    given_problem, normalized = problem
    leaves = given_problem.leaves()
    value = loss_of("set-sincere", leaves, normalize=normalized, reduction=reduction, method=method)
    assert value.isfinite().all()
    value.sum().backward()
    for x in leaves.differentiable:
        assert not x.grad.isnan().any()
        assert x.dtype == torch.float16 or x.grad.isfinite().all()


@settings(max_examples=200, deadline=None)
@given(
    k=st.integers(1, 30),
    n_negatives=st.integers(1, 60),
    scale=st.floats(0, 3000),
    levels=st.integers(1, 5),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 2**16),
)
def test_saddle_stays_near_exact(
    k: int, n_negatives: int, scale: float, levels: int, dtype: torch.dtype, seed: int
) -> None:
    """Whatever the similarities: few levels make ties, large scales make steps, both far and near."""
    generator = torch.Generator().manual_seed(seed)
    positions = torch.randint(levels, (k + n_negatives,), generator=generator)
    s = (scale * torch.rand(levels, generator=generator, dtype=torch.float64))[positions].to(dtype)
    exact, saddle = (similarity_loss(s, k, method) for method in ("exact", "saddle"))
    assert exact >= -1e-4 * max(1.0, scale / 1000)
    assert (exact - saddle).abs() <= 0.09 / k + 1e-6 * scale


@methods
def test_nan_is_not_hidden(method: str) -> None:
    x = torch.randn(20, 4)
    x[2, 1] = torch.nan
    assert set_sincere_loss(x, torch.arange(20) % 2, method=method).isnan()


def test_keys_that_are_the_batch_give_the_batch_loss() -> None:
    x, labels = torch.randn(30, 4, dtype=torch.float64), torch.arange(30) % 3
    expected = set_sincere_loss(x, labels)
    torch.testing.assert_close(
        set_sincere_loss(x, labels, keys=x, key_labels=labels, anchor_index=torch.arange(30)), expected
    )
    torch.testing.assert_close(expected, set_sincere_loss(x, labels, method="saddle"))


@pytest.mark.parametrize("wanted", ["embeddings", "keys", "temperature"])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_each_gradient_alone(wanted: str, reduction: str) -> None:
    problem = PROBLEMS["keys that hold the anchors"].leaves()
    for x in problem.differentiable:
        x.requires_grad_(x is getattr(problem, wanted))
    oracle = oracle_loss("set-sincere", problem, reduction=reduction).sum()
    (expected,) = torch.autograd.grad(oracle, problem.differentiable)
    loss_of("set-sincere", problem, reduction=reduction).sum().backward()
    torch.testing.assert_close(getattr(problem, wanted).grad, expected)
    others = {"embeddings", "keys", "temperature"} - {wanted}
    assert all(getattr(problem, other).grad is None for other in others)


def test_without_grad_mode_only_the_value_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = []

    def spy(*arguments: Any, with_derivative: bool) -> Any:
        wanted.append(with_derivative)
        return set_terms.set_terms(*arguments, with_derivative=with_derivative)

    monkeypatch.setattr(set_blocks, "set_terms", spy)
    x, labels = torch.randn(20, 4, requires_grad=True), torch.arange(20) % 2
    with torch.no_grad():
        value = set_sincere_loss(x, labels)
    assert not value.requires_grad
    torch.testing.assert_close(set_sincere_loss(x, labels).detach(), value)
    assert wanted == [False, True]


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_second_derivatives_and_torch_func_are_refused(reduction: str) -> None:
    x, labels = torch.randn(12, 4, requires_grad=True), torch.arange(12) % 3
    loss = set_sincere_loss(x, labels, reduction=reduction).sum()
    (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(UnsupportedError, match=r'no second derivative; sincere_loss has one, with kernel="dense"$'):
        gradient.square().sum().backward()
    with pytest.raises(UnsupportedError, match=r"does not run under torch\.func; use sincere_loss$"):
        torch.func.grad(lambda z: set_sincere_loss(z, labels))(x.detach())


def test_inputs_are_not_modified() -> None:
    x, keys = torch.randn(30, 4, requires_grad=True), torch.randn(20, 4, requires_grad=True)
    before = [x.detach().clone(), keys.detach().clone()]
    labels, key_labels = torch.arange(30) % 2, torch.arange(20) % 2
    set_sincere_loss(x, labels, keys=keys, key_labels=key_labels, normalize=False).backward()
    set_sincere_loss(x, labels, normalize=False).backward()
    assert all(torch.equal(a.detach(), b) for a, b in zip((x, keys), before, strict=True))


def test_module() -> None:
    x, labels = torch.randn(20, 2, 4), torch.arange(20) % 2
    options = {"temperature": 0.3, "method": "exact", "normalize": False, "reduction": "none"}
    assert torch.equal(SetSINCERELoss(**options)(x, labels), set_sincere_loss(x, labels, **options))
    keyed = {"keys": x.flip(0), "key_labels": labels.flip(0), "anchor_index": torch.arange(40).view(20, 2)}
    assert torch.equal(SetSINCERELoss()(x, labels, **keyed), set_sincere_loss(x, labels, **keyed))
    assert repr(SetSINCERELoss()) == (
        "SetSINCERELoss(temperature=0.1, method='auto', normalize=True, reduction='mean', "
        "ignore_index=-100, group=None)"
    )
    assert SetSINCERELoss(torch.tensor(0.3)).state_dict() == {"temperature": torch.tensor(0.3)}
    assert len(list(SetSINCERELoss(torch.nn.Parameter(torch.tensor(0.3))).parameters())) == 1


def test_function_and_module_have_the_same_arguments() -> None:
    def defaults(function: Any) -> dict[str, Any]:
        return {p.name: p.default for p in inspect.signature(function).parameters.values() if p.default is not p.empty}

    assert defaults(set_sincere_loss) == {**defaults(SetSINCERELoss), **defaults(SetSINCERELoss.forward)}


@pytest.mark.parametrize("case", [case for case in VALUE_ERRORS if not case.startswith("kernel")])
def test_value_errors(case: str) -> None:
    embeddings, labels, options, message = VALUE_ERRORS[case]
    with pytest.raises(InputValueError) as caught:
        set_sincere_loss(embeddings, labels, **options)
    assert str(caught.value) == f"set_sincere_loss: {message}"


@pytest.mark.parametrize("case", TYPE_ERRORS)
def test_type_errors(case: str) -> None:
    embeddings, labels, options, message = TYPE_ERRORS[case]
    with pytest.raises(InputTypeError) as caught:
        set_sincere_loss(embeddings, labels, **options)
    assert str(caught.value) == f"set_sincere_loss: {message}"


def test_method_is_checked() -> None:
    message = "method must be one of 'auto', 'exact', 'saddle'; got 'sadle'. Did you mean 'saddle'?"
    with pytest.raises(InputValueError) as caught:
        set_sincere_loss(torch.randn(4, 2), torch.arange(4), method="sadle")
    assert str(caught.value) == f"set_sincere_loss: {message}"
    with pytest.raises(InputValueError) as caught:
        SetSINCERELoss(method="sadle")
    assert str(caught.value) == f"SetSINCERELoss: {message}"


@pytest.mark.parametrize("method", METHODS)
def test_ignored_rows_are_as_if_they_were_not_there(method: str) -> None:
    x, labels = torch.randn(20, 2, 5, dtype=torch.float64), torch.arange(20) % 3
    kept = torch.arange(20) % 4 != 1
    with_garbage = x.clone().masked_fill_(~kept[:, None, None], torch.nan).requires_grad_()
    options = {"method": method, "reduction": "none"}
    whole = set_sincere_loss(with_garbage, labels.masked_fill(~kept, -100), **options)
    assert torch.equal(whole[~kept], torch.zeros_like(whole[~kept]))
    torch.testing.assert_close(whole[kept], set_sincere_loss(x[kept], labels[kept], **options))
    whole.sum().backward()
    part = x[kept].clone().requires_grad_()
    set_sincere_loss(part, labels[kept], **options).sum().backward()
    torch.testing.assert_close(with_garbage.grad[kept], part.grad)
    assert torch.equal(with_garbage.grad[~kept], torch.zeros_like(x[~kept]))


def test_a_group_has_no_keys() -> None:
    with pytest.raises(UnsupportedError, match="keys cannot be combined with group"):
        set_sincere_loss(torch.randn(4, 2), torch.arange(4), keys=torch.randn(4, 2), group="world")
