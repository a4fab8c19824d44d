"""Baselines and advice beside the results: class counts, small classes, overfitting, unknown data."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import load_file
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from sklearn.neighbors import KNeighborsClassifier

import sincere
from sincere.cli import main
from sincere.data.dataset import Dataset
from sincere.errors import DataError
from sincere.evaluation.model_outputs import ModelOutputs, PartOutputs
from sincere.evaluation.probe import Probe
from sincere.evaluation.unknown import SCORES
from sincere.records.arrays import PerImage
from sincere.records.estimates import Estimate
from sincere.records.results import Baseline, Results
from sincere.workflows.advice import class_sizes, no_gain_note, overfitting_note, small_classes_note
from sincere.workflows.run_folder import EMBEDDINGS, PROBES
from tests.evaluation.test_geometry import expected
from tests.workflows.conftest import QUICK, blobs


def unbalanced(path: Path) -> str:
    """Write blobs of which class 1 has few images and class 2 very few."""
    arrays = dict(np.load(blobs(path, n_train=120, n_test=60)))
    for part, kept in (("train", (40, 20, 3)), ("test", (20, 8, 2))):
        labels = arrays[f"{part}_labels"]
        chosen = np.sort(np.concatenate([np.flatnonzero(labels == c)[:n] for c, n in enumerate(kept)]))
        for name in (f"{part}_images", f"{part}_labels"):
            arrays[name] = arrays[name][chosen]
    np.savez(path, **arrays)
    return str(path)


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("advice")
    sincere.train(data=unbalanced(folder / "data.npz"), out=folder / "run", **QUICK)
    sincere.evaluate(folder / "run", quiet=True, report=False)
    return folder / "run"


def outputs(run: Path) -> ModelOutputs:
    stored = {name: torch.from_numpy(array) for name, array in load_file(run / EMBEDDINGS).items()}
    fields = ("embeddings", "features", "labels", "ids")
    parts = [PartOutputs(*(stored[f"{part}.{field}"] for field in fields)) for part in ("train", "test")]
    return ModelOutputs(*parts, (1,), {"linear": Probe.load(run / PROBES["linear"])[0]})


def test_every_metric_follows_from_the_stored_embeddings(finished: Path, tmp_path: Path) -> None:
    """Geometry, classifiers and balanced accuracy, recomputed by hand from what the evaluation has written."""
    shutil.copytree(finished, tmp_path / "run")
    row = sincere.evaluate(tmp_path / "run", quiet=True, report=False).rows[0]
    found = outputs(tmp_path / "run")
    z, y = found.train.embeddings.double().numpy(), found.train.labels.numpy()
    queries, truth = found.test.embeddings.double().numpy(), found.test.labels.numpy()
    by_hand = expected(found)
    similarities = queries @ z.T
    for name, k, temperature in (("dino", 20, 0.07),):  # there are 60 training images, so that 200 cannot vote
        nearest = np.argsort(-similarities, axis=1)[:, :k]
        weights = np.exp(np.take_along_axis(similarities, nearest, axis=1) / temperature)
        votes = np.stack([(weights * (y[nearest] == c)).sum(axis=1) for c in range(3)], axis=1)
        by_hand[name] = float((votes.argmax(axis=1) == truth).mean())
    means = np.stack([z[y == c].mean(axis=0) for c in range(3)])
    nearest_mean = (queries @ (means / np.linalg.norm(means, axis=1, keepdims=True)).T).argmax(axis=1)
    by_hand["means"] = float((nearest_mean == truth).mean())
    for name, value in by_hand.items():
        assert row.metrics[name].estimate == pytest.approx(value, rel=1e-4, abs=1e-9), name
    others = {name for name in row.metrics if not name.startswith(("margin", "knn", "linear"))}
    assert others == by_hand.keys()


def test_baselines_are_those_of_scikit_learn(evaluated: Path) -> None:
    results = Results.read(evaluated)
    data = sincere.load_dataset(evaluated.parent / "data.npz")
    majority, pixels = results.baselines
    assert majority.name == "majority class"
    assert majority.accuracy.estimate == pytest.approx(20 / 30)
    x, queries = (part.items.gather(part.positions).flatten(1).double().numpy() for part in (data.train, data.test))
    nearest = KNeighborsClassifier(1).fit(x, data.train.labels).predict(queries)
    assert pixels.name == "raw pixels, 1-NN"
    assert pixels.accuracy.estimate == pytest.approx((nearest == data.test.labels).mean())
    assert pixels.accuracy.low <= pixels.accuracy.estimate <= pixels.accuracy.high


def test_counts_balanced_accuracy_and_training_accuracy(evaluated: Path) -> None:
    results = Results.read(evaluated)
    [row] = results.rows
    assert [(c.n_train, c.n_test) for c in row.classes] == [(40, 20), (20, 8), (3, 2)]
    found = outputs(evaluated)
    predictions = found.train.labels[(found.test.embeddings @ found.train.embeddings.T).argmax(dim=1)]
    by_hand = balanced_accuracy_score(found.test.labels, predictions)
    assert row.metrics["knn1_balanced"].estimate == pytest.approx(by_hand)
    assert results.metrics["knn1_balanced"].group == "main"  # classes differ much in size
    similarities = (found.train.embeddings @ found.train.embeddings.T).fill_diagonal_(-2)
    own = found.train.labels[similarities.argmax(dim=1)] == found.train.labels
    assert row.train_accuracy == pytest.approx(float(own.double().mean()))


def test_small_classes_are_named(evaluated: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    notes = Results.read(evaluated).notes
    assert any(note.startswith("1 class has fewer than 5 training images: 2; ") for note in notes)
    source = str(evaluated.parent / "data.npz")
    assert main(["train", "--data", source, "--epochs", "1", "--batch-size", "20", "--out", str(tmp_path / "run")]) == 0
    captured = capsys.readouterr()
    assert "3 classes of 3 to 40 training images" in captured.out
    assert "1 class has fewer than 5 training images: 2;" in captured.out + captured.err


def named(n: int, sizes: tuple[int, ...]) -> Dataset:
    features = torch.randn(sum(sizes), n)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return sincere.load_dataset((features, labels))


def test_wording_of_class_sizes_and_advice() -> None:
    data = named(4, (8,) * 8)
    assert class_sizes(data).startswith("8 classes of ")
    assert class_sizes(data).endswith("training samples")
    few = named(4, (3,) * 7)
    test_few = replace(data, test=data.test.subset(np.flatnonzero(data.test.labels > 0)))
    assert "fewer than 5 test samples: 0, 1" in str(small_classes_note(test_few))
    assert "7 classes have fewer than 5 training samples: 0, 1, 2, 3, 4 and 2 more" in str(small_classes_note(few))
    assert small_classes_note(named(4, (40, 40))) is None
    clear, wide = Estimate(0.865, 0.85, 0.88), Estimate(0.865, 0.6, 1.0)
    assert overfitting_note("SINCERE", 0.9, clear, data, frozen=False) is None
    assert overfitting_note("SINCERE", 0.997, wide, data, frozen=False) is None  # too few test images to tell
    advice = str(overfitting_note("SINCERE", 0.997, clear, data, frozen=False))
    assert advice.startswith("SINCERE: 1-NN accuracy is 99.7% on training samples and 86.5% on test samples")
    assert "--augmentation" not in advice  # features have none
    photos = sincere.load_dataset("digits")
    assert "--augmentation" in str(overfitting_note("SINCERE", 0.997, clear, photos, frozen=False))
    assert "--augmentation" not in str(overfitting_note("SINCERE", 0.997, clear, photos, frozen=True))


def test_a_model_that_is_no_better_than_without_training() -> None:
    accuracies = {"majority class": 0.25, "raw features, 1-NN": 0.9}
    baselines = [Baseline(name=n, about="", accuracy=Estimate(x, x, x)) for n, x in accuracies.items()]
    note = str(no_gain_note("SINCERE", Estimate(0.9, 0.8, 1.0), baselines, "images"))
    assert note.startswith(
        "SINCERE: 1-NN accuracy is 90.0%, no higher than without training (raw features, 1-NN: 90.0%)"
    )
    assert no_gain_note("SINCERE", Estimate(0.91, 0.8, 1.0), baselines, "images") is None
    assert no_gain_note("SINCERE", Estimate(0.1, 0.0, 0.2), [], "images") is None


def test_data_that_the_model_never_saw_are_not_overfitted(finished: Path, tmp_path: Path) -> None:
    """Every image twice, with random labels: neighbours know the training labels, and nothing of those of the test."""
    generator = np.random.default_rng(0)
    images, labels = generator.integers(0, 256, (100, 8, 8, 1), dtype=np.uint8), generator.integers(0, 2, 100)
    arrays = {"train_images": images.repeat(2, axis=0), "train_labels": labels.repeat(2)}
    arrays |= {"test_images": 255 - images, "test_labels": generator.integers(0, 2, 100)}
    results = sincere.transfer(finished, arrays, out=tmp_path / "other", quiet=True, report=False)
    assert results.rows[0].train_accuracy == 1.0
    assert not any("overfits" in note for note in results.notes)


@pytest.fixture
def inverted(tmp_path: Path) -> str:
    """Other images: stripes, which no blob looks like."""
    arrays = dict(np.load(blobs(tmp_path / "stripes.npz")))
    for part in ("train", "test"):
        arrays[f"{part}_images"][:, ::2] = 0
        arrays[f"{part}_images"][:, 1::2] = 255
    np.savez(tmp_path / "stripes.npz", **arrays)
    return str(tmp_path / "stripes.npz")


def test_another_data_set_is_measured_as_unknown(finished: Path, tmp_path: Path, inverted: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    results = sincere.evaluate(folder, unknown_data=inverted, quiet=True, report=False)
    assert results.data.n_unknown == 30
    model, other = sincere.load(folder), dict(np.load(inverted))
    references = (torch.from_numpy(model.reference.embeddings), torch.from_numpy(model.reference.labels))
    known = torch.from_numpy(load_file(folder / EMBEDDINGS)["test.embeddings"])
    for score, method in SCORES.items():
        scores = [method(*references)(z).double().numpy() for z in (known, model.embed(other["test_images"]))]
        auroc = roc_auc_score(np.repeat([1, 0], 30), np.concatenate(scores))
        assert results.rows[0].metrics[f"auroc_{score}"].estimate == pytest.approx(auroc, abs=1e-6)
    given = sincere.evaluate(folder, unknown_data=other, quiet=True, report=False)  # arrays in place of a path
    assert given.rows[0].metrics == results.rows[0].metrics
    plain = sincere.evaluate(folder, quiet=True, report=False)
    assert not any("auroc" in name for name in plain.metrics)
    assert plain.data.unknown_digest == ""


def test_a_folder_of_images_is_measured_as_unknown(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without class folders, because classes do not matter; few of them get a note."""
    run, images = tmp_path / "run", tmp_path / "unknown"
    shutil.copytree(finished, run)
    images.mkdir()
    for i in range(7):
        pixels = np.random.default_rng(i).integers(0, 256, (11, 9, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(images / f"{i}.png")
    results = sincere.evaluate(run, unknown_data=images, quiet=True, report=False)
    assert results.data.n_unknown == 7
    assert any(note.startswith("only 7 images of unknown classes: ") for note in results.notes)
    model = sincere.load(run)
    references = torch.from_numpy(model.reference.embeddings)
    known = torch.from_numpy(load_file(run / EMBEDDINGS)["test.embeddings"])
    scores = [(z @ references.T).amax(dim=1).numpy() for z in (known, model.embed(images))]
    auroc = roc_auc_score(np.repeat([1, 0], [30, 7]), np.concatenate(scores))
    assert results.rows[0].metrics["auroc_nearest"].estimate == pytest.approx(auroc, abs=1e-6)
    names = PerImage.read(run).unknown_texts
    assert names is not None
    assert names.tolist() == [str(images / f"{i}.png") for i in range(7)]
    (images / "bad.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"bad\.png: cannot be read as an image"):
        sincere.evaluate(run, unknown_data=images, quiet=True)
    assert (
        sincere.evaluate(run, unknown_data=images, skip_bad_images=True, quiet=True, report=False).data.n_unknown == 7
    )
    named = blobs(tmp_path / "named.npz", n_test=12)
    sincere.evaluate(run, unknown_data=named, quiet=True, report=False)
    assert "classes of the same name are known (0, 1, 2)" in capsys.readouterr().err


def test_other_unknown_images_are_measured_again(data: str, tmp_path: Path, inverted: str) -> None:
    options = {**QUICK, "losses": ("sincere",), "epochs": 1, "unknown_data": inverted, "out": tmp_path / "c"}
    first = sincere.compare(data=data, **options)
    assert sincere.compare(data=data, **options) == first
    arrays = dict(np.load(inverted))
    arrays["test_images"] = 255 - arrays["test_images"][:20]
    arrays["test_labels"] = arrays["test_labels"][:20]
    np.savez(inverted, **arrays)
    again = sincere.compare(data=data, **options)
    assert again.data.n_unknown == 20
    assert again.data.unknown_digest != first.data.unknown_digest


def test_a_folder_of_unknown_images_belongs_to_a_comparison(tmp_path: Path) -> None:
    """Also beside data without files, whose own content hash says nothing of the folder."""
    images = tmp_path / "unknown"
    images.mkdir()
    for i in range(4):
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (8, 8), dtype=np.uint8)).save(images / f"{i}.png")
    features = np.random.default_rng(0).normal(size=(24, 64)).astype("f4")
    arrays = {"train_images": (255 * np.abs(np.tanh(features))).astype("u1").reshape(-1, 8, 8, 1)}
    arrays |= {
        "train_labels": np.arange(24) % 2,
        "test_images": arrays["train_images"],
        "test_labels": np.arange(24) % 2,
    }
    options = {**QUICK, "losses": ("sincere",), "epochs": 1, "unknown_data": images, "out": tmp_path / "c"}
    first = sincere.compare(data=arrays, **options)
    assert first.data.n_unknown == 4
    (images / "0.png").unlink()
    assert sincere.compare(data=arrays, **options).data.n_unknown == 3


def test_wrong_unknown_data_are_refused(finished: Path, tmp_path: Path, data: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    features = tmp_path / "features.npz"
    np.savez(features, train_features=np.random.rand(12, 4), train_labels=np.arange(12) % 3)
    with pytest.raises(DataError, match=r"unknown_data: .* must hold images, as blobs; got features"):
        sincere.evaluate(folder, unknown_data=str(features), quiet=True)
    with pytest.raises(DataError, match=r"unknown_data: .* is the data that the model knows; give other data"):
        sincere.evaluate(folder, unknown_data=data, quiet=True)
    with pytest.raises(DataError, match="does not exist as a folder or file, and is no data set's name"):
        sincere.evaluate(folder, unknown_data="nowhere", quiet=True)
    left_out = tmp_path / "left-out"
    sincere.train(data=data, out=left_out, unknown_classes=["2"], **QUICK)
    with pytest.raises(DataError, match="unknown_data: --unknown-classes were left out already"):
        sincere.evaluate(left_out, unknown_data="digits", quiet=True)
    other = tmp_path / "other.npz"
    np.savez(other, train_features=np.random.rand(12, 5), train_labels=np.arange(12) % 3)
    sincere.train(data=str(features), out=tmp_path / "on-features", epochs=1, batch_size=6, quiet=True)
    with pytest.raises(DataError, match=r"must have 4 features, as features; got 5"):
        sincere.evaluate(tmp_path / "on-features", unknown_data=str(other), quiet=True, metrics=("knn",), ks=(1,))
