"""Runs that contrast with a queue: another loss, resumed to the same end, and the same on any number of processes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import sincere
from sincere import MemoryQueue, SINCERELoss, info_nce_loss, sincere_loss
from sincere.errors import InputValueError, UnsupportedError
from sincere.losses.queue import queued_loss
from sincere.settings.requests import RunSettings
from sincere.training.checkpoints import read
from sincere.training.fit import Fit
from sincere.workflows.run_folder import RunFolder
from sincere.workflows.training_loss import training_loss
from tests.workflows.conftest import QUICK
from tests.workflows.test_devices import command, run, same
from tests.workflows.trained_runs import same_weights, stopped_after, weights

N_QUEUED = 50  # more than a batch of 20 images in two views, less than two
TWO_BATCHES = 80  # whole batches: which rows of one are left does not depend on their order, which is that of the ranks


@pytest.mark.parametrize("step", [1, 5])
@pytest.mark.parametrize("more", [{}, {"micro_batch": 8}, {"loss": "infonce"}], ids=["plain", "micro", "infonce"])
def test_stopped_and_resumed_it_ends_the_same(
    step: int, more: dict[str, Any], data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**QUICK, "data": data, "queue": N_QUEUED, **more}
    sincere.train(out=tmp_path / "whole", **options)
    stopped_after(step, monkeypatch, out=tmp_path / "parts", **options)
    sincere.train(resume=True, out=tmp_path / "parts", quiet=True)
    assert same_weights(tmp_path / "whole", tmp_path / "parts")
    stored = [read(RunFolder(tmp_path / name).checkpoints.paths()[-1])["queue"] for name in ("whole", "parts")]
    assert all(torch.equal(stored[0][name], stored[1][name]) for name in ("embeddings", "labels"))


def test_the_end_would_be_another_if_the_queue_were_not_restored(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**QUICK, "data": data, "queue": N_QUEUED}
    sincere.train(out=tmp_path / "whole", **options)
    stopped_after(5, monkeypatch, out=tmp_path / "parts", **options)
    monkeypatch.setattr(MemoryQueue, "load_state_dict", lambda self, state: None)
    sincere.train(resume=True, out=tmp_path / "parts", quiet=True)
    assert not same_weights(tmp_path / "whole", tmp_path / "parts")


def test_a_checkpoint_without_a_queue_is_resumed_without(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As earlier versions have left it."""
    options = {**QUICK, "data": data}
    sincere.train(out=tmp_path / "whole", **options)
    stopped_after(5, monkeypatch, out=tmp_path / "parts", **options)
    path = RunFolder(tmp_path / "parts").checkpoints.paths()[-1]
    content = read(path)
    del content["queue"], content["identity"]["queue"]
    torch.save(content, path)
    sincere.train(resume=True, out=tmp_path / "parts", quiet=True)
    assert same_weights(tmp_path / "whole", tmp_path / "parts")


def test_a_queue_adds_negatives_from_the_second_step_on(data: str, tmp_path: Path) -> None:
    options = {**QUICK, "data": data, "epochs": 2}
    sincere.train(out=tmp_path / "without", **options)
    sincere.train(out=tmp_path / "with", queue=N_QUEUED, **options)
    without, rows = (RunFolder(tmp_path / name).log.rows() for name in ("without", "with"))
    assert rows[0]["chance"] > without[0]["chance"] + 0.5  # 40 rows, then 90
    assert rows[-1]["loss"] > without[-1]["loss"]
    assert rows[0]["loss"] < rows[0]["chance"] + 0.1


