"""Hypothesis looks for a NaN or an infinity in the value or any gradient, over shapes, labels, scales and types."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sincere.loss_catalog import LOSSES
from tests.losses.problems import KERNELS, PLAIN, Problem, loss_of

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@st.composite
def problems(draw: st.DrawFn) -> tuple[Problem, bool]:
    n, m, views, d = (draw(st.integers(1, high)) for high in (12, 14, 3, 6))
    dtype = draw(st.sampled_from(DTYPES))
    normalize = draw(st.booleans())
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))

    def rows(*shape: int) -> torch.Tensor:
        x = torch.randn(*shape, generator=generator, dtype=torch.float64)
        x = torch.nn.functional.normalize(x, dim=-1) * draw(st.sampled_from([1e-3, 1.0, 100.0]))
        duplicates = draw(st.booleans())
        if duplicates:
            x = x[:1].expand_as(x)
        if draw(st.booleans()):
            x = x.clone()
            x[-1] = 0
        return x.to(dtype)

    labels = st.integers(-1, draw(st.integers(-1, 5)))
    keyed = draw(st.booleans())
    problem = Problem(
        rows(n, views, d),
        torch.tensor(draw(st.lists(labels, min_size=n, max_size=n))),
        rows(m, d) if keyed else None,
        torch.tensor(draw(st.lists(labels, min_size=m, max_size=m))) if keyed else None,
        torch.randint(-1, m, (n, views), generator=generator) if keyed and draw(st.booleans()) else None,
        draw(st.floats(1e-3, 10)),
    )
    return problem, normalize


@pytest.mark.parametrize("loss", PLAIN)
@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=150, deadline=None)
@given(problem=problems(), reduction=st.sampled_from(["mean", "sum", "none"]))
def test_finite(loss: str, kernel: str, problem: tuple[Problem, bool], reduction: str) -> None:
    given_problem, normalize = problem
    if not LOSSES[loss].needs_labels and given_problem.keys is None and given_problem.embeddings.shape[1] < 2:
        return
    options = {"kernel": kernel, "normalize": normalize, "reduction": reduction}
    leaves = given_problem.leaves()
    value = loss_of(loss, leaves, **options)
    assert value.isfinite().all()
    value.sum().backward()
    exact = given_problem.to(torch.float64).leaves()
    loss_of(loss, exact, **options).sum().backward()
    for name in ("embeddings", "keys", "temperature"):
        x = getattr(leaves, name)
        if x is None:
            continue
        assert not x.grad.isnan().any()
        # In float16 a gradient may exceed the type's range; that infinity is the signal gradient scalers look for.
        representable = getattr(exact, name).grad.abs() < 0.9 * torch.finfo(x.dtype).max
        assert x.grad[representable].isfinite().all()
        assert x.dtype == torch.float16 or representable.all()
