"""What must not change the loss: order, names of classes, rotation, contiguity."""

from __future__ import annotations

import pytest
import torch

from sincere import sincere_loss
from sincere.loss_catalog import LOSSES
from tests.losses.problems import KERNELS, PLAIN, SUPERVISED, Problem, loss_of

kernels = pytest.mark.parametrize("kernel", KERNELS)
supervised = pytest.mark.parametrize("loss", SUPERVISED)


@pytest.fixture
def problem() -> Problem:
    return Problem(torch.randn(31, 2, 6, dtype=torch.float64), torch.randint(-1, 5, (31,)))


@kernels
@supervised
def test_order_of_images(loss: str, kernel: str, problem: Problem) -> None:
    order = torch.randperm(31)
    shuffled = Problem(problem.embeddings[order], problem.labels[order])
    each = loss_of(loss, problem, kernel=kernel, reduction="none")
    torch.testing.assert_close(loss_of(loss, shuffled, kernel=kernel, reduction="none"), each[order])


@kernels
@supervised
def test_names_of_classes(loss: str, kernel: str, problem: Problem) -> None:
    names = torch.tensor([70, -3, 2**40, 5, 0, -1])  # the last entry stands for -1, which stays
    renamed = Problem(problem.embeddings, names[problem.labels])
    torch.testing.assert_close(loss_of(loss, renamed, kernel=kernel), loss_of(loss, problem, kernel=kernel))


@kernels
@pytest.mark.parametrize("loss", [name for name, loss in LOSSES.items() if not loss.needs_classes])
def test_rotation(loss: str, kernel: str, problem: Problem) -> None:
    rotation = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64)).Q
    rotated = Problem(problem.embeddings @ rotation, problem.labels)
    torch.testing.assert_close(loss_of(loss, rotated, kernel=kernel), loss_of(loss, problem, kernel=kernel))


@kernels
@pytest.mark.parametrize("loss", PLAIN)
def test_views_are_rows_of_one_class(loss: str, kernel: str, problem: Problem) -> None:
    """(n, views, d) equals (n views, d) with labels repeated."""
    labels = (
        torch.arange(31)
        if loss == "infonce"
        else torch.where(problem.labels < 0, 99 + torch.arange(31), problem.labels)
    )
    expected = loss_of(
        "sincere" if loss == "infonce" else loss,
        Problem(problem.embeddings.flatten(0, 1), labels.repeat_interleave(2)),
        kernel=kernel,
    )
    torch.testing.assert_close(loss_of(loss, problem, kernel=kernel), expected)


@kernels
def test_memory_layout(kernel: str) -> None:
    x = torch.randn(6, 2, 31, dtype=torch.float64).permute(2, 1, 0)
    labels = torch.randint(5, (62,))[::2]
    assert not x.is_contiguous()
    torch.testing.assert_close(
        sincere_loss(x, labels, kernel=kernel), sincere_loss(x.contiguous(), labels.contiguous(), kernel=kernel)
    )


@pytest.mark.parametrize("loss", LOSSES)
def test_same_input_same_bits(loss: str, problem: Problem) -> None:
    once, again = (loss_of(loss, problem, kernel="tiled", reduction="none") for _ in range(2))
    assert torch.equal(once, again)
