"""The edges: an anchor without positives or negatives, a vector without length, an image without label."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import normalize

from sincere import eps_supinfonce_loss, info_nce_loss, sincere_loss, supcon_loss
from sincere.errors import UnsupportedError
from sincere.loss_catalog import LOSSES
from tests.losses.problems import KERNELS, SUPERVISED, Problem, loss_of

kernels = pytest.mark.parametrize("kernel", KERNELS)
supervised = pytest.mark.parametrize("loss", SUPERVISED)


def leaf(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


@kernels
@supervised
@pytest.mark.parametrize("temperature", [0.1, 0.001])
def test_no_positive_at_all_gives_zero_and_zero_gradients(loss: str, kernel: str, temperature: float) -> None:
    x = leaf(5, 4)
    value = loss_of(loss, Problem(x, torch.arange(5), temperature=temperature), kernel=kernel)
    value.backward()
    assert value.item() == 0
    assert torch.equal(x.grad, torch.zeros_like(x))


@kernels
@supervised
def test_a_single_embedding(loss: str, kernel: str) -> None:
    x = leaf(1, 4)
    value = loss_of(loss, Problem(x, torch.tensor([0])), kernel=kernel)
    value.backward()
    assert value.item() == 0
    assert torch.equal(x.grad, torch.zeros_like(x))


@kernels
@pytest.mark.parametrize("temperature", [0.1, 0.001])
def test_one_class_only(kernel: str, temperature: float) -> None:
    """Nothing to tell apart: SINCERE 0, eps-SupInfoNCE -eps, both without gradient."""
    x, labels = leaf(6, 4), torch.full((6,), 3)
    value = sincere_loss(x, labels, kernel=kernel, temperature=temperature)
    value.backward()
    assert value.item() == 0
    assert torch.equal(x.grad, torch.zeros_like(x))
    margin = eps_supinfonce_loss(x, labels, epsilon=0.3, kernel=kernel, temperature=temperature)
    assert margin.item() == pytest.approx(-0.3)


@kernels
@supervised
def test_singletons_leave_the_mean_but_stay_negatives(loss: str, kernel: str) -> None:
    x = torch.randn(7, 4)
    labels = torch.tensor([0, 0, 1, 1, 1, 2, 3])
    each = loss_of(loss, Problem(x, labels), kernel=kernel, reduction="none")
    assert torch.equal(each[5:], torch.zeros(2))
    torch.testing.assert_close(loss_of(loss, Problem(x, labels), kernel=kernel), each[:5].mean())
    without = loss_of(loss, Problem(x[:5], labels[:5]), kernel=kernel, reduction="none")
    assert (each[:5] > without).all(), "a singleton is a negative for the others and must raise their loss"


@kernels
def test_unlabelled_images_have_their_views_as_positives(kernel: str) -> None:
    """Part labelled: labelled anchors as with unique labels; all unlabelled is InfoNCE."""
    x = torch.randn(6, 2, 4)
    labels = torch.tensor([0, -1, 0, 1, -1, 1])
    own = torch.tensor([0, 100, 0, 1, 101, 1])
    options = {"kernel": kernel, "reduction": "none"}
    torch.testing.assert_close(sincere_loss(x, labels, **options), sincere_loss(x, own, **options))
    nothing = torch.full((6,), -1)
    torch.testing.assert_close(sincere_loss(x, nothing, kernel=kernel), info_nce_loss(x, kernel=kernel))
    alone = sincere_loss(x[:, 0], labels, **options)
    assert alone[1] == alone[4] == 0, "without a second view an unlabelled image has no positive"


@kernels
def test_unlabelled_keys_are_negatives_even_for_unlabelled_anchors(kernel: str) -> None:
    x, keys = torch.randn(3, 4), torch.randn(5, 4)
    labels, key_labels = torch.tensor([-1, 0, 1]), torch.tensor([-1, -1, 0, 1, 0])
    each = sincere_loss(x, labels, keys=keys, key_labels=key_labels, reduction="none", kernel=kernel)
    assert each[0] == 0
    assert (each[1:] > 0).all()


@kernels
@supervised
def test_keys_that_are_the_batch_give_the_batch_loss(loss: str, kernel: str) -> None:
    """How the global batch of many processes is computed."""
    x, labels = leaf(9, 4, dtype=torch.float64), torch.randint(3, (9,))
    (expected,) = torch.autograd.grad(loss_of(loss, Problem(x, labels), kernel=kernel), x)
    problem = Problem(x, labels, keys=x, key_labels=labels, anchor_index=torch.arange(9))
    (actual,) = torch.autograd.grad(loss_of(loss, problem, kernel=kernel), x)
    torch.testing.assert_close(actual, expected)


@kernels
@supervised
@pytest.mark.parametrize("scale", [1e-30, 1e-10, 1e10, 1e25])
def test_normalising_takes_any_length(loss: str, kernel: str, scale: float) -> None:
    """Vectors of length 1e-30 and 1e25 give the loss of unit ones, and a gradient scaled by 1/length."""
    directions, labels = torch.randn(8, 5), torch.randint(3, (8,))
    x, tiny = (directions * factor for factor in (1.0, scale))
    x.requires_grad_()
    tiny.requires_grad_()
    expected = loss_of(loss, Problem(x, labels), kernel=kernel)
    actual = loss_of(loss, Problem(tiny, labels), kernel=kernel)
    torch.testing.assert_close(actual, expected)
    expected.backward()
    actual.backward()
    torch.testing.assert_close(tiny.grad.double() * scale, x.grad.double(), rtol=1e-4, atol=1e-6)


@kernels
@supervised
@pytest.mark.parametrize("with_keys", [False, True])
def test_a_zero_vector_stays_zero_with_zero_gradient(loss: str, kernel: str, with_keys: bool) -> None:
    x = torch.randn(8, 5)
    x[3] = 0
    x.requires_grad_()
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])
    keys = x.detach().clone().requires_grad_() if with_keys else None
    problem = Problem(x, labels, keys, labels if with_keys else None)
    value = loss_of(loss, problem, kernel=kernel)
    value.backward()
    assert value.isfinite()
    for rows in (x, keys) if with_keys else (x,):
        assert torch.equal(rows.grad[3], torch.zeros(5))
        assert rows.grad.isfinite().all()
        assert rows.grad[0].abs().sum() > 0


@kernels
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_result_is_float32_or_float64(loss: str, kernel: str, dtype: torch.dtype) -> None:
    x = leaf(6, 2, 5, dtype=dtype)
    value = loss_of(loss, Problem(x, torch.arange(6) % 3), kernel=kernel)
    value.backward()
    assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert x.grad.dtype == dtype
    assert x.grad.isfinite().all()


@kernels
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint16])
def test_labels_of_any_integer_type(kernel: str, dtype: torch.dtype) -> None:
    x, labels = torch.randn(6, 4), torch.tensor([0, 1, 0, 2, 1, 2])
    assert sincere_loss(x, labels.to(dtype), kernel=kernel) == sincere_loss(x, labels, kernel=kernel)


@kernels
@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("temperature", [1.0, 0.1, 0.01])
def test_closed_form_of_perfect_separation(kernel: str, n_classes: int, temperature: float) -> None:
    """Classes on orthogonal axes, m members each: s is 1/tau within a class and 0 across."""
    m, s = 4, 1 / temperature
    x = torch.eye(n_classes).repeat_interleave(m, dim=0)
    labels = torch.arange(n_classes).repeat_interleave(m)
    n_negatives, n_positives = (n_classes - 1) * m, m - 1
    options = {"temperature": temperature, "kernel": kernel}
    assert sincere_loss(x, labels, **options).item() == pytest.approx(math.log1p(n_negatives * math.exp(-s)), rel=1e-4)
    expected = math.log(n_positives + n_negatives * math.exp(-s))
    assert supcon_loss(x, labels, **options).item() == pytest.approx(expected, rel=1e-4)
    expected = math.log(math.exp(-0.25) + n_negatives * math.exp(-s))
    assert eps_supinfonce_loss(x, labels, **options).item() == pytest.approx(expected, rel=1e-4)


@kernels
def test_closed_form_of_chance(kernel: str) -> None:
    """All embeddings equal: log(1 + |N|), log(n - 1), log(e^-eps + |N|)."""
    x, labels = torch.ones(12, 3), torch.arange(12) // 3
    assert sincere_loss(x, labels, kernel=kernel).item() == pytest.approx(math.log(1 + 9), rel=1e-6)
    assert supcon_loss(x, labels, kernel=kernel).item() == pytest.approx(math.log(11), rel=1e-6)
    expected = math.log(math.exp(-0.25) + 9)
    assert eps_supinfonce_loss(x, labels, kernel=kernel).item() == pytest.approx(expected, rel=1e-6)


@kernels
def test_one_positive_each_makes_sincere_supcon_and_infonce_equal(kernel: str) -> None:
    x = torch.randn(7, 2, 4)
    expected = info_nce_loss(x, kernel=kernel)
    for loss in (sincere_loss, supcon_loss):
        torch.testing.assert_close(loss(x, torch.arange(7), kernel=kernel), expected)


@kernels
def test_nan_is_not_hidden(kernel: str) -> None:
    """A NaN embedding is the caller's bug, and the loss must say so, not average it away."""
    x = normalize(torch.randn(6, 4), dim=1)
    x[2, 1] = torch.nan
    assert sincere_loss(x, torch.arange(6) % 2, kernel=kernel).isnan()


