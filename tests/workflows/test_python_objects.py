"""Python objects in the place of names: they are used, named in config.toml, and needed again to resume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import sincere
from sincere.catalog import AUGMENTATIONS, ENCODERS, LOSSES
from sincere.data.catalog import DATASETS
from sincere.errors import DataError, InputTypeError, InputValueError
from sincere.records.config import read_config
from sincere.workflows.python_objects import object_name
from tests.workflows.conftest import QUICK
from tests.workflows.trained_runs import same_weights, stopped_after, weights

Arrays = dict[str, Any]


class Encoder(nn.Module):
    """A small encoder of the caller's."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, width, 3)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.convolution(images).relu().mean(dim=(2, 3))
        return features


class Pairs(torch.utils.data.Dataset[tuple[Any, int]]):
    """A torch Dataset of (image, label)."""

    def __init__(self, images: Any, labels: Any, convert: Callable[[Any], Any]) -> None:
        self.images, self.labels, self.convert = images, labels, convert

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.convert(self.images[index]), self.labels[index]


def twice_sincere(embeddings: Tensor, labels: Tensor) -> Tensor:
    """A loss of the caller's."""
    return 2 * sincere.sincere_loss(embeddings, labels)


def brighter(images: Tensor) -> Tensor:
    """An augmentation of the caller's, with torch's global random numbers."""
    return (images / 255 + 0.1 * torch.rand(len(images), 1, 1, 1)).clamp(0, 1)


@pytest.fixture
def arrays(data: str) -> Arrays:
    return dict(np.load(data))


def objects(arrays: Arrays) -> dict[str, Any]:
    torch.manual_seed(0)
    return {"data": arrays, "encoder": Encoder(), "loss": twice_sincere, "augmentation": brighter}


