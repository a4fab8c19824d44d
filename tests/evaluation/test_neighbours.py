"""Nearest neighbours equal a brute-force search in float64, in any block."""

from __future__ import annotations

import pytest
import torch

from sincere.evaluation import neighbours
from sincere.evaluation.embed import embed
from sincere.evaluation.neighbours import accuracy_1nn, nearest


class Part:
    def __init__(self, images: torch.Tensor) -> None:
        self.images, self.labels, self.ids = images, images[:, 0].long(), images[:, 1].long()


def unit(n: int, d: int) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(n, d), dim=1)


@pytest.mark.parametrize("rows", [1, 7, 1024])
def test_nearest_is_exact_in_any_block(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "BLOCK_ROWS", rows)
    torch.manual_seed(0)
    queries, references = unit(50, 5), unit(80, 5)
    assert torch.equal(nearest(queries, references), (queries.double() @ references.double().T).argmax(dim=1))


def test_leave_one_out_never_finds_itself() -> None:
    torch.manual_seed(0)
    z = unit(60, 4)
    own = torch.arange(60)
    found = nearest(z, z, leave_out=own)
    s = z.double() @ z.double().T
    assert torch.equal(found, s.fill_diagonal_(-2).argmax(dim=1))
    assert torch.equal(nearest(z, z), own)


def test_accuracy() -> None:
    z = torch.eye(4)
    assert accuracy_1nn(z, torch.tensor([0, 1, 2, 3]), z, torch.tensor([0, 1, 0, 3])) == 0.75


def test_embed_keeps_the_order() -> None:
    rows = torch.arange(20.0).view(10, 2)
    result = embed(lambda x: x * 2, [Part(rows[:3]), Part(rows[3:])])
    assert torch.equal(result.embeddings, rows * 2)
    assert torch.equal(result.ids, rows[:, 1].long())
    assert torch.equal(result.labels, rows[:, 0].long())