def test_micro_batches_change_nothing(data: str, tmp_path: Path) -> None:
    options = {**QUICK, "data": data, "queue": N_QUEUED, "norm": "group", "precision": "32-true"}
    for name, more in (("whole", {}), ("micro", {"micro_batch": 7})):
        sincere.train(out=tmp_path / name, optimizer="sgd", learning_rate=0.002, **options, **more)
    a, b = weights(tmp_path / "whole"), weights(tmp_path / "micro")
    for name, value in a.items():
        torch.testing.assert_close(b[name], value, atol=1e-5, rtol=1e-4, msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--loss", "infonce", "--micro-batch", "3")], ids=["plain", "infonce"])
def test_two_processes_end_with_the_weights_of_one(more: tuple[str, ...], data: str, tmp_path: Path) -> None:
    for name, devices in (("one", "1"), ("two", "2")):
        result = run(command(data, tmp_path / name, "--queue", str(TWO_BATCHES), "--devices", devices, *more))
        assert result.returncode == 0, result.stderr
    if not more:
        same(tmp_path / "one", tmp_path / "two")
    a, b = weights(tmp_path / "one"), weights(tmp_path / "two")
    for name, value in a.items():
        torch.testing.assert_close(b[name], value, atol=1e-5, rtol=1e-4, msg=name)


def test_the_loss_of_infonce_with_a_queue() -> None:
    """Each image is a class of its own; every row of the queue is a negative, whatever its label."""
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(5, 2, 3, generator=generator)
    old = torch.randn(4, 3, generator=generator)
    made = training_loss(RunSettings.make(loss="infonce", queue=6), n_processes=1, dim=3, n_classes=2)
    loss, queue = made.function, made.queue
    assert queue is not None
    labels = torch.zeros(5, dtype=torch.int64)
    torch.testing.assert_close(loss(embeddings, labels), info_nce_loss(embeddings))
    queue.enqueue(old, torch.tensor([0, 1, 2, -1]))
    ids = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8])
    together = torch.cat([embeddings.flatten(0, 1), old])
    expected = sincere_loss(together, ids, reduction="none")[:10].mean()
    torch.testing.assert_close(loss(embeddings, labels), expected)


def test_a_loss_of_the_caller_without_keys(data: str, tmp_path: Path) -> None:
    def spread(embeddings: Tensor, labels: Tensor) -> Tensor:
        return embeddings.square().mean()

    with pytest.raises(UnsupportedError) as caught:
        sincere.train(data=data, loss=spread, queue=8, out=tmp_path / "run", **QUICK)
    assert str(caught.value) == "train: the loss spread takes no keys= and cannot use a queue; use queue=0"
    assert not (tmp_path / "run").exists()


def test_a_negative_queue() -> None:
    with pytest.raises(InputValueError, match=r"^train: queue must be at least 0; got -1"):
        sincere.train(queue=-1)


def test_digits_are_learned_with_a_queue(tmp_path: Path) -> None:
    options = {"data": "digits", "batch_size": 16, "epochs": 3, "quiet": True, "threads": 1, "sampler": "shuffle"}
    result = sincere.train(out=tmp_path / "with", queue=1024, **options)
    assert result.knn1_test > 0.9
    rows = RunFolder(tmp_path / "with").log.rows()
    assert rows[-1]["loss"] < rows[0]["loss"] < rows[0]["chance"]


def test_the_mean_is_over_anchors_alone() -> None:
    """A queue of the batch itself changes the value, not the number of anchors it is the mean of."""
    z = torch.randn(6, 1, 4, generator=torch.Generator().manual_seed(0))
    queue, labels = MemoryQueue(6, 4), torch.tensor([0, 0, 1, 1, 2, 2])
    queue.enqueue(z, labels)
    value = queued_loss(SINCERELoss(reduction="sum"), queue, z, labels)
    each = sincere_loss(torch.cat([z[:, 0], z[:, 0]]), labels.repeat(2), reduction="none")
    torch.testing.assert_close(value, each[:6].mean())


def test_the_logged_levels_count_the_batch_once(data: str, tmp_path: Path) -> None:
    """A batch enters the queue after its loss and its inspection."""
    options = {**QUICK, "data": data, "epochs": 1, "loss": "supcon"}
    sincere.train(out=tmp_path / "run", queue=1000, **options)
    row = RunFolder(tmp_path / "run").log.rows()[0]
    # Where all similarities are equal, SupCon is the log of the number of other rows: here all of the epoch.
    assert row["chance"] == pytest.approx(math.log(row["step"] * TWO_BATCHES / 2 - 1))


def test_steps_are_timed_with_a_queue_that_fills(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = list[int]()
    timed = Fit._timed_step

    def step(self: Fit, batches: Any) -> float:
        seconds = timed(self, batches)
        assert self.calls.queue is not None
        lengths.append(len(self.calls.queue))
        return seconds

    monkeypatch.setattr(Fit, "_timed_step", step)
    options = {name: value for name, value in QUICK.items() if name != "epochs"}
    sincere.train(out=tmp_path / "run", data=data, minutes=0.01, queue=TWO_BATCHES, **options)
    assert lengths[:3] == [TWO_BATCHES // 2, TWO_BATCHES, TWO_BATCHES]
