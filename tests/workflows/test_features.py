"""Ready-made features are trained on, compared, evaluated, transferred to, resumed and reported like images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sincere
from sincere.data.catalog import load_source
from sincere.data.dataset import Dataset
from sincere.data.feature_storage import Features
from sincere.data.load_options import LoadOptions
from sincere.errors import DataError, InputValueError
from sincere.messages import Messages
from sincere.models.embedding import load_model
from sincere.records.arrays import EmbeddingMap
from sincere.records.results import Results
from sincere.settings.evaluation import EvaluationSettings
from sincere.workflows.embedded_data import embed_data
from sincere.workflows.measure import measure
from tests.workflows.conftest import QUICK
from tests.workflows.trained_runs import same_weights, stopped_after

MEASURED: dict[str, Any] = {"resamples": 100, "quiet": True}


def clusters(path: Path, *, width: int = 6, seed: int = 0, **more: Any) -> str:
    """Write features of three classes that overlap."""
    generator = np.random.default_rng(seed)
    arrays = {}
    for part, n in (("train", 60), ("test", 30)):
        labels = np.arange(n) % 3
        centres = np.array([-3.0, 0.0, 3.0])[labels][:, None]
        arrays[f"{part}_features"] = (centres + generator.normal(size=(n, width))).astype(np.float32)
        arrays[f"{part}_labels"] = labels
    np.savez(path, **arrays, **more)
    return str(path)


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> str:
    texts = np.array([f"notes/{i}.txt" for i in range(30)])
    return clusters(tmp_path_factory.mktemp("features") / "clusters.npz", test_texts=texts)


@pytest.fixture(scope="module")
def trained(features: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    sincere.train(data=features, out=folder, **QUICK)
    return folder


def test_train_and_evaluate(features: str, trained: Path) -> None:
    results = sincere.evaluate(trained, **MEASURED)
    assert (results.data.noun, results.data.n_test) == ("samples", 30)
    assert results.metrics.keys() >= {"margin", "knn1", "linear"}
    model = sincere.load(trained)
    assert (model.spec.encoder, model.spec.n_features, model.spec.frozen) == ("none", 6, True)
    inputs = torch.zeros(2, 6)
    assert model.embed(inputs).shape == (2, 8)
    found = EmbeddingMap.read(trained, results.rows[0].files["map.npz"])
    assert found.thumbnails is None
    assert found.texts is not None
    assert found.texts.tolist() == [f"notes/{i}.txt" for i in found.ids]
    page = (trained / "report.html").read_text()
    assert "Map of the test samples" in page
    assert "notes/17.txt" in page
    assert "data:image" not in page


def test_resumed_it_ends_the_same(features: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"data": features, "validation": 0.2, "validate_every": 2, **QUICK, "batch_size": 16}
    sincere.train(out=tmp_path / "whole", **options)
    stopped_after(5, monkeypatch, out=tmp_path / "parts", **options)
    sincere.train(resume=True, out=tmp_path / "parts", quiet=True)
    assert same_weights(tmp_path / "whole", tmp_path / "parts")


def test_changed_features_are_other_data(features: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped_after(5, monkeypatch, data=features, out=tmp_path / "run", **QUICK)
    other = clusters(tmp_path / "other.npz", seed=1)
    with pytest.raises(DataError, match=r"its checkpoint has data \(contents\) = "):
        sincere.train(resume=True, out=tmp_path / "run", data=other, quiet=True)


def test_compare(features: str, tmp_path: Path) -> None:
    options = {"data": features, "losses": ("sincere", "supcon"), "out": tmp_path / "c", **QUICK, **MEASURED}
    first = sincere.compare(**options)
    assert (first.kind, len(first.rows), first.data.noun) == ("comparison", 3, "samples")
    assert "confidence intervals over test samples" in (tmp_path / "c" / "report.html").read_text()
    before = (tmp_path / "c" / "runs" / "supcon-0" / "model.safetensors").stat().st_mtime_ns
    assert sincere.compare(**options) == first, "the same command does not repeat it"
    assert (tmp_path / "c" / "runs" / "supcon-0" / "model.safetensors").stat().st_mtime_ns == before


def test_transfer_to_other_features(trained: Path, tmp_path: Path) -> None:
    other = clusters(tmp_path / "other.npz", seed=1)
    results = sincere.transfer(trained, other, **MEASURED)
    assert (results.kind, results.data.name) == ("transfer", "other")
    assert Results.read(trained / "transfer" / "other") == results


def test_data_that_a_model_does_not_take(
    data: str, finished: Path, features: str, trained: Path, tmp_path: Path
) -> None:
    wide = clusters(tmp_path / "wide.npz", width=7)
    images = f"{trained}: was trained on features, and blobs holds images; "
    images += "compute their features as those of its training data were"
    width = f"{trained}: was trained on 6 features, and wide has 7; both must be of the same kind"
    ready_made = f"{finished}: was trained on images, and clusters holds features; "
    ready_made += "give the images themselves: what made the features is not known"
    for run, source, expected in ((trained, data, images), (trained, wide, width), (finished, features, ready_made)):
        for refused in (
            lambda run=run, source=source: sincere.transfer(run, source, **MEASURED),
            lambda run=run, source=source: sincere.evaluate(run, data=source, **MEASURED),
        ):
            with pytest.raises(DataError) as caught:
                refused()
            assert str(caught.value) == expected
    assert not (finished / "transfer").exists()


def test_settings_that_need_images(features: str, trained: Path, tmp_path: Path) -> None:
    with pytest.raises(InputValueError) as caught:
        sincere.train(data=features, size=8, out=tmp_path / "run", **QUICK)
    assert str(caught.value) == "train: size must not be set for features; got 8"
    probe = "probe must be fast for features, because the paper's is trained on augmented images; got paper"
    for verb, refused in {
        "evaluate": lambda: sincere.evaluate(trained, probe="paper", **MEASURED),
        "compare": lambda: sincere.compare(data=features, probe="paper", out=tmp_path / "run", **QUICK),
    }.items():
        with pytest.raises(InputValueError) as caught:
            refused()
        assert str(caught.value) == f"{verb}: {probe}"
    assert not (tmp_path / "run").exists(), "before anything is trained"


def test_features_of_images_keep_their_images(data: str, finished: Path) -> None:
    """The paper's probe and the map take the images that a frozen encoder has turned into features."""
    images, model = load_source(data, LoadOptions()), load_model(finished)
    computed = _through(model, images)
    settings = EvaluationSettings(probe="both", probe_epochs=2)
    options: dict[str, Any] = {"seed": 0, "device": torch.device("cpu"), "temperature": 0.1}
    direct, cached = (
        measure(
            model,
            data,
            settings,
            **options,
            messages=Messages(quiet=True),
            embedded=embed_data(model, data, torch.device("cpu")),
        )
        for data in (images, computed)
    )
    for name, metric in direct.measures.items():
        np.testing.assert_allclose(cached.measures[name].values, metric.values, atol=1e-4)
    thumbnails = [measured.embedding_map().thumbnails for measured in (direct, cached)]
    assert thumbnails[0] is not None
    np.testing.assert_array_equal(*thumbnails)


