"""`train` makes a run that can be read and trusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sincere
from sincere.errors import DataError, InputValueError
from sincere.loss_catalog import LOSSES
from sincere.training import fit as fit_module
from sincere.training.fit import TrainingError
from sincere.workflows.run_folder import RunFolder
from sincere.workflows.train import TrainResult
from tests.workflows.conftest import QUICK
from tests.workflows.trained_runs import same_weights, weights


@pytest.mark.parametrize("loss", LOSSES)
def test_a_run_with_every_loss(loss: str, data: str, tmp_path: Path) -> None:
    # Balanced batches all have one floor, so that the last one's bounds the epoch's mean loss.
    result = sincere.train(data=data, loss=loss, out=tmp_path / "run", sampler="balanced", **QUICK)
    assert isinstance(result, TrainResult)
    names = {"config.toml", "manifest.json", "metrics.jsonl", "checkpoints", "model.json", "model.safetensors"}
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        *names,
        "reference.safetensors",
        "summary.json",
        ".lock",
    }
    rows = RunFolder(tmp_path / "run").log.rows()
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4]
    if LOSSES[loss].has_levels:
        assert all(row["floor"] <= row["loss"] <= 2 * row["chance"] for row in rows)
    assert "knn1_train" in rows[-1]
    assert ("repulsion_share" in rows[-1]) == (LOSSES[loss].is_plain and LOSSES[loss].needs_labels)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["versions"]["torch"]
    assert result.model().network(torch.zeros(1, 1, 8, 8)).shape == (1, 8)


def test_it_learns(data: str, tmp_path: Path) -> None:
    result = sincere.train(data=data, out=tmp_path / "run", **{**QUICK, "epochs": 15})
    assert result.train_loss["last"] < 0.6 * result.train_loss["first"]
    assert result.knn1_test > 0.9


def test_same_seed_same_weights(data: str, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        sincere.train(data=data, out=tmp_path / name, seed=seed, **QUICK)
    assert same_weights(tmp_path / "a", tmp_path / "b")
    assert not same_weights(tmp_path / "a", tmp_path / "c")


def test_a_loss_that_is_not_finite_stops_and_names_the_step(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fit_module.Fit._step

    def poisoned(self: fit_module.Fit, batch: fit_module.Views) -> torch.Tensor:
        if self.state.step == 7:
            with torch.no_grad():
                next(self.model.parameters()).fill_(torch.nan)
        return real(self, batch)

    monkeypatch.setattr(fit_module.Fit, "_step", poisoned)
    with pytest.raises(TrainingError) as caught:
        sincere.train(data=data, out=tmp_path / "run", checkpoint_minutes=0, **QUICK)
    assert str(caught.value).startswith("train: the loss is nan at step 8; the last checkpoint is step-000000007.pt.")
    content, _ = RunFolder(tmp_path / "run").checkpoints.last()
    assert content is not None
    assert all(torch.isfinite(value).all() for value in content["model"].values())


def test_weights_that_are_not_finite_are_never_saved(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gradient may overflow while its loss is still finite."""
    real = fit_module.Fit._step

    def poisoned(self: fit_module.Fit, batch: fit_module.Views) -> torch.Tensor:
        embeddings = real(self, batch)
        if self.state.step == 5:
            with torch.no_grad():
                next(self.model.parameters()).fill_(torch.inf)
        return embeddings

    monkeypatch.setattr(fit_module.Fit, "_step", poisoned)
    with pytest.raises(
        TrainingError, match=r"weights are not finite after step 5; the last checkpoint is step-000000004"
    ):
        sincere.train(data=data, out=tmp_path / "run", checkpoint_minutes=0, **QUICK)


