"""Runs with images that have no label: in training only, where the loss can use them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import sincere
from sincere.errors import DataError, InputValueError
from sincere.records.results import Results
from sincere.training.diagnostics import mean_similarities
from sincere.training.fit import Fit
from tests.workflows.conftest import QUICK, blobs
from tests.workflows.trained_runs import same_weights, stopped_after

SUM = "0.35*sincere + 0.65*infonce"


@pytest.fixture(scope="module")
def partly(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Data of which half of the training images have no label."""
    path = tmp_path_factory.mktemp("partly") / "partly.npz"
    with np.load(blobs(path)) as file:
        arrays = dict(file)
    arrays["train_labels"][30:] = -1
    np.savez(path, **arrays)
    return str(path)


@pytest.mark.parametrize("loss", ["sincere", SUM, "supcon", "set-sincere", "targeted", "sincere + 0.5*cross-entropy"])
def test_a_run(loss: str, partly: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {**QUICK, "epochs": 10, "quiet": False}
    result = sincere.train(data=partly, loss=loss, out=tmp_path / "run", **options)
    text = capsys.readouterr().out
    assert "30 training images, 30 test images; 3 classes of 10 training images, and 30 unlabelled" in text
    assert result.train_loss["last"] < result.train_loss["first"]
    assert result.knn1_test > 0.6
    reference = result.model().reference
    assert sorted(set(reference.labels.tolist())) == [0, 1, 2]
    assert len(reference.labels) == 30


def test_the_loss_sees_them_all(partly: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []
    real = Fit._backward

    def watched(self: Fit, batch: Any) -> Any:
        seen.append(batch.labels)
        return real(self, batch)

    monkeypatch.setattr(Fit, "_backward", watched)
    sincere.train(data=partly, loss=SUM, out=tmp_path / "run", **{**QUICK, "epochs": 1})
    labels = torch.cat(seen)
    assert torch.bincount(labels + 1).tolist() == [30, 10, 10, 10]
    seen.clear()

    def own(embeddings: Tensor, labels: Tensor) -> Tensor:
        return sincere.sincere_loss(embeddings, labels)

    sincere.train(data=partly, loss=own, out=tmp_path / "own", **{**QUICK, "epochs": 1, "batch_size": 10})
    assert torch.bincount(torch.cat(seen) + 1).tolist()[0] == 0


def test_a_loss_of_the_caller_gets_a_note(partly: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def own(embeddings: Tensor, labels: Tensor) -> Tensor:
        return sincere.sincere_loss(embeddings, labels)

    sincere.train(data=partly, loss=own, out=tmp_path / "own", **{**QUICK, "epochs": 1, "batch_size": 10})
    note = "the 30 unlabelled images are left out: a loss that was given in Python gets labelled ones only"
    assert note in capsys.readouterr().err


def test_a_killed_run_resumes(partly: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**QUICK, "data": partly, "loss": SUM, "validation": 0.2}
    sincere.train(out=tmp_path / "whole", **settings)
    stopped_after(3, monkeypatch, out=tmp_path / "part", **settings)
    sincere.train(out=tmp_path / "part", resume=True)
    assert same_weights(tmp_path / "whole", tmp_path / "part")


def test_other_unlabelled_images_are_other_data(partly: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy.npz"
    copy.write_bytes(Path(partly).read_bytes())
    sincere.train(data=copy, out=tmp_path / "run", **QUICK)
    with np.load(copy) as file:
        arrays = dict(file)
    arrays["train_images"][59] += 1
    np.savez(copy, **arrays)
    with pytest.raises(DataError, match="was trained on other data"):
        sincere.train(out=tmp_path / "run", resume=True)


def test_a_comparison_counts_them(partly: str, tmp_path: Path) -> None:
    losses = ("sincere", SUM)
    sincere.compare(data=partly, losses=losses, metrics=("knn",), resamples=100, out=tmp_path / "c", **QUICK)
    results = Results.read(tmp_path / "c")
    assert (results.data.n_train, results.data.n_test, results.data.n_unlabelled) == (30, 30, 30)
    assert "30 unlabelled (in training only)" in (tmp_path / "c" / "report.html").read_text()


def test_frozen_features_of_them(partly: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINCERE_HOME", str(tmp_path / "home"))
    weights = sincere.train(data=partly, encoder="small", out=tmp_path / "first", **{**QUICK, "epochs": 1})
    frozen = {"encoder": "small", "freeze": True, "weights": weights.folder / "model.safetensors"}
    for name, cached_views in (("plain", 0), ("views", 2)):
        result = sincere.train(data=partly, loss=SUM, out=tmp_path / name, cached_views=cached_views, **frozen, **QUICK)
        assert result.knn1_test > 0.5


def test_one_view_is_not_enough(partly: str, tmp_path: Path) -> None:
    with pytest.raises(InputValueError) as caught:
        sincere.train(data=partly, n_views=1, out=tmp_path / "run", **QUICK)
    requirement = "n_views must be at least 2 for unlabelled images, whose only positives are other views"
    assert str(caught.value) == f"train: {requirement}; got 1"


def test_metrics_of_a_batch_take_each_as_a_class_of_its_own() -> None:
    z = torch.nn.functional.normalize(torch.randn(6, 2, 4, dtype=torch.float64), dim=-1)
    labels = torch.tensor([0, -1, 0, -1, 1, 1])
    expected = mean_similarities(z, torch.tensor([0, 7, 0, 8, 1, 1]))
    assert mean_similarities(z, labels) == pytest.approx(expected)
