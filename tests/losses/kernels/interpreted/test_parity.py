"""The Triton kernel gives the oracle's value and gradients, for every problem it takes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize as unit

from sincere import SINCERELoss, eps_supinfonce_loss, sincere_loss, supcon_loss
from sincere.errors import UnsupportedError
from sincere.losses.kernels import triton_ops
from tests.losses.problems import CASES, OVER_SETS, PAIRWISE, PROBLEMS, Problem, loss_of, oracle_loss

TAKEN = [(loss, case) for loss, case in CASES if loss not in OVER_SETS]
OFTEN = (
    "few views",
    "one class",
    "keys that hold the anchors",
)  # for losses that are SINCERE but for a margin or labels
cases = pytest.mark.parametrize(("loss", "case"), TAKEN)
few_cases = pytest.mark.parametrize(
    ("loss", "case"), [(loss, case) for loss, case in TAKEN if loss in ("sincere", "supcon") or case in OFTEN]
)
losses = pytest.mark.parametrize("loss", PAIRWISE)
SLOW = pytest.mark.slow
# eps-SupInfoNCE is SINCERE with a margin: the slow tests run it, too.
two_losses = pytest.mark.parametrize("loss", [pytest.param(x, marks=SLOW if "eps" in x else []) for x in PAIRWISE])
LOSSES = {"sincere": sincere_loss, "supcon": supcon_loss, "eps-supinfonce": eps_supinfonce_loss}


def assert_near(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    """Compare as vectors, so that entries that are nearly zero count with the length of the whole."""
    error = (actual.double() - expected.double()).norm()
    assert error <= tolerance * (1 + expected.norm()), (float(error), float(expected.norm()))


def check(loss: str, problem: Problem, tolerance: float = 1e-5, **options: Any) -> None:
    """Compare value and all gradients in float32 with the oracle in float64."""
    exact, ours = problem.leaves(), problem.to(torch.float32).leaves()
    expected, actual = oracle_loss(loss, exact, **options), loss_of(loss, ours, kernel="triton", **options)
    assert actual.dtype == torch.float32
    assert_near(actual, expected, tolerance)
    upstream = torch.rand(expected.shape, dtype=torch.float64)
    wanted = torch.autograd.grad(expected, exact.differentiable, upstream)
    found = torch.autograd.grad(actual, ours.differentiable, upstream.float())
    for one, other in zip(found, wanted, strict=True):
        assert_near(one, other, tolerance)


@few_cases
def test_value_and_gradients_are_the_oracles(loss: str, case: str) -> None:
    check(loss, PROBLEMS[case])


@two_losses
@pytest.mark.parametrize("case", ["few views", "keys that hold the anchors"])
@pytest.mark.parametrize(("reduction", "normalize"), [("none", True), ("sum", False)])
def test_reductions_and_rows_as_given(loss: str, case: str, reduction: str, normalize: bool) -> None:
    check(loss, PROBLEMS[case], reduction=reduction, normalize=normalize)


@SLOW
@cases
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("normalize", [True, False])
def test_every_problem_with_every_option(loss: str, case: str, reduction: str, normalize: bool) -> None:
    check(loss, PROBLEMS[case], reduction=reduction, normalize=normalize)


@two_losses
@pytest.mark.parametrize("temperature", [1.0, 0.03, 0.001])
def test_temperatures(loss: str, temperature: float) -> None:
    """Similarities of 1/temperature are rounded at 6e-8 of that, which no float32 can avoid."""
    labels = torch.randint(6, (60,))
    problem = Problem(torch.randn(60, 16, dtype=torch.float64), labels, temperature=temperature)
    check(loss, problem, tolerance=1e-5 + 1e-7 / temperature)


@pytest.mark.parametrize(("loss", "d"), [("sincere", 31), ("supcon", 130), ("sincere", 300)])
def test_dimensions(loss: str, d: int) -> None:
    """300 is more than one piece of the gradient."""
    labels, key_labels = torch.randint(-1, 4, (33,)), torch.randint(-1, 4, (17,))
    keys = torch.randn(17, d, dtype=torch.float64)
    check(loss, Problem(torch.randn(33, d, dtype=torch.float64), labels, keys, key_labels))


@SLOW
@losses
@pytest.mark.parametrize("d", [1, 300, 512, 1000, 1024])
def test_large_dimensions(loss: str, d: int) -> None:
    check(loss, Problem(torch.randn(33, d, dtype=torch.float64), torch.randint(-1, 4, (33,))))


@two_losses
@pytest.mark.parametrize("keyed", [False, True])
def test_key_weights_and_ignored_rows(loss: str, keyed: bool) -> None:
    """The dense kernel, which other tests hold against the oracle, in float64."""
    labels, key_labels = torch.randint(-1, 4, (41,)), torch.randint(-1, 4, (29,))
    labels[::7] = key_labels[::5] = -100
    rows, keys = torch.randn(41, 12, dtype=torch.float64), torch.randn(29, 12, dtype=torch.float64)
    weights = torch.rand(29 if keyed else 41, dtype=torch.float64) + 0.1

    def run(kernel: str, dtype: torch.dtype) -> list[Tensor]:
        x, k = (t.to(dtype).requires_grad_() for t in (rows, keys))
        options = {"keys": k, "key_labels": key_labels, "anchor_index": torch.arange(41) % 30 - 1} if keyed else {}
        value = LOSSES[loss](x, labels, key_weights=weights.to(dtype), kernel=kernel, **options)
        return [value, *torch.autograd.grad(value, [x, k] if keyed else [x])]

    for actual, expected in zip(run("triton", torch.float32), run("dense", torch.float64), strict=True):
        assert_near(actual, expected)


@two_losses
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("case", ["keys that hold the anchors", "large class", pytest.param("views", marks=SLOW)])
def test_half_types_are_within_twice_the_error_of_rounding_the_input(loss: str, dtype: torch.dtype, case: str) -> None:
    exact = PROBLEMS[case].leaves()
    rounded, ours = PROBLEMS[case].to(dtype).to(torch.float64).leaves(), PROBLEMS[case].to(dtype).leaves()
    values = [oracle_loss(loss, exact), oracle_loss(loss, rounded), loss_of(loss, ours, kernel="triton")]
    gradients = [
        torch.autograd.grad(value, problem.differentiable)
        for value, problem in zip(values, (exact, rounded, ours), strict=True)
    ]
    for right, unavoidable, actual in zip(*([v, *g] for v, g in zip(values, gradients, strict=True)), strict=True):
        assert (actual.double() - right).norm() <= 2 * (unavoidable - right).norm() + 1e-5
    # Against the oracle on the same input the value has errors of float32 only: rows are not rounded a second time.
    assert_near(values[2], values[1])


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_bfloat16_rows_of_any_length(scale: float) -> None:
    labels = torch.arange(20) % 3
    small = torch.randn(20, 8).to(torch.bfloat16)
    large = (small.float() * 2.0 ** round(torch.tensor(scale).log2().item())).to(torch.bfloat16)
    same, other = (sincere_loss(x, labels, kernel="triton") for x in (small, large))
    assert_near(other, same)


@two_losses
def test_tight_classes(loss: str) -> None:
    """Attraction and repulsion within a class nearly cancel; the gradient is as good as the dense one."""
    labels = torch.arange(60) % 6
    centres = unit(torch.randn(6, 16, dtype=torch.float64), dim=1)
    rows = centres[labels] + 1e-3 * torch.randn(60, 16, dtype=torch.float64)
    exact = Problem(rows, labels, temperature=0.03)
    reference = exact.leaves()
    (expected,) = torch.autograd.grad(loss_of(loss, reference, kernel="dense"), reference.embeddings)
    errors = {}
    for kernel in ("dense", "triton"):
        ours = exact.to(torch.float32).leaves()
        (gradient,) = torch.autograd.grad(loss_of(loss, ours, kernel=kernel), ours.embeddings)
        errors[kernel] = (gradient.double() - expected).norm() / expected.norm()
    assert errors["triton"] <= 2 * errors["dense"] + 1e-5


@two_losses
@pytest.mark.parametrize("temperature", [0.001, pytest.param(0.1, marks=SLOW)])
@pytest.mark.parametrize(("normalize", "dtype"), [(False, torch.float32), (True, torch.float16)])
def test_never_nan(loss: str, temperature: float, normalize: bool, dtype: torch.dtype) -> None:
    """Duplicates, opposites, a zero row and rows of length 100, with and without positives and negatives."""
    x = unit(torch.randn(12, 5), dim=1) * 100
    x[1], x[2], x[3] = x[0], -x[0], 0.0
    labellings = [torch.zeros(12), torch.arange(12), torch.arange(12) % 5 - 1, torch.full((12,), -100)]
    for labels in labellings:
        leaf = x.to(dtype).requires_grad_()
        tau = torch.tensor(temperature, requires_grad=True)
        options = {"normalize": normalize, "kernel": "triton", "temperature": tau}
        value = LOSSES[loss](leaf, labels.long(), **options)
        value.backward()
        assert value.isfinite()
        assert tau.grad is not None
        assert tau.grad.isfinite()
        assert not leaf.grad.isnan().any()
        assert dtype == torch.float16 or leaf.grad.isfinite().all()


def test_without_positives_or_negatives() -> None:
    x = torch.randn(6, 4, requires_grad=True)
    for labels, epsilon, expected in ((torch.arange(6), 0.3, 0.0), (torch.zeros(6).long(), 0.3, -0.3)):
        x.grad = None
        value = eps_supinfonce_loss(x, labels, epsilon=epsilon, kernel="triton")
        value.backward()
        assert value.item() == pytest.approx(expected)
        assert torch.equal(x.grad, torch.zeros_like(x))


def test_nan_is_not_hidden() -> None:
    x = torch.randn(6, 4)
    x[2, 1] = torch.nan
    assert sincere_loss(x, torch.arange(6) % 2, kernel="triton").isnan()


def test_results_are_the_same_each_time() -> None:
    problem = PROBLEMS["keys that hold the anchors"].to(torch.float32).leaves()
    once, again = (
        torch.autograd.grad(loss_of("supcon", problem, kernel="triton"), problem.differentiable) for _ in range(2)
    )
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))


def test_without_grad_mode_no_gradient_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(triton_ops._kernels(), "gradient_kernel")
    x, labels = torch.randn(8, 3, requires_grad=True), torch.arange(8) % 2
    with torch.no_grad():
        assert sincere_loss(x, labels, kernel="triton").isfinite()
    with pytest.raises(AttributeError, match="gradient_kernel"):
        sincere_loss(x, labels, kernel="triton")


def test_second_derivatives_and_transformations_are_refused() -> None:
    x, labels = torch.randn(8, 3, requires_grad=True), torch.arange(8) % 2
    (gradient,) = torch.autograd.grad(sincere_loss(x, labels, kernel="triton"), x, create_graph=True)
    with pytest.raises(UnsupportedError, match="the triton kernel has no second derivative"):
        gradient.sum().backward()
    with pytest.raises(UnsupportedError, match=r"the triton kernel does not run under torch\.func"):
        torch.func.grad(lambda z: sincere_loss(z, labels, kernel="triton"))(x)


@SLOW
def test_a_compiled_step_gives_the_same_gradients() -> None:
    layer, images = torch.nn.Linear(10, 8), torch.randn(12, 2, 10)
    labels, criterion = torch.randint(4, (12,)), SINCERELoss(kernel="triton")
    step = lambda images: criterion(layer(images), labels)  # noqa: E731
    expected = torch.autograd.grad(step(images), layer.weight)
    actual = torch.autograd.grad(torch.compile(step, backend="aot_eager")(images), layer.weight)
    torch.testing.assert_close(actual, expected)
