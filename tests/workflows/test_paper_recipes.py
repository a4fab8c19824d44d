"""Every recipe of the paper starts: two real steps and an evaluation, on made images in its data set's own format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import sincere
from sincere.recipes import RUN_RECIPES, TRANSFER_RECIPES
from sincere.records.log import METRICS, MetricsLog
from sincere.records.results import Results
from tests.data.made_sets import CIFAR10_CLASSES, MAKERS, allow_made_flowers, make_cifar, picture

BATCH = 10  # in place of the recipes' 512, for which a step of ResNet-50 takes minutes here
RUNS = [name for name, recipe in RUN_RECIPES.items() if recipe.scale == "paper"]


def make_data(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write 20 training images, or 20 of cats and dogs, in the format of a data set."""
    if name == "imagenet100":
        for number in range(BATCH):
            for part, n in (("train", 2), ("val", 1)):
                for i in range(n):
                    picture(root / "imagenet100" / part / f"n{number:08d}" / f"{i}.jpg", 20 * number)
    elif name == "cifar100":
        names = [f"thing{i:03d}" for i in range(BATCH)]
        make_cifar(root, monkeypatch, "CIFAR100", names, "fine_labels")
    else:
        n = 100 if name == "cifar2" else 20
        make_cifar(root, monkeypatch, "CIFAR10", CIFAR10_CLASSES, "labels", n=n, n_files=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_two_steps_and_an_evaluation(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = RUN_RECIPES[name]
    make_data(recipe.data, tmp_path / "sets", monkeypatch)
    run = sincere.train(
        recipe=name, data_dir=tmp_path / "sets", batch_size=BATCH, epochs=1, out=tmp_path / "run", quiet=True
    )
    (row,) = MetricsLog(tmp_path / "run" / METRICS).rows()
    stored = torch.load(next((tmp_path / "run" / "checkpoints").glob("step-*")), weights_only=True)
    assert stored["progress"]["step"] == 2
    assert (run.settings.model.encoder, run.settings.data.size) == ("resnet50", 32)
    assert np.isfinite(row["loss"])
    results = sincere.evaluate(
        run=tmp_path / "run", **recipe.evaluation | {"probe_epochs": 1, "resamples": 100}, report=False, quiet=True
    )
    assert {"margin", "knn1"} <= results.metrics.keys()
    assert ("linear_paper" in results.metrics) == (recipe.data in ("cifar10", "cifar100"))


@pytest.fixture(scope="module")
def encoder_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of `small` at 32 px, which takes images of any size, as ResNet-50 does, in less time."""
    folder = tmp_path_factory.mktemp("encoder")
    pixels = np.random.default_rng(0).integers(0, 256, (16, 32, 32, 3), dtype=np.uint8)
    labels = np.arange(16) % 2
    arrays = {"train_images": pixels, "train_labels": labels, "test_images": pixels, "test_labels": labels}
    np.savez(folder / "two.npz", **arrays)
    sincere.train(data=str(folder / "two.npz"), encoder="small", epochs=1, batch_size=8, out=folder / "run", quiet=True)
    return folder / "run"


@pytest.mark.parametrize("name", TRANSFER_RECIPES)
def test_every_transfer_starts(name: str, encoder_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = TRANSFER_RECIPES[name]
    MAKERS[recipe.data][0](tmp_path / "sets")
    allow_made_flowers(monkeypatch)
    results = sincere.transfer(
        encoder_run,
        recipe=name,
        data_dir=tmp_path / "sets",
        probe_epochs=1,
        resamples=100,
        out=tmp_path / "out",
        report=False,
        quiet=True,
    )
    assert results.data.name == recipe.data
    assert list(results.metrics) == ["linear_paper"]
    assert Results.read(tmp_path / "out").measuring["probe_weight_decay"] == recipe.settings["probe_weight_decay"]
