"""Models leave the package: ONNX that agrees with PyTorch on photos of any shape, and folders as on the hub."""

from __future__ import annotations

import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import interpolate

import sincere
from sincere.cli import main
from sincere.errors import DataError, InputValueError, MissingPackageError, UnsupportedError
from sincere.models.lite0 import PACKAGE
from sincere.workflows import export
from tests.workflows.conftest import QUICK

needs_onnx = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("onnx", "onnxscript", "onnxruntime")),
    reason="needs onnx, onnxscript and onnxruntime",
)
SHAPES = {  # height and width, for photos that are stored at 32 px
    "portrait": (90, 60),
    "landscape": (60, 91),
    "square": (64, 64),
    "stored-size": (32, 32),
    "smaller": (17, 11),
    "one-pixel": (1, 1),
    "panorama": (30, 400),
    "larger": (900, 1200),
}


def photo(height: int, width: int, *, level: float = 128, seed: int = 0) -> Image.Image:
    """A smooth image with some noise."""
    generator = np.random.default_rng([seed, height, width])
    pixels = generator.normal(0, 5, (height, width, 3)) + level
    for cells, spread in ((3, 60), (12, 25)):
        coarse = torch.from_numpy(generator.normal(0, spread, (1, 3, cells, cells)))
        pixels += interpolate(coarse, (height, width), mode="bicubic")[0].permute(1, 2, 0).numpy()
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("export") / "photos"
    for name, level in {"dark": 70, "light": 190}.items():
        (root / name).mkdir(parents=True)
        for i in range(15):
            photo(40 + 3 * i, 70 - i, level=level, seed=i).save(root / name / f"{i:02d}.png")
    return root


