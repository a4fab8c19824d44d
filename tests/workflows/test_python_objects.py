"""Python objects in the place of names: they are used, named in config.toml, and needed again to resume."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import sincere
from sincere.catalog import AUGMENTATIONS, ENCODERS
from sincere.data.catalog import DATASETS
from sincere.errors import DataError, InputTypeError, InputValueError
from sincere.loss_catalog import LOSSES, loss_title
from sincere.records.config import read_config
from sincere.workflows.python_objects import object_name
from sincere.workflows.run_folder import RunFolder
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
    said = r"note: given in Python, so that only their names can be stored: python:arrays@\w{12}, python:Encoder@"
    assert re.search(said, capsys.readouterr().err)
    assert all(torch.equal(value, before[name]) for name, value in given["encoder"].state_dict().items())
    stored = read_config(tmp_path / "whole")
    assert re.fullmatch(r"python:arrays@\w{12}", stored["data"])
    assert stored["loss"] == object_name("loss", twice_sincere)
    assert stored["encoder"] == object_name("encoder", given["encoder"])
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
    with pytest.raises(DataError, match=r"its run has loss = 'python:twice_sincere@\w+', not 'python:lambda@\w+'"):
        sincere.train(**{**given, **resumed, "loss": lambda z, y: sincere.sincere_loss(z, y)})
    with pytest.raises(DataError, match=r"data: python:arrays@\w+ was given in Python; pass it again, as data="):
        sincere.train(**{name: value for name, value in given.items() if name != "data"}, **resumed)
    changed = {**arrays, "train_images": arrays["train_images"] // 2}
    with pytest.raises(DataError, match=r"its checkpoint has data \(contents\) = "):
        sincere.train(**{**given, **resumed, "data": changed})


def test_the_model_loads_with_a_module_like_the_one_it_was_given(arrays: Arrays, tmp_path: Path) -> None:
    sincere.train(out=tmp_path / "run", **objects(arrays), **QUICK)
    images = torch.from_numpy(arrays["test_images"]).permute(0, 3, 1, 2)
    model = sincere.load(tmp_path / "run", encoder=Encoder())
    assert torch.equal(
        model.network.encoder.convolution.weight, weights(tmp_path / "run")["encoder.convolution.weight"]
    )
    assert model.embed(images).shape == (30, 8)
    with pytest.raises(InputValueError, match=r"encoder was given in Python and must be given again"):
        sincere.load(tmp_path / "run")
    with pytest.raises(DataError, match=r"does not fit model\.json"):
        sincere.load(tmp_path / "run", encoder=Encoder(width=9))
    results = sincere.evaluate(tmp_path / "run", data=arrays, encoder=Encoder(), quiet=True)
    assert results.rows[0].loss == object_name("loss", twice_sincere)
    assert "twice_sincere" in (tmp_path / "run" / "report.html").read_text()
    transferred = sincere.transfer(tmp_path / "run", arrays, encoder=Encoder(), quiet=True, report=False)
    assert transferred.rows[0].metrics["knn1"] == results.rows[0].metrics["knn1"]


def test_a_comparison_of_losses_of_the_callers_is_not_stale(arrays: Arrays, tmp_path: Path) -> None:
    options: dict[str, Any] = {**QUICK, "epochs": 1, "losses": ["sincere", twice_sincere], "out": tmp_path / "out"}
    results = sincere.compare(data=arrays, **options)
    assert [row.loss for row in results.rows] == ["sincere", object_name("loss", twice_sincere)]
    changed = {**arrays, "test_images": arrays["test_images"][::-1], "test_labels": arrays["test_labels"][::-1]}
    with pytest.raises(DataError, match=r"was trained on other data than python:arrays@\w+ holds now"):
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
    assert read_config(tmp_path / "dataset")["data"].startswith("python:Pairs@")
    named = [tuple(part) for part in parts]
    sincere.train(data=(named[0], named[1]), out=tmp_path / "pairs", **QUICK)
    assert same_weights(tmp_path / "arrays", tmp_path / "pairs")
    assert sincere.load_dataset(arrays).digest == sincere.load_dataset((named[0], named[1])).digest


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


class Proxies(nn.Module):
    """A loss with weights of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.proxies = nn.Parameter(torch.zeros(3, 8))

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return (embeddings.flatten(0, 1) @ self.proxies.T).mean()


