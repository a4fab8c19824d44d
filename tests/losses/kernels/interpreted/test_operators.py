"""The Triton kernels do not depend on their block sizes, are operators of torch, and never wait for the device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sincere.losses.kernels import triton, triton_ops
from sincere.losses.kernels.triton_ops import Blocks
from tests.losses.kernels.interpreted.kernel_problems import KERNEL_PROBLEMS, largest_error

SLOW = pytest.mark.slow
WAITING = {"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal", "aten::unique_dim"}


@pytest.mark.parametrize("problem", ["supcon, batch", "margin, keys"])
@pytest.mark.parametrize(
    "blocks",
    [
        Blocks(64, 64, 32, 32, splits=1),
        Blocks(16, 32, 16, 32, splits=7),
        pytest.param(Blocks(32, 16, 32, 16, splits=2), marks=SLOW),
        pytest.param(Blocks(16, 64, 16, 16, splits=1), marks=SLOW),
        pytest.param(Blocks(128, 16, 16, 16, splits=3), marks=SLOW),
    ],
    ids=str,
)
def test_block_size_agnostic(problem: str, blocks: Blocks) -> None:
    """One program or many, tiles of any form, the dimensions whole or in pieces, columns split or not."""
    assert largest_error(KERNEL_PROBLEMS[problem].solve(blocks), KERNEL_PROBLEMS[problem].expected()) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("operator", ["log_denominators", "positive_sums", "gradient_rows"])
def test_operators_pass_torchs_own_checks(operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among them that the fake implementation gives the shapes, types and devices of the real one."""
    calls = []
    real = getattr(triton_ops, operator)

    def spy(*arguments: Any, **options: Any) -> Any:
        calls.append((arguments, options))
        return real(*arguments, **options)

    monkeypatch.setattr(triton, operator, spy)
    KERNEL_PROBLEMS["sincere, keys"].solve()
    for arguments, options in calls:
        torch.library.opcheck(real, arguments, options, test_utils=("test_schema", "test_faketensor"))


class NeverWait(TorchDispatchMode):
    """Rejects what would wait for a GPU. What runs inside an operator of torch.library is not seen."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.name().partition(".")[0] in WAITING:
            raise AssertionError(f"{func.name()} waits for the device")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("problem", ["sincere, batch", "supcon, keys"])
def test_no_step_waits_for_the_device(problem: str) -> None:
    prepared = KERNEL_PROBLEMS[problem]
    contrast, rows, keys = prepared.contrast(torch.float32), prepared.rows(37, 1), prepared.rows(45, 2)
    temperature, weights = torch.tensor(0.1), prepared.weights
    with NeverWait():
        triton.triton_losses(
            rows, keys if prepared.keyed else None, temperature, contrast, weights, with_key_gradient=True
        )


def test_the_test_above_can_fail() -> None:
    with NeverWait(), pytest.raises(AssertionError, match="waits for the device"):
        torch.ones(3).sum().item()
