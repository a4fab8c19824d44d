"""`train` makes a run that can be killed at any moment, resumed, read and trusted."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import sincere
from sincere.errors import DataError, InputValueError
from sincere.losses import LOSSES
from sincere.training import fit as fit_module
from sincere.training.fit import TrainingError
from sincere.training.interruption import InterruptedRunError
from sincere.workflows.run_folder import RunFolder
from sincere.workflows.train import TrainResult

# A small, quick run: 60 images of 3 classes, 8 px.
QUICK: dict[str, Any] = {"epochs": 4, "batch_size": 20, "quiet": True, "head": "linear", "dim": 8}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    generator = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "blobs.npz"
    arrays = {}
    for part, n in (("train", 60), ("test", 30)):
        labels = np.arange(n) % 3
        centres = np.array([60, 120, 200])[labels][:, None, None, None]
        noise = generator.normal(0, 25, (n, 8, 8, 1))
        arrays[f"{part}_images"] = np.clip(centres + noise, 0, 255).astype(np.uint8)
        arrays[f"{part}_labels"] = labels
    np.savez(path, **arrays)
    return str(path)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same_weights(one: Path, other: Path) -> bool:
    a, b = weights(one), weights(other)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_run_with_every_loss(loss: str, data: str, tmp_path: Path) -> None:
    result = sincere.train(data=data, loss=loss, out=tmp_path / "run", **QUICK)
    assert isinstance(result, TrainResult)
    names = {"config.toml", "manifest.json", "metrics.jsonl", "checkpoints", "model.json", "model.safetensors"}
    assert {path.name for path in (tmp_path / "run").iterdir()} == {*names, "summary.json"}
    rows = RunFolder(tmp_path / "run").log.rows()
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4]
    assert all(row["floor"] <= row["loss"] <= 2 * row["chance"] for row in rows)
    assert "knn1_train" in rows[-1]
    assert ("repulsion_share" in rows[-1]) == (loss in ("sincere", "supcon"))
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["versions"]["torch"]
    assert result.model()(torch.zeros(1, 1, 8, 8)).shape == (1, 8)


def test_it_learns(data: str, tmp_path: Path) -> None:
    result = sincere.train(data=data, out=tmp_path / "run", **{**QUICK, "epochs": 15})
    assert result.train_loss["last"] < 0.6 * result.train_loss["first"]
    assert result.knn1_test > 0.9


def test_same_seed_same_weights(data: str, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        sincere.train(data=data, out=tmp_path / name, seed=seed, **QUICK)
    assert same_weights(tmp_path / "a", tmp_path / "b")
    assert not same_weights(tmp_path / "a", tmp_path / "c")


@pytest.mark.parametrize("optimizer", ["sgd", "muon"])
@pytest.mark.parametrize("step", [1, 5, 6, 7, 11])
def test_stopped_at_any_step_and_resumed_it_ends_the_same(
    step: int, optimizer: str, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"data": data, "validation": 0.2, "validate_every": 2, "optimizer": optimizer, **QUICK, "batch_size": 16}
    sincere.train(out=tmp_path / "whole", **options)
    real = fit_module.Fit._step

    def interrupted(self: fit_module.Fit, batch: fit_module.Views) -> torch.Tensor:
        embeddings = real(self, batch)
        if self.done.step == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return embeddings

    with monkeypatch.context() as patch:
        patch.setattr(fit_module.Fit, "_step", interrupted)
        with pytest.raises(
            InterruptedRunError, match=f"stopped by SIGTERM after (step {step} of 12|epoch {step // 3} of 4)"
        ):
            sincere.train(out=tmp_path / "parts", **options)
    assert not (tmp_path / "parts" / "summary.json").exists()
    sincere.train(resume=True, out=tmp_path / "parts", quiet=True)
    assert same_weights(tmp_path / "whole", tmp_path / "parts")
    logs = [RunFolder(tmp_path / name).log.rows() for name in ("whole", "parts")]
    timed = ("images_per_second", "data_wait_share", "seconds")
    stripped = [[{k: v for k, v in row.items() if k not in timed} for row in rows] for rows in logs]
    assert stripped[0] == stripped[1]


def test_killed_at_random_moments_it_ends_the_same(data: str, tmp_path: Path) -> None:
    """SIGKILL, three times; benchmarks/kill_and_resume.py does twenty."""
    options = ["--data", data, "--epochs", "40", "--batch-size", "16", "--head", "linear", "--checkpoint-minutes", "0"]
    command = [sys.executable, "-m", "sincere.cli", "train", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*command, "--out", str(tmp_path / "whole"), "--quiet"], check=True, env=environment)
    generator, kills = random.Random(0), 0
    arguments = [*command, "--out", str(tmp_path / "parts")]
    log = RunFolder(tmp_path / "parts").log
    while kills < 3:
        process = subprocess.Popen([*arguments, "--quiet"], env=environment)
        wanted = len(log.rows()) + generator.randint(2, 8)
        while process.poll() is None and len(log.rows()) < wanted:
            time.sleep(0.005)
        if process.poll() is not None:
            break
        time.sleep(generator.random() * 0.05)
        process.kill()
        process.wait()
        kills += 1
        arguments = [*command[:4], "--resume", "--out", str(tmp_path / "parts")]
    assert kills == 3
    subprocess.run([*arguments, "--quiet"], check=True, env=environment)
    assert same_weights(tmp_path / "whole", tmp_path / "parts")
    assert [row["epoch"] for row in log.rows()] == list(range(1, 41))


def test_a_truncated_checkpoint_falls_back_and_says_so(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"data": data, "checkpoint_minutes": 0, **QUICK}
    sincere.train(out=tmp_path / "run", **options)
    whole = weights(tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    newest = folder.checkpoints.paths()[-1]
    newest.write_bytes(newest.read_bytes()[:1000])
    sincere.train(resume=True, out=tmp_path / "run", quiet=True)
    assert f"note: {newest}: is cut off or damaged; falling back" in capsys.readouterr().out.replace("\n", " ")
    again = weights(tmp_path / "run")
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_a_finished_run_is_not_repeated(data: str, tmp_path: Path) -> None:
    first = sincere.train(data=data, out=tmp_path / "run", **QUICK)
    began = time.monotonic()
    again = sincere.train(resume=True, out=tmp_path / "run", quiet=True)
    assert again == first
    assert time.monotonic() - began < 2


def test_a_loss_that_is_not_finite_stops_and_names_the_step(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fit_module.Fit._step

    def poisoned(self: fit_module.Fit, batch: fit_module.Views) -> torch.Tensor:
        if self.done.step == 7:
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
        if self.done.step == 5:
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
    monkeypatch.setattr("sincere.workflows.training_setup.accuracy_1nn", lambda *a, **k: next(scores))
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
        ({"temperature": 0}, "settings: temperature input should be greater than 0; got 0"),
        ({"temperature": -0.1}, "settings: temperature input should be greater than 0; got -0.1"),
        ({"tempreture": 0.1}, "settings: tempreture is not a setting"),
        ({"early_stop": 3}, "early_stop needs images to check on"),
        ({"loss": "infonce", "n_views": 1}, "n_views must be at least 2 for infonce"),
        ({"device": "tpu"}, "device must be one of 'auto', 'cpu', 'cuda', 'mps'; got 'tpu'"),
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


def test_a_folder_with_another_run_is_refused(data: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(DataError, match="holds no run to resume; leave out --resume to begin one"):
        sincere.train(data=data, out=run, resume=True, quiet=True)
    sincere.train(data=data, out=run, **QUICK)
    with pytest.raises(
        DataError, match="holds a run already; pass --resume to go on with it or --overwrite to replace it"
    ):
        sincere.train(data=data, out=run, **QUICK)
    with pytest.raises(DataError) as caught:
        sincere.train(out=run, resume=True, temperature=0.2, quiet=True)
    assert str(caught.value) == f"{run}: its run has temperature = 0.1, not 0.2; resume takes the run's settings"
    sincere.train(data=data, out=run, overwrite=True, **{**QUICK, "epochs": 1})
    assert len(RunFolder(run).log.rows()) == 1
    with pytest.raises(InputValueError, match="resume and overwrite exclude each other"):
        sincere.train(data=data, out=run, overwrite=True, resume=True)
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="holds files that are not a run"):
        sincere.train(data=data, out=other, overwrite=True, **QUICK)
    assert (other / "notes.txt").read_text() == "mine"


def test_a_step_too_large_for_the_memory_is_refused_at_once(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sincere.workflows.training_setup.free_bytes", lambda device: 3_000_000)
    with pytest.raises(InputValueError, match=r"train: small with 20 images x 2 views needs about 0 GB of memory"):
        sincere.train(data=data, out=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()


def test_tensorboard_files(data: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    sincere.train(data=data, out=tmp_path / "run", tensorboard=True, **QUICK)
    assert list((tmp_path / "run" / "tensorboard").glob("events.*"))


def test_clipping_and_compiling_options_reach_the_loop(data: str, tmp_path: Path) -> None:
    sincere.train(data=data, out=tmp_path / "free", **QUICK)
    sincere.train(data=data, out=tmp_path / "clipped", clip_norm=1e-3, **QUICK)
    assert not same_weights(tmp_path / "free", tmp_path / "clipped")
