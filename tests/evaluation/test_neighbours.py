"""Neighbours equal those of a float64 brute-force search and of scikit-learn, for any block and chunk size."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from sincere.errors import DataError, InputValueError
from sincere.evaluation import neighbours
from sincere.evaluation.embed import embed
from sincere.evaluation.knn import accuracy_1nn
from sincere.evaluation.neighbours import find_neighbours


class PartOutputs:
    def __init__(self, images: Tensor) -> None:
        self.inputs, self.labels, self.ids = images, images[:, 0].long(), images[:, 1].long()


def unit(n: int, d: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(n, d, generator=generator), dim=1)


def labels(n: int, n_classes: int, seed: int = 0) -> Tensor:
    return torch.randint(0, n_classes, (n,), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("chunk", [1, 3, 64, 1000])
@pytest.mark.parametrize("rows", [1, 7, 512])
@pytest.mark.parametrize("n_classes", [1, 2, 9])
def test_equal_to_brute_force_in_any_block(
    n_classes: int, rows: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "BLOCK_ROWS", rows)
    monkeypatch.setattr(neighbours, "CHUNK", chunk)
    z, y, q, w = unit(150, 6), labels(150, n_classes), unit(40, 6, 1), labels(40, n_classes, 1)
    found = find_neighbours(q, w, z, y, ks=(1, 4, 150))
    s = q.double() @ z.double().T
    same = w[:, None] == y
    assert torch.equal(found.target_position, s.masked_fill(~same, -9).argmax(dim=1))
    torch.testing.assert_close(found.target_similarity.double(), s.masked_fill(~same, -9).amax(dim=1))
    if n_classes == 1:
        assert (found.noise_position == -1).all()
        assert found.noise_similarity.isneginf().all()
    else:
        assert torch.equal(found.noise_position, s.masked_fill(same, -9).argmax(dim=1))
    order = s.argsort(dim=1, descending=True)
    assert torch.equal(found.nearest_position, order[:, :5])
    torch.testing.assert_close(found.nearest_similarity.double(), s.gather(1, order[:, :5]))
    assert torch.equal(y[found.nearest_position[:, 0]], found.predictions[1])
    for k, predicted in found.predictions.items():
        for row in range(len(q)):
            near = order[row, :k]
            votes = {int(c): float(s[row, near][y[near] == c].sum()) for c in y[near].unique()}
            assert votes[int(predicted[row])] == pytest.approx(max(votes.values()), abs=1e-6)


def test_equal_to_scikit_learn() -> None:
    """Its votes weigh 1 - distance here, which is the cosine similarity."""
    z, y, q, w = unit(400, 8), labels(400, 5), unit(200, 8, 1), labels(200, 5, 1)
    found = find_neighbours(q, w, z, y, ks=(1, 5))
    for k in (1, 5):
        theirs = KNeighborsClassifier(k, metric="cosine", weights=lambda distance: 1 - distance)
        theirs.fit(z.double().numpy(), y.numpy())
        assert np.array_equal(theirs.predict(q.double().numpy()), found.predictions[k].numpy())


@pytest.mark.parametrize("n_classes", [3, 40])
def test_ties_go_to_the_smaller_label_and_the_first_reference(n_classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "CHUNK", 4)
    z = torch.ones(400, 1)
    y = labels(400, n_classes)
    found = find_neighbours(torch.ones(5, 1), torch.full((5,), 2), z, y, ks=(1, 7))
    assert (found.predictions[1] == 0).all()
    assert (found.target_position == int((y == 2).nonzero()[0])).all()
    assert (found.noise_position == int((y == 0).nonzero()[0])).all()
    points = unit(20, 3).repeat(20, 1)  # each point twenty times, in several classes
    queries = unit(20, 3)
    found = find_neighbours(queries, y[:20], points, y, ks=(1,))
    s = (queries.double() @ points.double().T).round(decimals=5)
    expected = [int(y[row == row.max()].min()) for row in s]
    assert found.predictions[1].tolist() == expected


def test_memory_is_bounded_with_many_small_classes() -> None:
    z, y = unit(600, 4), torch.arange(600) // 2
    table = neighbours._ClassTable(z, y, y.unique(), 10)
    assert len(table.references) <= 1200
    assert table.workspace.shape == (10, len(table.references))


def test_leave_one_out_never_finds_itself() -> None:
    z, y, own = unit(90, 4), labels(90, 3), torch.arange(90)
    found = find_neighbours(z, y, z, y, leave_out=own)
    s = (z.double() @ z.double().T).fill_diagonal_(-9)
    assert torch.equal(found.predictions[1], y[s.argmax(dim=1)])
    assert (found.target_position != own).all()
    kept = find_neighbours(z, y, z, y, leave_out=torch.full((90,), -1))
    assert torch.equal(kept.target_position, own)


def test_labels_may_be_any_numbers_and_a_class_may_lack_references() -> None:
    z, y = unit(50, 4), labels(50, 3) * 10 - 7
    q, w = unit(6, 4, 1), torch.tensor([-7, 3, 13, 99, 99, 3])
    found = find_neighbours(q, w, z, y, ks=(1,))
    assert set(found.predictions[1].tolist()) <= {-7, 3, 13}
    assert found.target_position[3:5].tolist() == [-1, -1]
    assert (found.noise_position >= 0).all()


def test_ties_in_votes_go_to_the_smaller_label() -> None:
    z, y = torch.eye(4)[[0, 0, 0, 1]], torch.tensor([2, 1, 1, 0])
    found = find_neighbours(torch.eye(4)[:1], torch.tensor([2]), z, y, ks=(1, 2, 3))
    assert {k: int(p) for k, p in found.predictions.items()} == {1: 1, 2: 1, 3: 1}
    assert found.noise_position.tolist() == [1]


def test_a_class_without_votes_never_wins() -> None:
    z, y = -unit(3, 4), torch.tensor([1, 1, 1])
    q = -z.mean(dim=0, keepdim=True)
    assert find_neighbours(q / q.norm(), torch.tensor([0]), z, y, ks=(2,)).predictions[2].tolist() == [1]


def test_accuracy() -> None:
    z = torch.eye(4)
    assert accuracy_1nn(z, torch.tensor([0, 1, 2, 3]), z, torch.tensor([0, 1, 0, 3])) == 0.75


def test_bad_input() -> None:
    z, y = unit(20, 4), labels(20, 2)
    with pytest.raises(InputValueError, match="neighbours: k must be 1 to 20, the number of references; got 21"):
        find_neighbours(z, y, z, y, ks=(21,))
    with pytest.raises(InputValueError, match="k must be 1 to 19"):
        find_neighbours(z, y, z, y, ks=(20,), leave_out=torch.arange(20))
    broken = z.clone()
    broken[13, 2] = torch.nan
    with pytest.raises(DataError, match="neighbours: references must be finite; row 13 is not"):
        find_neighbours(z, y, broken, y)


def test_embed_keeps_the_order() -> None:
    rows = torch.arange(20.0).view(10, 2)
    result = embed(lambda x: x * 2, [PartOutputs(rows[:3]), PartOutputs(rows[3:])])
    assert torch.equal(result.embeddings, rows * 2)
    assert torch.equal(result.ids, rows[:, 1].long())
    assert torch.equal(result.labels, rows[:, 0].long())
