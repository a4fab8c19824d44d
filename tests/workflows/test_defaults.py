"""What is left open is chosen for the data and the encoder: the recipe of `small`, or the paper's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import conv2d

from sincere.data.catalog import load_dataset
from sincere.models.embedding import save_model
from sincere.settings.requests import CompareRequest, RunSettings, TrainRequest
from sincere.workflows.assembly import initial_model
from sincere.workflows.defaults import resolve

RECIPE = {"head": "linear", "augmentation": "shifts", "schedule": "linear", "optimizer": "muon"}


def resolved(folder: Path, *, size: int, n_classes: int = 4, n: int = 2400, **settings: Any) -> dict[str, Any]:
    path = folder / "images.npz"
    images, labels = np.zeros((n, size, size, 3), dtype=np.uint8), np.arange(n) % n_classes
    images[..., 0, 0, 0] = np.arange(n) % 256
    np.savez(path, train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    return _resolve(TrainRequest.make(data=path, **settings).run_settings(), path)


def _resolve(settings: RunSettings, path: Path) -> dict[str, Any]:
    return resolve(settings, load_dataset(path), torch.device("cpu")).flat()


def test_the_recipe_of_small(tmp_path: Path) -> None:
    found = resolved(tmp_path, size=32)
    assert {name: found[name] for name in RECIPE} == RECIPE
    assert (found["batch_size"], found["n_views"], found["unaugmented"]) == (512, 1, 0.15)


@pytest.mark.parametrize("changes", [{"n_classes": 100}, {"loss": "infonce"}, {"n_views": 2}])
def test_two_views_where_one_has_no_positives(tmp_path: Path, changes: dict[str, Any]) -> None:
    found = resolved(tmp_path, size=32, **changes)
    assert (found["batch_size"], found["n_views"]) == (256, 2), "as many embeddings as with one view"
    assert found["unaugmented"] == 0, "views of an image would be the same"


@pytest.mark.parametrize("changes", [{"size": 16}, {"size": 32, "encoder": "resnet18"}])
def test_others_keep_the_papers(tmp_path: Path, changes: dict[str, Any]) -> None:
    found = resolved(tmp_path, **changes)
    assert (found["head"], found["augmentation"], found["schedule"]) == ("mlp", "paper", "cosine")
    assert found["unaugmented"] == 0
    assert (found["batch_size"], found["n_views"]) == (512, 2)


def test_what_is_set_stays(tmp_path: Path) -> None:
    own: dict[str, Any] = {"head": "mlp", "augmentation": "light", "schedule": "cosine", "n_views": 3, "batch_size": 96}
    own |= {"unaugmented": 0.3}
    found = resolved(tmp_path, size=32, **own)
    assert {name: found[name] for name in own} == own


def test_all_losses_of_a_comparison_have_as_many_views(tmp_path: Path) -> None:
    resolved(tmp_path, size=32)
    path = tmp_path / "images.npz"
    for losses, n_views in ((("sincere", "supcon"), 1), (("sincere", "infonce"), 2)):
        request = CompareRequest.make(data=path, losses=losses)
        runs = [request.run(loss, 0, resume=False).run_settings() for loss in losses]
        assert [_resolve(run, path)["n_views"] for run in runs] == [n_views] * 2


def test_the_stem_is_whitened_by_the_training_images_unless_weights_are_given(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (64, 20, 20, 3), dtype=np.uint8), np.arange(64) % 2
    path = tmp_path / "images.npz"
    np.savez(path, train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    data = load_dataset(path)
    settings = resolve(TrainRequest.make(data=path).run_settings(), data, torch.device("cpu"))
    model = initial_model(settings, data)
    prepared = model.preparation(data.train.items.gather(data.train.positions))
    n = len(model.encoder.stem[0].weight) // 2
    outputs = conv2d(prepared, model.encoder.stem[0].weight[:n], stride=2).transpose(0, 1).flatten(1)
    torch.testing.assert_close(outputs @ outputs.T / outputs.shape[1], torch.eye(n), atol=0.01, rtol=0)

    with torch.no_grad():
        model.encoder.stem[0].weight.mul_(2)
    save_model(model, tmp_path)
    request = TrainRequest.make(data=path, weights=tmp_path / "model.safetensors", encoder="small")
    again = initial_model(resolve(request.run_settings(), data, torch.device("cpu")), data)
    assert torch.equal(again.encoder.stem[0].weight, model.encoder.stem[0].weight)