def test_second_derivative_with_a_zero_row_is_finite() -> None:
    x = torch.randn(6, 4)
    x[0] = 0
    x.requires_grad_()
    loss = sincere_loss(x, torch.arange(6) % 2, kernel="dense")
    (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
    (second,) = torch.autograd.grad(gradient.square().sum(), x)
    assert second.isfinite().all()


def test_anchor_index_may_be_reused_before_backward() -> None:
    x, keys = torch.randn(6, 4, requires_grad=True), torch.randn(9, 4)
    labels, key_labels, index = torch.arange(6) % 2, torch.arange(9) % 2, torch.arange(6)
    options = {"keys": keys, "key_labels": key_labels, "reduction": "none", "kernel": "tiled"}
    (expected,) = torch.autograd.grad(sincere_loss(x, labels, anchor_index=index.clone(), **options).sum(), x)
    loss = sincere_loss(x, labels, anchor_index=index, **options).sum()
    index.fill_(-1)
    (actual,) = torch.autograd.grad(loss, x)
    assert torch.equal(actual, expected)


def test_torch_func() -> None:
    x, labels = torch.randn(6, 4, dtype=torch.float64), torch.arange(6) % 2
    leaf_x = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(sincere_loss(leaf_x, labels), leaf_x)
    torch.testing.assert_close(torch.func.grad(lambda z: sincere_loss(z, labels, kernel="dense"))(x), expected)
    with pytest.raises(UnsupportedError, match=r'does not run under torch\.func; use kernel="dense"'):
        torch.func.grad(lambda z: sincere_loss(z, labels, kernel="tiled"))(x)


def test_inputs_are_not_modified() -> None:
    x, keys, labels = torch.randn(30, 4), torch.randn(20, 4), torch.randint(3, (30,))
    before = [t.clone() for t in (x, keys, labels)]
    for temperature in (0.1, 0.001):
        problem = Problem(x, labels, temperature=temperature).leaves()
        loss_of("sincere", problem, kernel="tiled", normalize=False).backward()
        loss_of("supcon", Problem(x, labels, keys, labels[:20]), kernel="tiled", normalize=False)
    assert all(torch.equal(a, b) for a, b in zip((x, keys, labels), before, strict=True))