def _through(model: Any, images: Dataset) -> Dataset:
    parts = {}
    for name in ("train", "test"):
        part = getattr(images, name)
        with torch.no_grad():
            parts[name] = replace(part, items=Features(model.features(part.items.gather(part.positions))))
    return replace(images, **parts, origin=images)


def test_changed_texts_are_shown_without_training_again(
    features: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with np.load(features) as file:
        arrays = dict(file)
    path = tmp_path / "clusters.npz"
    np.savez(path, **arrays)
    options: dict[str, Any] = {"data": str(path), "losses": ["sincere", "supcon"], "out": tmp_path / "out", "epochs": 1}
    sincere.compare(**options)
    np.savez(path, **{**arrays, "test_texts": np.array([f"new {i}" for i in range(30)])})
    capsys.readouterr()
    sincere.compare(**options)
    printed = capsys.readouterr().out
    assert printed.count("is trained already") == 2
    page = (tmp_path / "out" / "report.html").read_text()
    assert "new 7" in page
    assert "notes/7.txt" not in page


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"encoder_lr": 0.1},
            "train: encoder_lr must not be set for ready-made features, which have no encoder; got 0.1",
        ),
        ({"freeze": False}, "train: freeze must be on for ready-made features; got off"),
        (
            {"head": "none"},
            "train: head must be mlp or linear for a frozen encoder or features, because nothing else is",
        ),
    ],
)
def test_settings_of_encoders(settings: dict[str, Any], message: str, features: str, tmp_path: Path) -> None:
    with pytest.raises(InputValueError) as caught:
        sincere.train(data=features, out=tmp_path / "run", **{**QUICK, **settings})
    assert str(caught.value).startswith(message)


def test_a_class_of_one_sample_cannot_be_held_out(tmp_path: Path) -> None:
    labels = np.array([0, 0, 0, 1, 1, 1, 2])
    data = {"train_features": np.eye(7), "train_labels": labels, "test_features": np.eye(7), "test_labels": labels}
    with pytest.raises(
        DataError, match=r"^arrays: class '2' has a single training sample, so that none can be held out"
    ):
        sincere.train(data=data, validation=0.2, out=tmp_path / "run", quiet=True)
