"""Encoders start from files of weights that fit them; others are refused in one line, and none is executed."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torchvision import models

from sincere.errors import DataError, InputValueError
from sincere.models import resnet
from sincere.models.embedding import EmbeddingModel, build_model, load_model, save_model
from sincere.models.weights import RunDescription, load_encoder, read_weights, run_description
from sincere.records.tensors import write_tensors
from tests.models.test_embedding import spec


def resnet_weights(*, seed: int = 1) -> dict[str, Tensor]:
    """Weights as torchvision's: a 7 x 7 stem for colour, and a classifier."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return dict(models.resnet18().state_dict())


def started(path: Path, encoder: str = "resnet18", **changes: Any) -> EmbeddingModel:
    return build_model(spec(encoder=encoder, **{"size": 32, **changes}), weights=read_weights(path, encoder))


def same(model: nn.Module, weights: dict[str, Tensor]) -> bool:
    kept = {name: value for name, value in model.state_dict().items() if "num_batches_tracked" not in name}
    return all(torch.equal(value, weights[name]) for name, value in kept.items())


@pytest.mark.parametrize("size", [32, 64, 65])
def test_pretrained_weights_keep_their_stem(size: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    weights = resnet_weights()
    monkeypatch.setattr(resnet, "imagenet_weights", lambda name: weights)
    model = build_model(spec(encoder="resnet18", size=size), pretrained=True).eval()
    assert torch.equal(model.encoder.conv1.weight, weights["conv1.weight"])
    assert isinstance(model.encoder.maxpool, nn.MaxPool2d)
    text = model.describe()
    assert f"7 x 7 stem (that of its weights) for {size} x {size} px, colour" in text
    assert text.endswith("; starts from ImageNet weights (fc.bias, fc.weight ignored)")
    assert model.spec.mean == (0.485, 0.456, 0.406)
    save_model(model, tmp_path)
    images = torch.rand(2, 3, size, size)
    assert torch.equal(load_model(tmp_path)(images), model(images))


def test_grey_images_do_not_cost_pretrained_weights_their_stem(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = resnet_weights()
    monkeypatch.setattr(resnet, "imagenet_weights", lambda name: weights)
    model = build_model(spec(encoder="resnet18", channels=1, size=96), pretrained=True)
    assert torch.equal(model.encoder.conv1.weight, weights["conv1.weight"])
    assert model(torch.rand(2, 1, 96, 96)).shape == (2, 128)


@pytest.mark.parametrize("size", [32, 96])
def test_a_small_stem_is_kept_as_well(size: int, tmp_path: Path) -> None:
    first = build_model(spec(encoder="resnet18", size=32), seed=3)
    save_file(first.encoder.state_dict(), tmp_path / "own.safetensors")
    model = started(tmp_path / "own.safetensors", size=size)
    assert model.encoder.conv1.kernel_size == (3, 3)
    assert same(model.encoder, first.encoder.state_dict())
    assert "3 x 3 stem (that of its weights)" in model.describe()


@pytest.mark.parametrize("prefix", ["", "module.", "encoder.", "backbone.", "model.", "module.encoder."])
@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_names_may_have_a_prefix(prefix: str, suffix: str, tmp_path: Path) -> None:
    weights = resnet_weights()
    path = tmp_path / f"weights{suffix}"
    renamed = {f"{prefix}{name}": value for name, value in weights.items()}
    save_file(renamed, path) if suffix == ".safetensors" else torch.save(renamed, path)
    model = started(path)
    assert same(model.encoder, weights)
    ignored = {f"{prefix}fc.weight", f"{prefix}fc.bias"}
    assert ignored == set(load_encoder(model.encoder, read_weights(path, "resnet18"), name="resnet18"))
    assert str(path) in model.describe()


@pytest.mark.parametrize("key", ["state_dict", "model"])
def test_weights_inside_a_checkpoint(key: str, tmp_path: Path) -> None:
    weights = resnet_weights()
    torch.save({key: weights, "epoch": 3, "optimizer": {"lr": 0.1}}, tmp_path / "checkpoint.pth")
    assert same(started(tmp_path / "checkpoint.pth").encoder, weights)


def test_the_counters_of_batch_norms_may_be_missing(tmp_path: Path) -> None:
    weights = {name: value for name, value in resnet_weights().items() if "num_batches" not in name}
    torch.save(weights, tmp_path / "old.pth")
    assert torch.equal(started(tmp_path / "old.pth").encoder.bn1.weight, weights["bn1.weight"])


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_the_model_of_a_run_gives_its_encoder_and_its_input(norm: str, tmp_path: Path) -> None:
    run = build_model(spec(mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6), norm=norm), seed=5)
    run(torch.rand(8, 3, 16, 16))
    save_model(run, tmp_path)
    model = started(tmp_path / "model.safetensors", "small", size=16, norm=norm, head="linear", dim=8)
    assert same(model.encoder, run.encoder.state_dict())
    assert (model.spec.mean, model.spec.std) == (run.spec.mean, run.spec.std)
    assert "head.0.bias, head.0.weight, head.2.bias, ... ignored" in model.describe()
    assert same(model.head, build_model(spec(head="linear", dim=8, norm=norm)).head.state_dict()), "the head is new"


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1)])
def test_images_are_converted_to_the_channels_of_the_weights(before: int, after: int, tmp_path: Path) -> None:
    run = build_model(spec(channels=before), seed=5)
    save_model(run, tmp_path)
    model = started(tmp_path / "model.safetensors", "small", size=16, channels=after)
    assert model.spec.channels == before
    assert model.spec.mean == run.spec.mean
    assert model(torch.rand(2, after, 16, 16)).shape == (2, 128)
    save_file(run.encoder.state_dict(), tmp_path / "foreign.safetensors")
    foreign = started(tmp_path / "foreign.safetensors", "small", size=16, channels=after)
    assert foreign.spec.mean == (0.5,) * before, "the data's"