def test_the_best_checkpoint_is_kept_and_early_stop_stops(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([0.5, 0.9, 0.8, 0.7, 0.6])
    monkeypatch.setattr("sincere.workflows.live_metrics.accuracy_1nn", lambda *a, **k: next(scores))
    options = {**QUICK, "batch_size": 16, "epochs": 10}
    result = sincere.train(data=data, out=tmp_path / "run", validation=0.2, validate_every=1, early_stop=2, **options)
    assert result.epochs == 4
    best = torch.load(tmp_path / "run" / "checkpoints" / "best.pt", weights_only=True)
    assert best["progress"]["best_epoch"] == 2
    saved = weights(tmp_path / "run")
    assert all(torch.equal(saved[name], value) for name, value in best["model"].items())


def test_validation_images_are_not_learned_from(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[int] = set()
    real = fit_module.Fit._step

    def noting(self: fit_module.Fit, batch: Any) -> torch.Tensor:
        seen.update(batch.ids.tolist())
        return real(self, batch)

    monkeypatch.setattr(fit_module.Fit, "_step", noting)
    sincere.train(data=data, out=tmp_path / "run", validation=0.2, **{**QUICK, "batch_size": 16})
    assert len(seen) == 48


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"loss": "sincer"},
            "got 'sincer'. Did you mean 'sincere'?",
        ),
        ({"encoder": "smal"}, "Did you mean 'small'?"),
        ({"augmentation": "papr"}, "Did you mean 'paper'?"),
        ({"optimizer": "mon"}, "Did you mean 'muon'?"),
        ({"batch_size": 61}, "batch_size must be at most 60, the number of images; got 61"),
        ({"temperature": 0}, "train: temperature must be greater than 0; got 0"),
        ({"temperature": -0.1}, "train: temperature must be greater than 0; got -0.1"),
        ({"tempreture": 0.1}, "train: tempreture is not a setting"),
        ({"early_stop": 3}, "early_stop needs images to check on"),
        ({"loss": "infonce", "n_views": 1}, "n_views must be at least 2 for infonce"),
        ({"device": "tpu"}, "device must be one of 'auto', 'cpu', 'cuda'; got 'tpu'"),
        ({"classes": ("0",)}, "at least two different classes are needed"),
    ],
)
def test_bad_settings_write_nothing(settings: dict[str, Any], message: str, data: str, tmp_path: Path) -> None:
    options = {"data": data, "out": tmp_path / "run", "quiet": True, **settings}
    with pytest.raises((InputValueError, DataError)) as caught:
        sincere.train(**options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_live_1nn_is_fair_and_leaves_the_image_itself_out(tmp_path: Path) -> None:
    """Images of pure noise, sorted by class as folders are: no image's nearest neighbour tells its class."""
    generator = np.random.default_rng(0)
    arrays = {}
    for part, n in (("train", 200), ("test", 40)):
        arrays[f"{part}_images"] = generator.integers(0, 256, (n, 8, 8, 1), dtype=np.uint8)
        arrays[f"{part}_labels"] = np.repeat(np.arange(4), n // 4)
    np.savez(tmp_path / "noise.npz", **arrays)
    settings = {**QUICK, "epochs": 1, "learning_rate": 1e-9}
    sincere.train(data=tmp_path / "noise.npz", out=tmp_path / "run", **settings)
    live = RunFolder(tmp_path / "run").log.rows()[-1]["knn1_train"]
    assert live < 0.5, "1.0 if an image were its own neighbour"


def test_the_end_of_a_run_may_be_without_augmentation(data: str, tmp_path: Path) -> None:
    losses = {}
    for share in (0.0, 0.5):
        folder = tmp_path / str(share)
        sincere.train(data=data, out=folder, unaugmented=share, **QUICK)
        losses[share] = [row["loss"] for row in RunFolder(folder).log.rows()]
    assert losses[0.0][:2] == losses[0.5][:2]
    assert losses[0.0][2] != losses[0.5][2]


def test_the_callers_random_numbers_stay(data: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    sincere.train(data=data, out=tmp_path / "run", **QUICK)
    assert torch.equal(torch.rand(2), expected)


@pytest.mark.parametrize("changes", [{"precision": "bf16-mixed"}, {"channels_last": False}, {"sampler": "p-by-k"}])
def test_other_ways_to_run(changes: dict[str, Any], data: str, tmp_path: Path) -> None:
    result = sincere.train(data=data, out=tmp_path / "run", **{**QUICK, **changes})
    assert all(torch.isfinite(value).all() for value in weights(result.folder).values())


def test_load(data: str, tmp_path: Path) -> None:
    run = sincere.train(data=data, out=tmp_path / "run", **QUICK)
    images = torch.rand(3, 1, 8, 8)
    assert torch.equal(sincere.load(str(run.folder)).embed(images), run.model().embed(images))


def test_a_step_too_large_for_the_memory_is_refused_at_once(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sincere.workflows.assembly.free_bytes", lambda device: 100_000)
    with pytest.raises(
        InputValueError, match=r"train: small with 20 images x 2 views needs about 0\.00\d+ GB of memory"
    ):
        sincere.train(data=data, out=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()


def test_clipping_reaches_the_loop(data: str, tmp_path: Path) -> None:
    sincere.train(data=data, out=tmp_path / "free", **QUICK)
    sincere.train(data=data, out=tmp_path / "clipped", clip_norm=1e-3, **QUICK)
    assert not same_weights(tmp_path / "free", tmp_path / "clipped")


def test_micro_batches_end_with_the_weights_of_whole_batches(data: str, tmp_path: Path) -> None:
    # Gentle, so that rounding does not grow from step to step: equality in float64 is tested in tests/training.
    gentle = {"optimizer": "sgd", "learning_rate": 0.01, "temperature": 0.5, "channels_last": False}
    options = {**QUICK, **gentle, "norm": "group", "precision": "32-true"}
    sincere.train(data=data, out=tmp_path / "whole", **options)
    sincere.train(data=data, out=tmp_path / "pieces", micro_batch=7, **options)
    one, other = weights(tmp_path / "whole"), weights(tmp_path / "pieces")
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, atol=1e-4, rtol=1e-3)
    rows = [RunFolder(tmp_path / name).log.rows() for name in ("whole", "pieces")]
    assert [row["loss"] for row in rows[1]] == pytest.approx([row["loss"] for row in rows[0]], abs=1e-4)
    assert sincere.load(tmp_path / "pieces").spec.norm == "group"
