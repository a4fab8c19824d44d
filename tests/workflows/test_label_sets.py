"""Runs on data with several labels per sample: trained, resumed, evaluated, compared and used, or refused in a line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import sincere
from sincere.cli import main
from sincere.errors import DataError, InputValueError
from sincere.loss_catalog import LOSSES
from sincere.records.arrays import PerImage
from sincere.records.results import Results
from sincere.training.diagnostics import mean_similarities
from sincere.workflows.defaults import check_takes_labels
from sincere.workflows.run_folder import RunFolder
from tests.data.label_set_data import N_TEST, NAMES, label_sets, pictures, save_features, save_folder, save_images
from tests.workflows.conftest import QUICK
from tests.workflows.test_devices import command, run
from tests.workflows.trained_runs import same_weights, stopped_after, weights

METRICS = {"label_map", "label_margin", "label_shared"}
MEASURED = {"resamples": 100, "report": False, "quiet": True}
# In float32 on every machine: with few images, whether a label gets half of the votes depends on the arithmetic.
LEARNING = {"epochs": 20, "batch_size": 40, "dim": 16, "threads": 1, "precision": "32-true", "quiet": True}
ON_FEATURES = {**LEARNING, "epochs": 40, "learning_rate": 0.01, "feature_dropout": 0.2}
TAKERS = [name for name, loss in LOSSES.items() if loss.takes_label_sets and loss.needs_labels]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_images(tmp_path_factory.mktemp("sets") / "images.npz")


@pytest.fixture(scope="module")
def trained(images: Path) -> Path:
    """A run that has learned, with its results and report; not to be changed."""
    out = images.parent / "trained"
    sincere.train(data=images, out=out, validation=0.2, **LEARNING)
    sincere.evaluate(out, resamples=100, quiet=True)
    return out


def test_a_run_learns_and_its_results_say_so(trained: Path) -> None:
    results = Results.read(trained)
    row, data = results.rows[0], results.data
    assert row.metrics.keys() == METRICS
    assert data.label_sets
    assert data.class_names == NAMES
    chance = label_sets(N_TEST, 1).mean(axis=0).mean()
    assert chance < 0.35
    assert row.metrics["label_map"].low > 0.8
    assert row.metrics["label_margin"].low > 0.1
    assert row.metrics["label_shared"].estimate > 0.95
    assert all(found.low <= found.estimate <= found.high for found in row.metrics.values())
    assert [of_label.name for of_label in row.labels] == list(NAMES)
    assert [of_label.n_test for of_label in row.labels] == label_sets(N_TEST, 1).sum(axis=0).tolist()
    precisions = [of_label.average_precision for of_label in row.labels]
    assert None not in precisions
    assert np.mean([p for p in precisions if p is not None]) == pytest.approx(row.metrics["label_map"].estimate)
    assert row.classes == row.confusion == results.baselines == ()
    assert row.margin.n == int(label_sets(N_TEST, 1).any(axis=1).sum())
    stored = PerImage.read(trained, row.files["per_image.npz"])
    assert np.array_equal(stored.labels, label_sets(N_TEST, 1))
    assert stored.predictions.shape == (N_TEST, 4)


def test_the_log_names_what_is_measured_and_leaves_out_levels(trained: Path) -> None:
    rows = RunFolder(trained).log.rows()
    assert "knn1_shares_label_validation" in rows[-1]
    assert not {"chance", "floor", "repulsion_share", "knn1_validation"} & rows[-1].keys()
    assert rows[-1]["partner_similarity"] > rows[-1]["noise_similarity"] + 0.3


def test_the_report_shows_labels_and_leaves_out_what_needs_classes(trained: Path) -> None:
    page = (trained / "report.html").read_text()
    assert "Label by label" in page
    assert "that shares a label" in page
    for name in NAMES:
        assert f">{name}<" in page
    assert "confused" not in page
    assert 'id="map"' not in page
    assert "Chance is the loss" not in page
    assert not (trained / "map.npz").exists()


def test_features_learn_beyond_raw_features_and_losses_are_compared(tmp_path: Path) -> None:
    options = {**ON_FEATURES, "losses": ("sincere", "eps-supinfonce"), "resamples": 100, "out": tmp_path / "both"}
    results = sincere.compare(data=save_features(tmp_path / "f.npz"), **options)
    found = {summary.loss: summary.metrics["label_map"] for summary in results.summaries}
    assert found["sincere"].low > found["raw-features"].estimate + 0.1
    assert {(d.metric, d.a, d.b) for d in results.differences} >= {(m, "sincere", "eps-supinfonce") for m in METRICS}
    above_raw = [d for d in results.differences if d.b == "raw-features" and d.metric == "label_map"]
    assert all(d.significant and d.estimate > 0 for d in above_raw)
    assert any("epsilon asks for a margin of its own" in note for note in results.notes)
    assert (tmp_path / "both" / "report.html").is_file()
    assert sincere.compare(data=tmp_path / "f.npz", **options) == results


@pytest.mark.parametrize("step", [1, 11])
def test_stopped_and_resumed_it_ends_the_same(
    step: int, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**QUICK, "data": images, "batch_size": 40, "threads": 1}
    sincere.train(out=tmp_path / "whole", **options)
    stopped_after(step, monkeypatch, out=tmp_path / "parts", **options)
    sincere.train(resume=True, out=tmp_path / "parts", quiet=True)
    assert same_weights(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.parametrize("loss", [*TAKERS, "infonce"])
def test_every_loss_of_the_family_takes_label_sets(loss: str, images: Path, tmp_path: Path) -> None:
    result = sincere.train(data=images, loss=loss, out=tmp_path / "run", **{**QUICK, "epochs": 1})
    assert np.isfinite(result.train_loss["last"])


def test_the_labels_of_all_count_not_only_the_first(images: Path, tmp_path: Path) -> None:
    with np.load(images) as file:
        arrays = dict(file)
    first = np.zeros_like(arrays["train_labels"])
    labelled = np.flatnonzero(arrays["train_labels"].any(axis=1))
    first[labelled, arrays["train_labels"][labelled].argmax(axis=1)] = 1
    for name, labels in (("all", arrays["train_labels"]), ("first", first)):
        sincere.train(data={**arrays, "train_labels": labels}, out=tmp_path / name, **{**QUICK, "epochs": 1})
    assert not same_weights(tmp_path / "all", tmp_path / "first")


def test_one_hot_rows_train_as_classes_do(tmp_path: Path) -> None:
    classes = np.arange(60) % 4
    drawn = pictures(np.eye(4, dtype=np.int64)[classes], 0)
    for name, labels in (("classes", classes), ("sets", np.eye(4, dtype=np.int64)[classes])):
        arrays = {"train_images": drawn[:40], "train_labels": labels[:40]}
        arrays |= {"test_images": drawn[40:], "test_labels": labels[40:]}
        options = {**QUICK, "epochs": 2, "sampler": "shuffle", "optimizer": "sgd", "learning_rate": 0.01}
        sincere.train(data=arrays, out=tmp_path / name, **options)
    one, other = weights(tmp_path / "classes"), weights(tmp_path / "sets")
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, atol=1e-4, rtol=1e-3, msg=name)


def test_micro_batches_and_frozen_features(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINCERE_HOME", str(tmp_path / "home"))
    sincere.train(data=images, out=tmp_path / "first", micro_batch=7, **QUICK)
    frozen = {"weights": tmp_path / "first" / "model.safetensors", "freeze": True, **QUICK}
    sincere.train(data=images, out=tmp_path / "frozen", **frozen)
    assert sincere.evaluate(tmp_path / "frozen", **MEASURED).rows[0].metrics.keys() == METRICS


@pytest.mark.slow
def test_two_processes_end_with_the_weights_of_one(images: Path, tmp_path: Path) -> None:
    for name, devices in (("one", "1"), ("two", "2")):
        result = run(command(str(images), tmp_path / name, "--devices", devices, "--epochs", "1"))  # 8 steps
        assert result.returncode == 0, result.stderr
        assert result.stdout.count("test images whose nearest training image shares a label") == 1
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, atol=1e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"sampler": "balanced"}, InputValueError, "train: sampler must be shuffle for label sets, which have no"),
        ({"queue": 50}, InputValueError, "train: queue must be 0 for label sets, because it keeps one label of each"),
        ({"imbalance": 10}, DataError, "imbalance: needs one label per image; images has label sets"),
        ({"classes": ("bar", "dot")}, DataError, "classes: needs one label per image; images has label sets"),
        ({"unknown_classes": ("bar",)}, DataError, "unknown_classes: needs one label per image; images has label sets"),
    ],
)
def test_what_needs_classes_is_refused_before_anything_is_written(
    options: dict[str, Any], error: type[Exception], message: str, images: Path, tmp_path: Path
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        sincere.train(data=images, out=tmp_path / "run", **{**QUICK, **options})
    assert not (tmp_path / "run" / "config.toml").exists()


def test_a_loss_that_needs_classes_is_refused(images: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = sincere.load_dataset(images)
    other = LOSSES["sincere"].__class__(**{**vars(LOSSES["sincere"]), "terms": None})
    monkeypatch.setitem(LOSSES, "classes-only", other)
    message = r"train: loss must be one that takes label sets \(sincere, .*\); got classes-only"
    with pytest.raises(InputValueError, match=message):
        check_takes_labels("classes-only", data)
    check_takes_labels("classes-only", sincere.load_dataset("digits"))
    with pytest.raises(InputValueError, match="compare: loss must be one that takes label sets"):
        sincere.compare(data=images, losses=("sincere", "classes-only"), out=tmp_path / "both", **LEARNING)
    assert not (tmp_path / "both").exists()


def test_a_loss_given_in_python_gets_the_label_sets(images: Path, tmp_path: Path) -> None:
    seen = []

    def loss(embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(labels.shape))
        return sincere.sincere_loss(embeddings, labels)

    sincere.train(data=images, loss=loss, out=tmp_path / "run", **{**QUICK, "epochs": 1})
    assert (20, 4) in seen


def test_other_metrics_and_unknown_data_are_refused(trained: Path, data: str) -> None:
    requirement = "metrics must be multi-label for label sets, because the others need classes"
    with pytest.raises(InputValueError, match=f"evaluate: {requirement}; got knn, margin"):
        sincere.evaluate(trained, metrics=("knn", "margin"), **MEASURED)
    with pytest.raises(DataError, match="unknown_data: needs one label per image; images has label sets"):
        sincere.evaluate(trained, unknown_data=data, **MEASURED)


def test_the_list_of_wrong_labels_is_refused(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["labels", str(trained)]) == 2
    assert "labels: needs one label per image; images has label sets" in capsys.readouterr().err


def picture_files(folder: Path, labels: list[list[int]]) -> list[str]:
    names = []
    for i, pixels in enumerate(pictures(np.array(labels), 7)):
        names.append(str(folder / f"{i}.png"))
        Image.fromarray(pixels[:, :, 0]).save(names[-1])
    return names


def test_predictions_are_labels_with_scores(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = picture_files(tmp_path, [[1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0]])
    model = sincere.load(trained)
    assert model.predict(files[1:]) == ["cross", "dot"]
    assert set(model.predict(files[:1])[0].split(";")) == {"bar", "frame"}
    shares = model.predict_proba(files)
    assert shares.shape == (3, 4)
    assert float(shares.min()) >= 0
    assert float(shares.max()) <= 1
    assert float(shares[0].sum()) > 1.2
    assert main(["predict", str(trained), *files, "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert set(rows[0]["scores"]) == {"bar", "frame"}
    assert all(score >= 0.5 for score in rows[0]["scores"].values())
    assert rows[0]["label"].split(";") == list(rows[0]["scores"])
    assert rows[0]["confidence"] == max(rows[0]["scores"].values())
    assert main(["predict", str(trained), *files]) == 0
    assert main(["predict", str(trained), *files, "--format", "csv"]) == 0
    for options in (["--classifier", "means"], ["--unknown-score", "mahalanobis"]):
        assert main(["predict", str(trained), *files, *options]) == 2
        assert "for a run on label sets, because others need classes" in capsys.readouterr().err


def test_a_page_of_neighbours_and_an_export(trained: Path, tmp_path: Path) -> None:
    files = picture_files(tmp_path, [[1, 0, 0, 1]])
    assert main(["nearest", str(trained), *files, "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "of the votes of the 20 nearest" in page
    nearest = sincere.load(trained).nearest(files, k=3)
    assert all(set(label.split(";")) <= {*NAMES, ""} for label in nearest.labels[0])
    sincere.load(trained).save_pretrained(tmp_path / "exported")
    assert "4 labels" in (tmp_path / "exported" / "README.md").read_text()
    assert sincere.Model.from_pretrained(tmp_path / "exported").predict(files) == sincere.load(trained).predict(files)


def test_transfer_to_and_from_label_sets(
    trained: Path, finished: Path, images: Path, data: str, tmp_path: Path
) -> None:
    to_classes = sincere.transfer(trained, data, out=tmp_path / "classes", **MEASURED)
    assert {"knn1", "margin"} <= to_classes.metrics.keys()
    to_sets = sincere.transfer(finished, images, out=tmp_path / "sets", **MEASURED)
    assert to_sets.metrics.keys() == METRICS


def test_a_folder_with_a_labels_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = save_folder(tmp_path / "photos", n=60)
    options = ["--epochs", "2", "--batch-size", "16", "--dim", "8", "--encoder", "small"]
    assert main(["train", "--data", str(root), "--out", str(tmp_path / "run"), *options]) == 0
    assert "4 labels of" in capsys.readouterr().out
    assert main(["evaluate", str(tmp_path / "run"), "--resamples", "100"]) == 0
    assert "label" in capsys.readouterr().out
    text = (root / "labels.csv").read_text()
    (root / "labels.csv").write_text(text.replace("002.png,", "gone.png,"))
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert "there is no image gone.png" in error
    assert "Traceback" not in error


def test_a_search_tunes_on_label_sets(images: Path, tmp_path: Path) -> None:
    options = {"losses": ("sincere",), "trials": 2, "epochs": 2, "batch_size": 40, "dim": 8, "quiet": True}
    found = sincere.search(data=images, out=tmp_path / "search", **options)
    assert found is not None


def test_mean_similarities_of_label_sets() -> None:
    z = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])[:, None]
    labels = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 1, 0]])
    positive, negative = mean_similarities(z, labels)
    assert positive == pytest.approx(0)  # pairs (0, 1) and (1, 2)
    assert negative == pytest.approx(1)  # the pair (0, 2)
    views = z.expand(3, 2, 2)
    assert mean_similarities(views, torch.zeros(3, 2, dtype=torch.long))[0] == pytest.approx(1)  # its own other view