def test_objects_of_every_kind_train_and_resume_to_the_same_weights(
    arrays: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = objects(arrays)
    before = {name: value.clone() for name, value in given["encoder"].state_dict().items()}
    sincere.train(out=tmp_path / "whole", **given, **QUICK)
    assert "note: given in Python, so that only their names can be stored: python:arrays, python:Encoder@" in (
        capsys.readouterr().err
    )
    assert all(torch.equal(value, before[name]) for name, value in given["encoder"].state_dict().items())
    stored = read_config(tmp_path / "whole")
    assert stored["data"] == "python:arrays"
    assert stored["loss"] == object_name(twice_sincere)
    assert stored["encoder"] == object_name(given["encoder"])
    assert stored["optimizer"] == "adamw"
    stopped_after(5, monkeypatch, out=tmp_path / "parts", **given, **QUICK)
    sincere.train(out=tmp_path / "parts", resume=True, **given, **QUICK)
    assert same_weights(tmp_path / "whole", tmp_path / "parts")
    assert not [name for table in (DATASETS, ENCODERS, LOSSES, AUGMENTATIONS) for name in table if "python:" in name]


def test_a_run_does_not_resume_with_other_objects(
    arrays: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = objects(arrays)
    stopped_after(5, monkeypatch, out=tmp_path / "run", **given, **QUICK)
    resumed: dict[str, Any] = {"out": tmp_path / "run", "resume": True, **QUICK}
    with pytest.raises(InputValueError, match=r"encoder was given in Python and must be given again, as encoder=; got"):
        sincere.train(**resumed)
    with pytest.raises(DataError, match=r"its run has encoder = 'python:Encoder@\w+', not 'python:Encoder@\w+'"):
        sincere.train(**{**given, **resumed, "encoder": Encoder()})
    with pytest.raises(DataError, match=r"its run has loss = 'python:twice_sincere@\w+', not 'python:<lambda>@\w+'"):
        sincere.train(**{**given, **resumed, "loss": lambda z, y: sincere.sincere_loss(z, y)})
    with pytest.raises(DataError, match=r"data: python:arrays was given in Python; pass it again, as data="):
        sincere.train(**{name: value for name, value in given.items() if name != "data"}, **resumed)
    changed = {**arrays, "train_images": arrays["train_images"] // 2}
    with pytest.raises(DataError, match=r"its checkpoint has data \(contents\) = "):
        sincere.train(**{**given, **resumed, "data": changed})


def test_the_model_loads_with_a_module_like_the_one_it_was_given(arrays: Arrays, tmp_path: Path) -> None:
    sincere.train(out=tmp_path / "run", **objects(arrays), **QUICK)
    images = torch.from_numpy(arrays["test_images"]).permute(0, 3, 1, 2)
    model = sincere.load(tmp_path / "run", encoder=Encoder())
    assert torch.equal(model.encoder.convolution.weight, weights(tmp_path / "run")["encoder.convolution.weight"])
    assert model.embed(images).shape == (30, 8)
    with pytest.raises(InputValueError, match=r"encoder was given in Python and must be given again"):
        sincere.load(tmp_path / "run")
    with pytest.raises(DataError, match=r"does not fit model\.json"):
        sincere.load(tmp_path / "run", encoder=Encoder(width=9))
    results = sincere.evaluate(tmp_path / "run", data=arrays, encoder=Encoder(), quiet=True)
    assert results.rows[0].loss == object_name(twice_sincere)
    assert "twice_sincere" in (tmp_path / "run" / "report.html").read_text()
    transferred = sincere.transfer(tmp_path / "run", arrays, encoder=Encoder(), quiet=True, report=False)
    assert transferred.rows[0].metrics["knn1"] == results.rows[0].metrics["knn1"]


def test_a_comparison_of_losses_of_the_callers_is_not_stale(arrays: Arrays, tmp_path: Path) -> None:
    options: dict[str, Any] = {**QUICK, "epochs": 1, "losses": ["sincere", twice_sincere], "out": tmp_path / "out"}
    results = sincere.compare(data=arrays, **options)
    assert [row.loss for row in results.rows] == ["sincere", object_name(twice_sincere)]
    changed = {**arrays, "test_images": arrays["test_images"][::-1], "test_labels": arrays["test_labels"][::-1]}
    with pytest.raises(DataError, match="was trained on other data than python:arrays holds now"):
        sincere.compare(data=changed, **options)


def test_forms_of_data(arrays: Arrays, tmp_path: Path) -> None:
    """All of them give the same weights as the file."""
    images, labels = arrays["train_images"], arrays["train_labels"]
    parts = [(arrays[f"{part}_images"], arrays[f"{part}_labels"]) for part in ("train", "test")]
    forms: dict[str, Any] = {
        "arrays": arrays,
        "tensors": {name: torch.from_numpy(array) for name, array in arrays.items()},
        "pictures": tuple(Pairs(x, y, lambda image: Image.fromarray(image[..., 0])) for x, y in parts),
        "float tensors": tuple(Pairs(x, y, lambda i: torch.from_numpy(i).permute(2, 0, 1) / 255) for x, y in parts),
    }
    for name, form in forms.items():
        sincere.train(data=form, out=tmp_path / name, **QUICK)
        assert same_weights(tmp_path / "arrays", tmp_path / name), name
    split = sincere.train(data=(images, labels), out=tmp_path / "pair", **QUICK)
    dataset = sincere.train(data=Pairs(images, labels, lambda image: image), out=tmp_path / "dataset", **QUICK)
    assert same_weights(split.folder, dataset.folder)
    assert read_config(tmp_path / "dataset")["data"] == "python:Pairs"


def test_a_frozen_module_of_the_callers(arrays: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINCERE_HOME", str(tmp_path / "home"))
    encoder = Encoder()
    sincere.train(data=arrays, encoder=encoder, freeze=True, size=8, out=tmp_path / "run", **QUICK)
    stored = weights(tmp_path / "run")["encoder.convolution.weight"]
    assert torch.equal(stored, encoder.convolution.weight)


def test_a_generator_makes_an_augmentation_reproducible(arrays: Arrays, tmp_path: Path) -> None:
    def noisy(images: Tensor, generator: torch.Generator) -> Tensor:
        return images / 255 * torch.rand(images.shape, generator=generator)

    for name in ("a", "b"):
        sincere.train(data=arrays, augmentation=noisy, out=tmp_path / name, **QUICK)
    assert same_weights(tmp_path / "a", tmp_path / "b")


class Returns4D(nn.Module):
    """An encoder that forgets to pool."""

    def forward(self, images: Tensor) -> Tensor:
        return images


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        (
            {"encoder": Returns4D()},
            InputValueError,
            r"model: encoder python:Returns4D@\w+ must return features",
        ),
        ({"encoder": 3}, InputTypeError, "train: encoder must be a name or an nn.Module; got int"),
        ({"loss": 3}, InputTypeError, "train: loss must be a name or a callable; got int"),
        ({"loss": lambda z, y: z}, InputTypeError, r"train: loss python:<lambda>@\w+ must return one floating-point"),
        ({"augmentation": lambda x: x[:, :, :4]}, InputValueError, "views: augmentation must return a tensor of shape"),
        ({"data": 3}, InputTypeError, "data: must be a name, a path, arrays by the names of an .npz file, "),
        (
            {"data": (np.zeros((4, 3)), [0.5, 1, 0, 1])},
            DataError,
            "arrays: labels must be integers or strings",
        ),
        ({"data": {"train_images": np.zeros((2, 8, 8))}}, DataError, "arrays: array 'train_labels' is missing"),
    ],
)
def test_bad_objects(
    settings: dict[str, Any], error: type[Exception], message: str, arrays: Arrays, tmp_path: Path
) -> None:
    with pytest.raises(error, match=f"^{message}"):
        sincere.train(**{"data": arrays, "out": tmp_path / "run", **QUICK, **settings})


def test_bad_datasets(tmp_path: Path) -> None:
    pixels = [np.zeros((8, 8, 3), dtype=np.uint8), np.zeros((8, 9, 3), dtype=np.uint8)]
    message = r"^Pairs: sample 1 must have shape \(8, 8, 3\), as sample 0; got \(8, 9, 3\)\. Add a transform"
    with pytest.raises(DataError, match=message):
        sincere.train(data=Pairs(pixels, [0, 1], lambda image: image), out=tmp_path / "run")
    only_images: Any = torch.utils.data.TensorDataset(torch.zeros(4, 3))
    with pytest.raises(DataError, match=r"^TensorDataset: sample 0 must be a pair of an image and a label; got tuple"):
        sincere.train(data=only_images, out=tmp_path / "run")


def test_names_tell_objects_apart_and_are_the_same_in_every_process() -> None:
    def scaled(factor: float) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda z, y: factor * sincere.sincere_loss(z, y)

    assert object_name(scaled(1.0)) == object_name(scaled(1.0)) != object_name(scaled(2.0))
    torch.manual_seed(0)
    one = Encoder()
    torch.manual_seed(0)
    assert object_name(one) == object_name(Encoder())
    assert object_name(sincere.SINCERELoss(0.1)) != object_name(sincere.SINCERELoss(0.2))
