"""The memory queue keeps the newest rows; its loss is that of a batch with more keys, on any number of processes."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from sincere import MemoryQueue, SINCERELoss, SupConLoss, sincere_loss
from sincere.errors import InputTypeError, InputValueError
from sincere.losses.queue import EMPTY, queued_loss
from tests.losses.process_cases import start

D = 4


def rows(n: int, seed: int = 0) -> Tensor:
    return torch.randn(n, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("size", [1, 3, 5, 8, 20])
def test_it_holds_the_newest_rows_where_it_says(size: int) -> None:
    queue = MemoryQueue(size, D).double()
    seen = torch.zeros(0, D, dtype=torch.float64)
    for step, n in enumerate((3, 1, 4, 7, 2)):
        batch, labels = rows(n, seed=step), 10 * step + torch.arange(n)
        slots = queue.enqueue(batch, labels)
        seen = torch.cat([seen, batch])
        kept = slots >= 0
        assert kept.tolist() == [False] * (n - min(n, size)) + [True] * min(n, size)
        assert torch.equal(queue.embeddings[slots[kept]], batch[kept])
        assert torch.equal(queue.labels[slots[kept]], labels[kept])
        embeddings, _ = queue.filled()
        assert len(queue) == len(embeddings) == min(size, len(seen))
        assert {tuple(row) for row in embeddings.tolist()} == {tuple(row) for row in seen[-size:].tolist()}
        assert (queue.labels[len(queue) :] == EMPTY).all()


def test_views_are_rows_with_the_label_of_their_image() -> None:
    queue = MemoryQueue(8, D)
    slots = queue.enqueue(rows(6).view(3, 2, D), torch.tensor([5, -1, 7], dtype=torch.int8))
    assert slots.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert queue.labels.tolist() == [5, 5, -1, -1, 7, 7, EMPTY, EMPTY]


def test_stored_rows_have_no_graph_and_keep_their_values() -> None:
    queue, batch = MemoryQueue(4, D).double(), rows(4).requires_grad_()
    queue.enqueue(batch, torch.arange(4))
    assert not queue.embeddings.requires_grad
    before = queue.embeddings.clone()
    with torch.no_grad():
        batch.zero_()
    assert torch.equal(queue.embeddings, before)


def test_a_stored_state_goes_on_where_it_was() -> None:
    whole, first = MemoryQueue(5, D), MemoryQueue(5, D)
    for queue in (whole, first):
        queue.enqueue(rows(7), torch.arange(7))
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = MemoryQueue(5, D)
    second.load_state_dict(torch.load(file, weights_only=True))
    for queue in (whole, second):
        queue.enqueue(rows(2, seed=1), torch.tensor([8, 9]))
    assert torch.equal(whole.embeddings, second.embeddings)
    assert torch.equal(whole.labels, second.labels)
    assert whole.labels.tolist() == [5, 6, 8, 9, 4]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0, 2), InputValueError, "MemoryQueue: size must be an integer of at least 1; got 0"),
        ((2, 1.5), InputTypeError, "MemoryQueue: dim must be an integer of at least 1; got float"),
    ],
)
def test_wrong_sizes(arguments: tuple[int, int], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        MemoryQueue(*arguments)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("embeddings", "labels", "message"),
    [
        (torch.zeros(2, 3), torch.zeros(2).long(), "embeddings must have the queue's dimension 4; got shape (2, 3)"),
        (torch.zeros(2, 4), torch.zeros(3).long(), "labels must have shape (n,) with n = 2 embeddings; got (3,)"),
        (
            torch.zeros(2, 4, device="meta"),
            torch.zeros(2).long(),
            "embeddings must be on the queue's device cpu; got meta. Move the queue with .to()",
        ),
    ],
)
def test_wrong_batches(embeddings: Tensor, labels: Tensor, message: str) -> None:
    with pytest.raises(InputValueError) as caught:
        MemoryQueue(5, D).enqueue(embeddings, labels)
    assert str(caught.value) == f"MemoryQueue.enqueue: {message}"


def test_a_wrong_group() -> None:
    with pytest.raises(InputTypeError, match=r'^MemoryQueue: group must be None, "world" or a torch'):
        MemoryQueue(2, 2, group="words")


@pytest.mark.parametrize("kind", [SINCERELoss, SupConLoss])
def test_with_an_empty_queue_the_loss_is_that_of_the_batch(kind: type[nn.Module]) -> None:
    embeddings, labels = rows(12).view(6, 2, D), torch.tensor([0, 0, 1, -1, -1, 2])
    value = queued_loss(kind(reduction="sum"), MemoryQueue(9, D).double(), embeddings, labels)
    torch.testing.assert_close(value, kind()(embeddings, labels))


def test_a_queue_adds_keys_but_no_anchors() -> None:
    """The loss of anchor i is that of a batch of everything, whose other anchors are left out."""
    embeddings, labels = rows(12).view(6, 2, D), torch.tensor([0, 0, 1, 1, -1, 2])
    old, old_labels = rows(7, seed=1), torch.tensor([0, 1, 1, 5, -1, -1, 2])
    queue = MemoryQueue(10, D).double()
    queue.enqueue(old, old_labels)
    value = queued_loss(SINCERELoss(reduction="sum"), queue, embeddings, labels)
    together = torch.cat([embeddings.flatten(0, 1), old])
    # Unlabelled images: the two views of image 4 are one class, those of the queue one each.
    classes = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 9, 9, 2, 2, 0, 1, 1, 5, 7, 8, 2])
    expected = sincere_loss(together, classes, reduction="none")[:12].mean()
    torch.testing.assert_close(value, expected)


def test_anchors_without_a_positive_leave_the_mean() -> None:
    embeddings, labels = rows(4).view(4, 1, D), torch.tensor([0, 0, 1, 2])
    queue = MemoryQueue(3, D).double()
    queue.enqueue(rows(1, seed=2), torch.tensor([2]))
    value = queued_loss(SINCERELoss(reduction="sum"), queue, embeddings, labels)
    together = torch.cat([embeddings.flatten(0, 1), rows(1, seed=2)])
    each = sincere_loss(together, torch.tensor([0, 0, 1, 2, 2]), reduction="none")
    torch.testing.assert_close(value, each[[0, 1, 3]].mean())


def check_processes(rank: int, n_processes: int) -> None:
    """Three steps, with parts of different sizes: the queue, the loss and the gradients are those of one process."""
    torch.manual_seed(0)
    alone, network = nn.Linear(3, D).double(), nn.Linear(3, D).double()
    network.load_state_dict(alone.state_dict())
    spread = nn.parallel.DistributedDataParallel(network)
    one, shared = MemoryQueue(30, D).double(), MemoryQueue(30, D, group="world").double()
    generator = torch.Generator().manual_seed(1)
    for kind, hidden in ((SINCERELoss, False), (SupConLoss, True), (SINCERELoss, True)):
        images = torch.randn(7, 2, 3, generator=generator, dtype=torch.float64)
        labels = torch.randint(0, 3, (7,), generator=generator)
        if hidden:
            labels[::3] = -1
        own = slice(0, 2) if rank == 0 else slice(2, 7)
        criterion = kind(0.3, reduction="sum")
        whole, part = alone(images), spread(images[own])
        expected, value = queued_loss(criterion, one, whole, labels), queued_loss(criterion, shared, part, labels[own])
        for model, loss in ((alone, expected), (network, value)):
            model.zero_grad()
            loss.backward()
        torch.testing.assert_close(value, expected)
        for a, b in zip(alone.parameters(), network.parameters(), strict=True):
            torch.testing.assert_close(b.grad, a.grad)
        slots = one.enqueue(whole, labels)
        assert torch.equal(shared.enqueue(part, labels[own]), slots[own])
        torch.testing.assert_close(shared.embeddings, one.embeddings)
        assert torch.equal(shared.labels, one.labels)


def test_processes_share_a_queue(tmp_path: Path) -> None:
    start(2, tmp_path, check_processes)
