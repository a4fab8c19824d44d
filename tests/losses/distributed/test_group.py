"""The loss over several processes is that of one process on the whole batch: value and every gradient."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from sincere.errors import InputValueError, SincereError, UnsupportedError
from sincere.losses.distributed.global_batch import global_batch_loss
from tests.losses.process_cases import check_every_case, start


@pytest.mark.parametrize("n_processes", [1, 2, 3, 4])
def test_equal_to_one_process(n_processes: int, tmp_path: Path) -> None:
    start(n_processes, tmp_path, check_every_case)


def check_edges(rank: int, n_processes: int) -> None:
    """No partner anywhere: 0 with zero gradients. Partners only in the other process. One class. Zero rows."""
    for variant in ("gather", "ring"):
        for labels, expected in (([rank, rank + 10], 0.0), ([5, 5], 0.0), ([0, 1], None)):
            z = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64, requires_grad=True)
            value = global_batch_loss(z, torch.tensor(labels), temperature=1.0, variant=variant)
            value.backward()
            if expected is None:  # two pairs, each in both processes: log(e + 2) - 1
                expected = float(torch.log(torch.e + torch.tensor(2.0, dtype=torch.float64)) - 1)
            else:
                assert not z.grad.any()
            assert abs(float(value) - expected) < 1e-12
        with torch.no_grad():
            assert not global_batch_loss(z, torch.tensor([0, 1]), variant=variant).requires_grad
        zero = torch.zeros(3, 2, requires_grad=True)
        global_batch_loss(zero, torch.tensor([0, 0, 1]), variant=variant).backward()
        assert torch.isfinite(zero.grad).all()
        tiny = torch.randn(4, 8, requires_grad=True)
        value = global_batch_loss(tiny, torch.tensor([0, 0, 1, 1]), temperature=1e-3, variant=variant)
        value.backward()
        assert torch.isfinite(value)
        assert torch.isfinite(tiny.grad).all()


def test_edges(tmp_path: Path) -> None:
    start(2, tmp_path, check_edges)


def check_refusals(rank: int, n_processes: int) -> None:
    labels = torch.tensor([0, 0])
    for z, options, message in (
        (torch.randn(2, 3 + rank), {}, r"every process must have the same d; got \[3, 4\]"),
        (torch.randn(2, 1 + rank, 3), {}, "the same views"),
        (torch.randn(2, 3), {"loss": "supcom"}, "Did you mean 'supcon'"),
        (torch.randn(2, 3), {"variant": "rign"}, "Did you mean 'ring'"),
        (torch.randn(2, 3), {"temperature": 0.0}, "temperature must be a finite number greater than 0"),
    ):
        with pytest.raises(InputValueError, match=message):
            global_batch_loss(z, labels, **options)
    with pytest.raises(InputValueError, match="labels must be given for sincere"):
        global_batch_loss(torch.randn(2, 3))


def test_refusals(tmp_path: Path) -> None:
    start(2, tmp_path, check_refusals)
    assert not dist.is_initialized()
    with pytest.raises(UnsupportedError, match=r"torch.distributed is not initialised; one process uses the plain"):
        global_batch_loss(torch.randn(2, 3), torch.tensor([0, 0]))
    assert issubclass(UnsupportedError, SincereError)