def test_weights_for_an_encoder_of_timm(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    torch.save(timm.create_model("resnet10t").state_dict(), tmp_path / "timm.pth")
    model = started(tmp_path / "timm.pth", "timm:resnet10t", channels=1)
    assert model.spec.channels == 3
    assert same(model.encoder, torch.load(tmp_path / "timm.pth"))


def test_pretrained_weights_of_timm_get_the_input_they_expect(monkeypatch: pytest.MonkeyPatch) -> None:
    timm = pytest.importorskip("timm")
    make = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda name, **options: make(name, **{**options, "pretrained": False}))
    model = build_model(spec(encoder="timm:resnet10t", channels=1, size=32), pretrained=True)
    config = timm.get_pretrained_cfg("resnet10t")
    assert (model.spec.channels, model.spec.mean, model.spec.std) == (3, config.mean, config.std)

    def fail(name: str, **options: Any) -> nn.Module:
        raise OSError("no network")

    monkeypatch.setattr(timm, "create_model", fail)
    with pytest.raises(DataError, match=r"^timm:resnet10t: its weights could not be downloaded \(no network\)$"):
        build_model(spec(encoder="timm:resnet10t", size=32), pretrained=True)


def test_a_failed_download_says_what_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr(models.ResNet18_Weights, "get_state_dict", fail)
    with pytest.raises(DataError) as caught:
        build_model(spec(encoder="resnet18", size=32), pretrained=True)
    problem = "resnet18: its ImageNet weights could not be downloaded (no network)"
    assert str(caught.value) == f"{problem}; encoder lite0 needs no download, and --weights reads a file"


def test_a_stem_that_an_encoder_does_not_have_is_not_built() -> None:
    assert build_model(spec(stem=5)).encoder.stem[0].kernel_size == (3, 3)


class Malicious:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return open, ("executed", "w")  # type: ignore[return-value]


def _with_code(path: Path) -> None:
    torch.save({**resnet_weights(), "extra": Malicious()}, path)


def _pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps(Malicious()))