@pytest.fixture(scope="module")
def run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An evaluated run, to copy and not to change."""
    folder = tmp_path_factory.mktemp("export") / "run"
    sincere.train(data=photos, out=folder, **{**QUICK, "encoder": "small", "size": 16})
    sincere.evaluate(folder, quiet=True, report=False)
    return folder


@pytest.fixture(scope="module")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sincere.load(run, device="cpu").export(tmp_path_factory.mktemp("onnx") / "new" / "model.onnx")


def onnx_embeddings(path: Path, values: NDArray[np.uint8] | NDArray[np.float32]) -> NDArray[np.float32]:
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    outputs: NDArray[np.float32] = session.run(["embeddings"], {session.get_inputs()[0].name: values})[0]
    return outputs


def largest_differences(model: sincere.Model, path: Path, folder: Path) -> dict[str, float]:
    """Between the embedding of a photo by its file, and of its decoded pixels in ONNX."""
    differences = {}
    for name, shape in SHAPES.items():
        file = folder / f"{name}.png"
        photo(*shape).save(file)
        pixels = np.asarray(Image.open(file))[None]
        differences[name] = float(np.abs(onnx_embeddings(path, pixels) - model.embed(file).numpy()).max())
    return differences


@needs_onnx
def test_onnx_and_torch_agree_on_photos_of_several_shapes(run: Path, exported: Path, tmp_path: Path) -> None:
    """Stored at 32 px and resized to 16 by the model: both are in the graph."""
    model = sincere.load(run, device="cpu")
    assert model.spec.image_shape == (3, 32, 32)
    differences = largest_differences(model, exported, tmp_path)
    assert max(differences.values()) < 1e-5, differences


@needs_onnx
@pytest.mark.slow
@pytest.mark.skipif(find_spec(PACKAGE) is None, reason=f"needs {PACKAGE}")
def test_onnx_and_torch_agree_on_a_frozen_encoder(photos: Path, tmp_path: Path) -> None:
    """Real weights, and the faster copy of the encoder on the side of PyTorch."""
    sincere.train(data=photos, out=tmp_path / "run", **{**QUICK, "freeze": True, "size": 64})
    model = sincere.load(tmp_path / "run", device="cpu")
    assert (model.spec.encoder, model.spec.frozen) == ("lite0", True)
    differences = largest_differences(model, model.export(tmp_path / "m.onnx"), tmp_path)
    assert max(differences.values()) < 1e-5, differences


@needs_onnx
def test_the_file_classifies_with_the_reference_embeddings(run: Path, exported: Path, photos: Path) -> None:
    """As docs/guides/export.md shows it, without torch and without this package."""
    from safetensors import safe_open

    file = photos / "dark" / "03.png"
    embedding = onnx_embeddings(exported, np.asarray(Image.open(file).convert("RGB"))[None])[0]
    with safe_open(run / "reference.safetensors", "numpy") as reference:
        similarities = reference.get_tensor("embeddings") @ embedding
        classes = json.loads(reference.metadata()["class_names"])
        label = classes[reference.get_tensor("labels")[similarities.argmax()]]
    assert label == sincere.load(run).nearest(file, k=1).labels[0][0]


@needs_onnx
def test_the_file_says_what_it_is(run: Path, exported: Path) -> None:
    import onnx

    about = {entry.key: entry.value for entry in onnx.load(exported).metadata_props}
    assert json.loads(about["class_names"]) == ["dark", "light"]
    assert about["sincere_version"] == sincere.__version__
    assert about["input"].startswith("images: uint8 (n, height, width, 3), decoded pixels")
    assert about["output"] == "embeddings: float32 (n, 8), of unit length"
    assert about["description"].endswith("trained with SINCERE")
    assert str(run.parent).encode() not in exported.read_bytes()


@needs_onnx
def test_a_run_on_features(tmp_path: Path) -> None:
    labels = np.arange(40) % 2
    features = (np.random.default_rng(0).normal(size=(40, 5)) + labels[:, None]).astype(np.float32)
    sincere.train(data=(features, labels), out=tmp_path / "run", **QUICK)
    model = sincere.load(tmp_path / "run")
    path = model.export(tmp_path / "m.onnx")
    np.testing.assert_allclose(onnx_embeddings(path, features), model.embed(features).numpy(), atol=1e-6)


class Mean(nn.Module):
    """Mean colour, which a graph can express unless it is told not to."""

    def __init__(self, *, dark_differently: bool = False) -> None:
        super().__init__()
        self.dark_differently = dark_differently
        self.layer = nn.Linear(1, 4)

    def forward(self, images: Tensor) -> Tensor:
        if self.dark_differently and images.mean().item() < -1e9:
            return self.layer(images[:, :1, 0, 0])
        return self.layer(images.mean(dim=(2, 3)))


@needs_onnx
@pytest.mark.parametrize("exportable", [True, False])
def test_encoders_that_were_given_in_python(exportable: bool, data: str, tmp_path: Path) -> None:
    encoder = Mean(dark_differently=not exportable)
    sincere.train(data=data, out=tmp_path / "run", encoder=encoder, **QUICK)
    model = sincere.load(tmp_path / "run", encoder=encoder)
    if exportable:
        assert model.export(tmp_path / "m.onnx").is_file()
        return
    with pytest.raises(UnsupportedError, match=r"^export: encoder python:Mean@\w+ cannot be exported to ONNX \(torch"):
        model.export(tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()


@needs_onnx
def test_a_file_that_disagrees_is_not_written(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, out = sincere.load(run, device="cpu"), tmp_path / "m.onnx"
    real = export.to_onnx

    def of_another(network: nn.Module, metadata: dict[str, str]) -> bytes:
        other = sincere.load(run, device="cpu").network
        with torch.no_grad():
            next(other.head.parameters()).add_(0.05 * torch.randn(8, 1, generator=torch.Generator().manual_seed(0)))
        return real(other, metadata)

    monkeypatch.setattr(export, "to_onnx", of_another)
    with pytest.raises(UnsupportedError, match=r"m.onnx was not written: its embeddings differ from PyTorch's by \d"):
        model.export(out)
    assert list(tmp_path.iterdir()) == []


@needs_onnx
def test_files_are_replaced_with_overwrite_only(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "to_onnx", lambda network, metadata: b"new")
    monkeypatch.setattr(export, "largest_difference", lambda content, model: 0.0)
    model, out = sincere.load(run), tmp_path / "m.onnx"
    out.write_bytes(b"mine")
    with pytest.raises(DataError) as caught:
        model.export(out)
    assert str(caught.value) == f"{out}: exists already; --overwrite (in Python: overwrite=True) replaces it"
    assert out.read_bytes() == b"mine"
    model.export(out, overwrite=True)
    assert out.read_bytes() == b"new"
    with pytest.raises(InputValueError, match=r"^export: out must end with .onnx; got '.*m.pt'. --format hub writes"):
        model.export(tmp_path / "m.pt")


def test_without_onnx_a_line_says_what_to_install(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert main(["export", str(run), "--out", str(tmp_path / "m.onnx")]) == 2
    expected = "sincere: export needs onnx, which is not installed; install it with: pip install 'sincere[export]'\n"
    assert capsys.readouterr().err == expected


@needs_onnx
def test_without_onnxruntime_a_note_says_that_nothing_was_compared(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(export, "find_spec", lambda name: None)
    assert main(["export", str(run), "--out", str(tmp_path / "m.onnx"), "--quiet"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("note: not compared with PyTorch: onnxruntime is not installed")


def test_the_command_writes_a_folder(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "model"
    words = ["export", str(run), "--format", "hub", "--out", str(out)]
    assert main(words) == 0
    assert {path.name for path in out.iterdir()} == {
        "README.md",
        "config.json",
        "linear.safetensors",
        "model.json",
        "model.safetensors",
        "reference.safetensors",
    }
    assert (out / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()
    assert [path.name for path in out.parent.iterdir()] == ["model"]
    assert "1-NN accuracy" in (out / "README.md").read_text()
    capsys.readouterr()
    assert main(words) == 2
    assert "is not empty; --overwrite replaces the files of a model in it" in capsys.readouterr().err
    (out / "notes.txt").write_text("mine")
    assert main([*words, "--overwrite", "--no-reference"]) == 0
    assert not (out / "reference.safetensors").exists(), "of the earlier export"
    assert (out / "notes.txt").read_text() == "mine"
    with pytest.raises(DataError, match=r"holds no reference embeddings.*export the run again, with its reference set"):
        sincere.load(out).predict(np.zeros((9, 9, 3), dtype=np.uint8))


@pytest.mark.parametrize("format", ["onnx", "hub"])
def test_bad_input_of_the_command(format: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / ("m.onnx" if format == "onnx" else "m"))
    assert main(["export", str(tmp_path), "--format", format, "--out", out]) == 2
    assert capsys.readouterr().err == f"sincere: {tmp_path}: holds no model; model.json is missing\n"
    shutil.copytree(run, tmp_path / "damaged")
    (tmp_path / "damaged" / "model.safetensors").write_bytes(b"no")
    assert main(["export", str(tmp_path / "damaged"), "--format", format, "--out", out]) == 2
    assert "is damaged" in capsys.readouterr().err
    assert not Path(out).exists()


def test_a_run_is_not_written_into(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in run.iterdir()}
    assert main(["export", str(run), "--format", "hub", "--out", str(run), "--overwrite"]) == 2
    assert "holds a run" in capsys.readouterr().err
    assert {path.name: path.stat().st_mtime_ns for path in run.iterdir()} == before


@pytest.mark.parametrize("out", [".", "..", ""])
def test_the_current_folder_is_no_name(out: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run), "--format", "hub", "--out", out]) == 2
    assert capsys.readouterr().err == "sincere: export: out must be the name of a folder\n"


def test_missing_package_is_an_import_error(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "sincere.workflows.hub", raising=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    expected = "needs huggingface_hub, which is not installed; install it with: pip install 'sincere\\[export\\]'"
    with pytest.raises(MissingPackageError, match=f"^save_pretrained {expected}$"):
        sincere.load(run).save_pretrained("anywhere")
    with pytest.raises(MissingPackageError, match=f"^from_pretrained {expected}$"):
        sincere.Model.from_pretrained("anywhere")