class Locked(nn.Module):
    """An encoder that cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


_NO_COPY = r"encoder: must be an object that copy\.deepcopy can copy \(cannot pickle .*; got Locked"


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        (
            {"encoder": Returns4D()},
            InputValueError,
            r"model: encoder python:Returns4D@\w+ must return floating-point features of shape \(2, d\) here; got tor",
        ),
        (
            {"encoder": nn.Sequential(nn.Flatten(), nn.Linear(5, 4))},
            InputValueError,
            r"model: encoder python:Sequential@\w+ must take images of shape \(2, 1, 8, 8\); got .*mat1 and mat2",
        ),
        ({"encoder": nn.LazyLinear(4)}, InputTypeError, "encoder: weights must be initialised; call the module once"),
        ({"encoder": Locked()}, InputTypeError, _NO_COPY),
        ({"encoder": 3}, InputTypeError, "encoder: must be a name or an nn.Module; got int"),
        ({"encoder": nn.Flatten(), "head": "none"}, InputValueError, "train: the model has no weights that can be tr"),
        ({"loss": 3}, InputTypeError, "loss: must be a name or a callable; got int"),
        ({"loss": lambda z, y: z}, InputTypeError, r"train: loss python:lambda@\w+ must return one floating-point"),
        ({"loss": lambda z, y: z.detach().sum()}, InputTypeError, r"train: loss python:lambda@\w+ must be different"),
        (
            {"loss": lambda z: z},
            InputTypeError,
            r"loss: must be a callable that takes \(embeddings, labels\); got lambda\(z\)",
        ),
        ({"loss": Proxies()}, InputTypeError, "loss: must have no weights to train, because only those of the model"),
        ({"augmentation": lambda x: x[:, :, :4]}, InputValueError, "views: augmentation must return a tensor of shape"),
        ({"augmentation": lambda x: x > 3}, InputValueError, "views: augmentation must return uint8, or floating-poi"),
        (
            {"augmentation": lambda x: x.float()},
            InputValueError,
            r"train: augmentation python:lambda@\w+ must return uint8, or floating-point values in \[0, 1\]; got val",
        ),
        ({"augmentation": lambda x: x / 255 - torch.inf}, InputValueError, "train: augmentation python:lambda@"),
        ({"data": 3}, InputTypeError, "data: must be a name, a path, arrays by the names of an .npz file, "),
        ({"data": torch.utils.data.TensorDataset}, InputTypeError, "data: must be a name, a path, arrays by the names"),
        (
            {"data": (np.zeros((4, 3)), [0.5, 1, 0, 1])},
            DataError,
            "arrays: labels must be integers or strings",
        ),
        (
            {"data": (np.zeros((2, 3)), np.eye(2))},
            DataError,
            "arrays: no label has two samples to be split in two parts; add more, or add test_features",
        ),
        ({"data": ([[1, 2], [3]], [0, 1])}, DataError, "arrays: samples must be an array, whose rows have one shape"),
        ({"data": {"train_images": np.zeros((2, 8, 8))}}, DataError, "arrays: array 'train_labels' is missing"),
    ],
)
def test_bad_objects(
    settings: dict[str, Any], error: type[Exception], message: str, arrays: Arrays, tmp_path: Path
) -> None:
    with pytest.raises(error, match=f"^{message}"):
        sincere.train(**{"data": arrays, "out": tmp_path / "run", **QUICK, **settings})
    assert not (tmp_path / "run" / "config.toml").exists()
    assert not [name for table in (DATASETS, ENCODERS, LOSSES, AUGMENTATIONS) for name in table if "python:" in name]


def test_a_list_of_losses_is_needed(arrays: Arrays) -> None:
    with pytest.raises(InputTypeError, match=r"^compare: losses must be a list of names and callables; got function"):
        sincere.compare(data=arrays, losses=twice_sincere, **QUICK)


def test_a_loss_keeps_its_state_and_resumes(arrays: Arrays, tmp_path: Path) -> None:
    """A copy of it is used, so that the same object still has the same fingerprint afterwards."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("n_calls", torch.zeros(1))

        def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
            self.n_calls += 1
            return sincere.sincere_loss(embeddings, labels)

    loss = Counting()
    sincere.train(data=arrays, loss=loss, out=tmp_path / "run", **QUICK)
    assert loss.n_calls.item() == 0
    sincere.train(data=arrays, loss=loss, out=tmp_path / "run", resume=True, **QUICK)


