"""`train` makes a run that can be killed at any moment, resumed, read and trusted."""

from __future__ import annotations

import json
import os
import random
import re
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
from tests.workflows.conftest import QUICK


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same_weights(one: Path, other: Path) -> bool:
    a, b = weights(one), weights(other)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def stopped_after(step: int, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
    real = fit_module.Fit._step

    def interrupted(self: fit_module.Fit, batch: fit_module.Views) -> torch.Tensor:
        embeddings = real(self, batch)
        if self.done.step == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return embeddings

    with monkeypatch.context() as patch:
        patch.setattr(fit_module.Fit, "_step", interrupted)
        with pytest.raises(InterruptedRunError, match=r"stopped by SIGTERM after (step \d+ of \d+|epoch \d+ of 4)"):
            sincere.train(**settings)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_run_with_every_loss(loss: str, data: str, tmp_path: Path) -> None:
    # Balanced batches all have one floor, so that the last one's bounds the epoch's mean loss.
    result = sincere.train(data=data, loss=loss, out=tmp_path / "run", sampler="balanced", **QUICK)
    assert isinstance(result, TrainResult)
    names = {"config.toml", "manifest.json", "metrics.jsonl", "checkpoints", "model.json", "model.safetensors"}
    assert {path.name for path in (tmp_path / "run").iterdir()} == {*names, "summary.json", ".lock"}
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
    stopped_after(step, monkeypatch, out=tmp_path / "parts", **options)
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
    assert f"note: {newest}: is cut off or damaged; going back" in capsys.readouterr().out.replace("\n", " ")
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
    with pytest.raises(DataError, match=r"holds files that are not a run's, such as notes\.txt"):
        sincere.train(data=data, out=other, overwrite=True, **QUICK)
    assert (other / "notes.txt").read_text() == "mine"


def test_overwrite_never_touches_what_is_not_a_runs(data: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "config.toml").write_text("[site]\n")
    (project / "thesis.tex").write_text("mine")
    with pytest.raises(DataError, match=r"such as thesis\.tex"):
        sincere.train(data=data, out=project, overwrite=True, **QUICK)
    assert (project / "thesis.tex").read_text() == "mine"


def test_a_folder_taken_in_between_is_left_alone(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, real = tmp_path / "run", RunFolder.begin

    def late(self: RunFolder, *arguments: Any) -> None:
        (run / "config.toml").write_text('loss = "supcon"\n')  # another process was here first
        real(self, *arguments)

    monkeypatch.setattr(RunFolder, "begin", late)
    with pytest.raises(DataError, match="holds a run already"):
        sincere.train(data=data, out=run, **QUICK)
    assert (run / "config.toml").read_text() == 'loss = "supcon"\n'


def test_two_processes_do_not_share_a_folder(data: str, tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run").locked(), pytest.raises(DataError, match="another process is training in it"):
        sincere.train(data=data, out=tmp_path / "run", **QUICK)


def test_a_begin_cut_short_can_be_overwritten(data: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "manifest.json").write_text("{}")
    (run / ".config.toml.unfinished").write_text("los")
    with pytest.raises(DataError, match="holds a run already"):
        sincere.train(data=data, out=run, **QUICK)
    assert sincere.train(data=data, out=run, overwrite=True, **QUICK).epochs == 4


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("temperature = 0.5", "its checkpoint has temperature = 0.1, not 0.5; set it back, or begin again"),
        ("dim = 9", "its checkpoint has dim = 8, not 9"),
        ('optimizer = "sgd"', "its checkpoint has optimizer = 'muon', not 'sgd'"),
    ],
)
def test_a_checkpoint_of_another_configuration(
    line: str, message: str, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    stopped_after(5, monkeypatch, data=data, out=run, **QUICK)
    config = (run / "config.toml").read_text()
    name = line.split(" =")[0]
    (run / "config.toml").write_text(re.sub(rf"^{name} = .*$", line, config, flags=re.MULTILINE))
    with pytest.raises(DataError) as caught:
        sincere.train(resume=True, out=run, quiet=True)
    assert message in str(caught.value)


def test_changed_data_are_noticed_and_moved_data_are_not_minded(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, moved, other = tmp_path / "run", tmp_path / "elsewhere" / "moved.npz", tmp_path / "other.npz"
    stopped_after(5, monkeypatch, data=data, out=run, **QUICK)
    with np.load(data) as file:
        arrays = dict(file)
    np.savez(other, **{**arrays, "train_images": 255 - arrays["train_images"]})
    with pytest.raises(DataError, match=r"its checkpoint has data \(contents\) = "):
        sincere.train(resume=True, out=run, data=other, quiet=True)
    moved.parent.mkdir()
    np.savez(moved, **arrays)
    assert sincere.train(resume=True, out=run, data=moved, quiet=True).epochs == 4


def test_a_damaged_best_checkpoint_does_not_keep_a_run_from_its_end(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {**QUICK, "batch_size": 16, "quiet": False, "validation": 0.2, "validate_every": 1}
    sincere.train(data=data, out=tmp_path / "run", **options)
    (tmp_path / "run" / "summary.json").unlink()
    (tmp_path / "run" / "checkpoints" / "best.pt").write_bytes(b"cut off")
    assert sincere.train(resume=True, out=tmp_path / "run").epochs == 4
    said = " ".join(capsys.readouterr().out.split())
    assert "best.pt: is cut off or damaged; taking the last weights instead of the best" in said


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
    monkeypatch.setattr("sincere.workflows.training_setup.free_bytes", lambda device: 100_000)
    with pytest.raises(
        InputValueError, match=r"train: small with 20 images x 2 views needs about 0\.00\d+ GB of memory"
    ):
        sincere.train(data=data, out=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()


def test_tensorboard_files(data: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    sincere.train(data=data, out=tmp_path / "run", tensorboard=True, **QUICK)
    assert list((tmp_path / "run" / "tensorboard").glob("events.*"))


def test_clipping_reaches_the_loop(data: str, tmp_path: Path) -> None:
    sincere.train(data=data, out=tmp_path / "free", **QUICK)
    sincere.train(data=data, out=tmp_path / "clipped", clip_norm=1e-3, **QUICK)
    assert not same_weights(tmp_path / "free", tmp_path / "clipped")


def test_micro_batches_end_with_the_weights_of_whole_batches(data: str, tmp_path: Path) -> None:
    # Gentle, so that rounding does not grow from step to step: equality in float64 is tested in tests/training.
    gentle = {"optimizer": "sgd", "learning_rate": 0.01, "temperature": 0.5, "channels_last": False}
    options = {**QUICK, **gentle, "norm": "group"}
    sincere.train(data=data, out=tmp_path / "whole", **options)
    sincere.train(data=data, out=tmp_path / "pieces", micro_batch=7, **options)
    one, other = weights(tmp_path / "whole"), weights(tmp_path / "pieces")
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, atol=1e-4, rtol=1e-3)
    rows = [RunFolder(tmp_path / name).log.rows() for name in ("whole", "pieces")]
    assert [row["loss"] for row in rows[1]] == pytest.approx([row["loss"] for row in rows[0]], abs=1e-4)
    assert sincere.load(tmp_path / "pieces").spec.norm == "group"


def test_micro_batches_resume(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {**QUICK, "data": data, "micro_batch": 8}
    sincere.train(out=tmp_path / "whole", **options)
    stopped_after(5, monkeypatch, out=tmp_path / "parts", **options)
    sincere.train(out=tmp_path / "parts", resume=True, quiet=True)
    assert same_weights(tmp_path / "whole", tmp_path / "parts")
