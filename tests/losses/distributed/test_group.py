"""The loss over several processes is that of one process on the whole batch: value and every gradient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from sincere import (
    SINCERELoss,
    SupConLoss,
    eps_supinfonce_loss,
    info_nce_loss,
    sincere_loss,
    supcon_loss,
)
from sincere.errors import InputTypeError, InputValueError, SincereError, UnsupportedError
from sincere.losses.distributed.collectives import _HOST_GROUPS, share_numbers
from tests.losses.process_cases import EXCHANGES, Case, batch, check_every_case, start

FUNCTIONS = {
    "sincere": sincere_loss,
    "supcon": supcon_loss,
    "eps-supinfonce": eps_supinfonce_loss,
    "infonce": lambda embeddings, labels, **options: info_nce_loss(embeddings, **options),
}


SLOW = pytest.mark.slow


@pytest.mark.parametrize("n_processes", [1, *(pytest.param(n, marks=SLOW) for n in (2, 3, 4))])
def test_equal_to_one_process(n_processes: int, tmp_path: Path) -> None:
    start(n_processes, tmp_path, check_every_case)


def check_functions(rank: int, n_processes: int) -> None:
    """Every function, with the group itself and explicit kernels; without DDP what flows back is W times too large."""
    for name, function in FUNCTIONS.items():
        for exchange, kernel in (("gather", "dense"), ("gather", "tiled"), ("auto", "tiled"), ("ring", "auto")):
            case = Case(name, exchange, even=False, unlabelled=True)
            embeddings, labels = batch(case)
            own = case.own(rank, n_processes)
            whole, part = (x.clone().requires_grad_() for x in (embeddings, embeddings[own]))
            expected = function(whole, labels)
            expected.backward()
            value = function(part, labels[own], group=dist.group.WORLD, exchange=exchange, kernel=kernel)
            value.backward()
            torch.testing.assert_close(value, expected)
            torch.testing.assert_close(part.grad / n_processes, whole.grad[own])


def test_functions(tmp_path: Path) -> None:
    start(2, tmp_path, check_functions)


def script() -> tuple[Tensor, Tensor]:
    """One step as a user writes it, for one process or many."""
    case = Case("sincere", "auto", even=True, unlabelled=False)
    rank, n_processes = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    embeddings, labels = batch(case)
    own = case.own(rank, n_processes)
    part = embeddings[own].clone().requires_grad_()
    value = SINCERELoss(0.2, group="world")(part, labels[own])
    torch.testing.assert_close(sincere_loss(part, labels[own], temperature=0.2, group="world"), value)
    value.backward()
    torch.testing.assert_close(value.detach(), sincere_loss(embeddings, labels, temperature=0.2))
    return value, part.grad


def check_script(rank: int, n_processes: int) -> None:
    script()


@pytest.mark.parametrize("n_processes", [0, 1, 2])
def test_one_script_serves_one_process_and_many(n_processes: int, tmp_path: Path) -> None:
    """Without a process group, with a group of one process, and with two: the loss of the whole batch."""
    if n_processes:
        start(n_processes, tmp_path, check_script)
        return
    assert not dist.is_initialized()
    value, gradient = script()
    embeddings, labels = batch(Case("sincere", "auto", even=True, unlabelled=False))
    embeddings.requires_grad_()
    plain = sincere_loss(embeddings, labels, temperature=0.2)
    plain.backward()
    assert torch.equal(value, plain)
    assert torch.equal(gradient, embeddings.grad)


def check_world_is_looked_up(rank: int, n_processes: int) -> None:
    """The same module with two processes, without a process group, and with a group of one."""
    criterion = SINCERELoss(group="world")
    z, labels = torch.randn(4, 3), torch.tensor([0, 0, 1, 1])
    dist.broadcast(z, 0)
    both = torch.cat([z, z + 1]), labels.repeat(2)
    torch.testing.assert_close(criterion(z + rank, labels), SINCERELoss()(*both))
    dist.destroy_process_group()
    assert torch.equal(criterion(z, labels), SINCERELoss()(z, labels))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert torch.equal(criterion(z, labels), SINCERELoss()(z, labels))


def test_world_is_looked_up_at_each_call(tmp_path: Path) -> None:
    start(2, tmp_path, check_world_is_looked_up)


def check_subgroup(rank: int, n_processes: int) -> None:
    """Processes 0 and 2 of three share a batch; process 1 has no part in it."""
    group = dist.new_group([0, 2])
    generator = torch.Generator().manual_seed(5)
    z = torch.randn(3, 6, 4, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 3, (3, 6), generator=generator)
    if rank == 1:
        with pytest.raises(InputValueError, match=r"this process is not a member of\. Call the loss in the group's"):
            sincere_loss(z[1], labels[1], group=group)
        return
    whole = z[[0, 2]].flatten(0, 1).requires_grad_()
    expected = supcon_loss(whole, labels[[0, 2]].flatten())
    expected.backward()
    for exchange in EXCHANGES:
        part = z[rank].clone().requires_grad_()
        value = SupConLoss(group=group, exchange=exchange)(part, labels[rank])
        value.backward()
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(part.grad / 2, whole.grad.view(2, 6, 4)[rank // 2])


def test_subgroup(tmp_path: Path) -> None:
    start(3, tmp_path, check_subgroup)


def check_edges(rank: int, n_processes: int) -> None:
    """No positive anywhere: 0 with zero gradients. Positives only in the other process. One class. Zero rows."""
    for exchange in EXCHANGES:
        across = {"group": "world", "exchange": exchange}
        for labels, expected in (([rank, rank + 10], 0.0), ([5, 5], 0.0), ([0, 1], None)):
            z = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64, requires_grad=True)
            value = sincere_loss(z, torch.tensor(labels), temperature=1.0, **across)
            value.backward()
            if expected is None:  # two pairs, each in both processes: log(e + 2) - 1
                expected = float(torch.log(torch.e + torch.tensor(2.0, dtype=torch.float64)) - 1)
            else:
                assert not z.grad.any()
            assert abs(float(value) - expected) < 1e-12
        for reduction in ("mean", "none"):
            with torch.no_grad():
                assert not sincere_loss(z, torch.tensor([0, 1]), reduction=reduction, **across).requires_grad
        zero = torch.zeros(3, 2, requires_grad=True)
        sincere_loss(zero, torch.tensor([0, 0, 1]), **across).backward()
        assert torch.isfinite(zero.grad).all()
        tiny = torch.randn(4, 8, requires_grad=True)
        value = sincere_loss(tiny, torch.tensor([0, 0, 1, 1]), temperature=1e-3, **across)
        value.backward()
        assert torch.isfinite(value)
        assert torch.isfinite(tiny.grad).all()


def test_edges(tmp_path: Path) -> None:
    start(2, tmp_path, check_edges)


def check_torch_features(rank: int, n_processes: int) -> None:
    """Inside autocast and torch.compile as outside; a second derivative is refused instead of wrong."""
    labels = torch.arange(6) % 2
    for exchange in EXCHANGES:
        across: dict[str, Any] = {"group": "world", "exchange": exchange}
        z = torch.randn(6, 4, requires_grad=True)
        (expected,) = torch.autograd.grad(sincere_loss(z, labels, **across), z)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = sincere_loss(z, labels, **across)
        assert value.dtype == torch.float32
        assert torch.equal(torch.autograd.grad(value, z)[0], expected)
        compiled = torch.compile(lambda z, across=across: sincere_loss(2 * z, labels, **across), backend="aot_eager")
        torch.testing.assert_close(torch.autograd.grad(compiled(z), z)[0], expected)
        (gradient,) = torch.autograd.grad(sincere_loss(z, labels, **across), z, create_graph=True)
        with pytest.raises(
            UnsupportedError, match="across processes have no second derivative; compute it with group=None"
        ):
            gradient.square().sum().backward()


@pytest.mark.slow
def test_torch_features(tmp_path: Path) -> None:
    start(2, tmp_path, check_torch_features)


def check_disagreement(rank: int, n_processes: int) -> None:
    labels = torch.tensor([0, 0])
    for z, message in (
        (torch.randn(2, 3 + rank), r"^sincere_loss: every process must have the same d; got \[3, 4\]$"),
        (torch.randn(2, 1 + rank, 3), r"^sincere_loss: every process must have the same views; got \[1, 2\]$"),
        (torch.randn(2, 3, dtype=(torch.float32, torch.float64)[rank]), "the same dtype size in bytes"),
    ):
        with pytest.raises(InputValueError, match=message):
            sincere_loss(z, labels, group="world")
    with pytest.raises(InputValueError, match="temperature must be a finite number greater than 0"):
        sincere_loss(torch.randn(2, 3), labels, temperature=0.0, group="world")
    with pytest.raises(InputValueError, match=r"^info_nce_loss: embeddings must have shape \(n, views, d\)"):
        info_nce_loss(torch.randn(2, 3), group="world")


def test_processes_that_disagree(tmp_path: Path) -> None:
    start(2, tmp_path, check_disagreement)


Z, LABELS = torch.randn(4, 3), torch.tensor([0, 0, 1, 1])
WRONG: dict[str, tuple[dict[str, Any], type[SincereError], str]] = {
    "keys": (
        {"keys": Z, "key_labels": LABELS},
        UnsupportedError,
        "keys cannot be combined with group: the keys are the rows of all processes; "
        "use group=None with keys that you gathered yourself",
    ),
    "anchor_index": (
        {"anchor_index": LABELS},
        UnsupportedError,
        "anchor_index cannot be combined with group: the keys are the rows of all processes; "
        "use group=None with keys that you gathered yourself",
    ),
    "kernel": (
        {"exchange": "ring", "kernel": "dense"},
        UnsupportedError,
        'kernel="dense" cannot be combined with exchange="ring": the ring has a kernel of its own; '
        'use kernel="auto", or exchange="gather"',
    ),
    "exchange": (
        {"exchange": "rign"},
        InputValueError,
        "exchange must be one of 'auto', 'gather', 'ring'; got 'rign'. Did you mean 'ring'?",
    ),
    "group": (
        {"group": "word"},
        InputTypeError,
        "group must be None, \"world\" or a torch.distributed.ProcessGroup; got 'word'",
    ),
    "group of another type": (
        {"group": 2},
        InputTypeError,
        'group must be None, "world" or a torch.distributed.ProcessGroup; got int',
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_refusals_need_no_second_process(case: str) -> None:
    """What cannot run on many is refused on one, so that a script is not surprised there."""
    options, error, message = WRONG[case]
    assert not dist.is_initialized()
    with pytest.raises(error) as caught:
        sincere_loss(Z, LABELS, **{"group": "world", **options})
    assert str(caught.value) == f"sincere_loss: {message}"
    made = {name: value for name, value in options.items() if name in ("group", "exchange")}
    if made and case != "kernel":
        with pytest.raises(error) as caught:
            SINCERELoss(**{"group": "world", **made})
        assert str(caught.value) == f"SINCERELoss: {message}"


def check_host_group(rank: int, n_processes: int) -> None:
    """A group that takes no CPU tensors, as NCCL's, gets one of the same processes that does, once."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(dist, "get_backend_config", lambda group: "cuda:nccl")
        last_two = dist.new_group([1, 2])
        for group, numbers in ((None, [[0, 5], [1, 5], [2, 5]]), (last_two, [[1, 5], [2, 5]])):
            if rank == 0 and group is not None:
                continue
            for _ in range(2):
                assert share_numbers([rank, 5], group) == numbers
        assert len(_HOST_GROUPS) == (1 if rank == 0 else 2)


def test_numbers_travel_from_host_to_host(tmp_path: Path) -> None:
    start(3, tmp_path, check_host_group)