def test_a_finished_run_does_not_resume_with_other_data(arrays: Arrays, tmp_path: Path) -> None:
    sincere.train(data=arrays, out=tmp_path / "run", **QUICK)
    changed = {**arrays, "train_images": 255 - arrays["train_images"]}
    with pytest.raises(DataError, match=r"was trained on other data than python:arrays@\w+ holds now"):
        sincere.train(data=changed, out=tmp_path / "run", resume=True, **QUICK)


def test_layers_that_the_caller_has_frozen_stay_as_they_are(arrays: Arrays, tmp_path: Path) -> None:
    encoder = nn.Sequential(Encoder(), nn.Linear(8, 8))
    encoder[0].requires_grad_(False)
    sincere.train(data=arrays, encoder=encoder, out=tmp_path / "run", **QUICK)
    trained = weights(tmp_path / "run")
    assert torch.equal(trained["encoder.0.convolution.weight"], encoder[0].convolution.weight)
    assert not torch.equal(trained["encoder.1.weight"], encoder[1].weight)


def test_losses_of_one_name_are_told_apart(arrays: Arrays, tmp_path: Path) -> None:
    def scaled(factor: float) -> Callable[[Tensor, Tensor], Tensor]:
        def loss(z: Tensor, y: Tensor) -> Tensor:
            return factor * sincere.sincere_loss(z, y)

        return loss

    results = sincere.compare(
        data=arrays, losses=[scaled(1.0), scaled(3.0)], out=tmp_path / "out", **{**QUICK, "epochs": 1}
    )
    titles = [loss_title(row.loss) for row in results.rows]
    assert len(set(titles)) == 2
    assert all(re.fullmatch(r"loss-\w{4}", title) for title in titles)
    assert results.rows[0].train_loss != results.rows[1].train_loss


def test_calls_in_threads_do_not_mix(arrays: Arrays, tmp_path: Path) -> None:
    """The same loss in two threads, of which one ends first, and different data under the same kind of name."""
    few = {name: array[: len(array) // 2] for name, array in arrays.items() if name != "class_names"}
    given = {"long": {"data": arrays, "epochs": 6}, "short": {"data": few, "epochs": 1}}

    def run(name: str) -> str:
        options: dict[str, Any] = {**QUICK, **given[name]}
        folder = sincere.train(loss=twice_sincere, out=tmp_path / name, **options).folder
        return str((RunFolder(folder).summary() or {})["data"])

    with ThreadPoolExecutor(2) as pool:
        digests = dict(zip(given, pool.map(run, given), strict=True))
    assert digests == {name: sincere.load_dataset(of["data"]).digest for name, of in given.items()}
    assert not [name for name in LOSSES if "python:" in name]


def test_an_augmentation_with_global_random_numbers_is_reproducible(arrays: Arrays, tmp_path: Path) -> None:
    """Also where the network draws random numbers, and where micro-batches need the same views twice."""

    def noisy(images: Tensor) -> Tensor:
        images = images.div_(2, rounding_mode="floor")  # in place: the next view starts from the image again
        return images / 255 * float(np.random.uniform(0.5, 1)) * random.uniform(0.5, 1) * torch.rand(images.shape)

    torch.manual_seed(0)
    encoder = nn.Sequential(Encoder(), nn.Dropout(0.5))
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    settings: dict[str, Any] = {"data": arrays, "augmentation": noisy, "encoder": encoder, **QUICK}
    for name in ("a", "b"):
        sincere.train(out=tmp_path / name, **settings)
    assert same_weights(tmp_path / "a", tmp_path / "b")
    sincere.train(out=tmp_path / "small", **settings, micro_batch=4)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])
    assert random.getstate() == before[2]


def test_bad_datasets(tmp_path: Path) -> None:
    pixels = [np.zeros((8, 8, 3), dtype=np.uint8), np.zeros((8, 9, 3), dtype=np.uint8)]
    message = r"^Pairs: sample 1 must have shape \(8, 8, 3\), as sample 0; got \(8, 9, 3\)\. Add a transform"
    with pytest.raises(DataError, match=message):
        sincere.train(data=Pairs(pixels, [0, 1], lambda image: image), out=tmp_path / "run")
    only_images: Any = torch.utils.data.TensorDataset(torch.zeros(4, 3))
    with pytest.raises(DataError, match=r"^TensorDataset: sample 0 must be a pair of an image and a label; got tuple"):
        sincere.train(data=only_images, out=tmp_path / "run")