def _truncated(path: Path) -> None:
    save = save_file if path.suffix == ".safetensors" else torch.save
    save(resnet_weights(), path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _text(path: Path) -> None:
    path.write_text("no weights\n")


NOT_SAFETENSORS = "is truncated, damaged or not a safetensors file"
NOT_TORCH = "is truncated, damaged or not a file of torch.save"
WITH_CODE = (
    "cannot be loaded with weights_only; only plain tensors are read, no code is executed; save the state_dict, "
    "or use .safetensors"
)


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("a.pth", _with_code, WITH_CODE),
        ("a.pth", _pickle, WITH_CODE),
        ("a.pth", _truncated, NOT_TORCH),
        ("a.pth", _text, NOT_TORCH),
        ("a.pth", Path.touch, NOT_TORCH),
        ("a.pth", Path.mkdir, "is not a regular file"),
        ("a.pth", lambda path: None, "no such file; --weights says where the weights are"),
        ("a.pth", lambda path: torch.save(torch.ones(3), path), "holds no tensors by name; save the state_dict of"),
        ("a.pth", lambda path: torch.save({"lr": 0.1}, path), "holds more than tensors by name; save the state_dict"),
        ("a.safetensors", _truncated, NOT_SAFETENSORS),
        ("a.safetensors", _text, NOT_SAFETENSORS),
        ("a.safetensors", _pickle, NOT_SAFETENSORS),
    ],
)
def test_bad_files(
    name: str, make: Callable[[Path], None], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path / name)
    with pytest.raises(DataError) as caught:
        read_weights(tmp_path / name, "resnet18")
    assert str(caught.value).startswith(f"{tmp_path / name}: {message}")
    assert len(str(caught.value).splitlines()) == 1
    assert not (tmp_path / "executed").exists()


def test_the_pickle_would_have_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _pickle(tmp_path / "a.pth")
    pickle.loads((tmp_path / "a.pth").read_bytes())
    assert (tmp_path / "executed").exists()


def _changed(**changes: Tensor | None) -> dict[str, Tensor]:
    renamed = {name.replace("__", "."): value for name, value in changes.items()}
    return {name: value for name, value in {**resnet_weights(), **renamed}.items() if value is not None}


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (_changed(bn1__weight=None), "got 1 missing (bn1.weight)"),
        (_changed(extra=torch.ones(1)), "got 1 unexpected (extra)"),
        (_changed(bn1__bias=torch.ones(3)), "got 1 of another shape or type (bn1.bias (3,) in place of (64,))"),
        (_changed(bn1__bias=torch.ones(64).int()), "got 1 of another shape or type (bn1.bias (64,) in place of (64,))"),
        (_changed(bn1__bias=torch.full((64,), torch.nan)), "got 1 not finite (bn1.bias)"),
        (
            dict(models.resnet34().state_dict()),
            "got 80 unexpected (layer1.2.bn1.bias, layer1.2.bn1.running_mean, layer1.2.bn1.running_var, ...)",
        ),
        (
            {"features.0.weight": torch.ones(2)},
            "got 100 missing (conv1.weight, bn1.weight, bn1.bias, ...); 1 unexpected (features.0.weight)",
        ),
    ],
)
def test_weights_that_do_not_fit(weights: dict[str, Tensor], message: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    torch.save(weights, path)
    with pytest.raises(InputValueError) as caught:
        started(path)
    assert str(caught.value) == f"weights: {path} must hold the 100 tensors of encoder resnet18; {message}"


def test_a_damaged_model_of_a_run_is_refused(tmp_path: Path) -> None:
    save_model(build_model(spec()), tmp_path)
    path = tmp_path / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="was damaged or changed: its checksum does not match; copy it again"):
        read_weights(path, "small")


def test_another_file_than_expected_is_refused(tmp_path: Path) -> None:
    save_model(build_model(spec()), tmp_path)
    with pytest.raises(DataError, match=r"its SHA-256 must be 00, that of the run's weights; got [0-9a-f]{64}$"):
        read_weights(tmp_path / "model.safetensors", "small", sha256="00")


def test_another_file_of_a_run_is_not_called_damaged_only(tmp_path: Path) -> None:
    write_tensors(tmp_path / "embeddings.safetensors", {"train.labels": np.zeros(3)})
    with pytest.raises(DataError, match=r"is damaged, or is another file of a run than its model; give the run's "):
        read_weights(tmp_path / "embeddings.safetensors", "small")


def test_a_file_tells_its_encoder_and_size(tmp_path: Path) -> None:
    save_model(build_model(spec(encoder="small", size=16)), tmp_path)
    assert run_description(tmp_path / "model.safetensors") == RunDescription("small", 16)
    again = tmp_path / "again"
    again.mkdir()
    save_model(build_model(spec(encoder="small", size=16)), again)
    one, two = ((folder / "model.safetensors").read_bytes() for folder in (tmp_path, again))
    assert one == two, "the order of the metadata is fixed"
    assert run_description(tmp_path / "nothing.safetensors") is None
    assert run_description(tmp_path / "weights.pth") is None
