"""A trained model in use: new images are prepared as in evaluation, classified, and compared with training images."""

from __future__ import annotations

import csv
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import load_file
from sklearn.metrics import roc_auc_score

import sincere
from sincere.catalog import CLASSIFIERS
from sincere.cli import main
from sincere.errors import DataError, InputValueError
from sincere.evaluation.unknown import SCORES
from sincere.records.reference import REFERENCE, Reference
from sincere.report.neighbours_page import Query, neighbours_page
from tests.workflows.conftest import QUICK

CLASSES = {"dark": 60, "light": 200, "middle": 130}


def make_photos(root: Path, n: int, seed: int) -> Path:
    """Write class folders of photos of many shapes and of different brightness."""
    generator = np.random.default_rng(seed)
    for name, level in CLASSES.items():
        (root / name).mkdir(parents=True)
        for i in range(n):
            shape = tuple(generator.integers(20, 60, 2))
            pixels = np.clip(generator.normal(level, 20, (*shape, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i:02d}.{'png' if i % 2 else 'jpg'}")
    return root


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("photos") / "set", 20, 0)


@pytest.fixture(scope="module")
def run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An evaluated run, to copy and not to change."""
    folder = tmp_path_factory.mktemp("use") / "run"
    options = {**QUICK, "epochs": 10, "encoder": "small", "size": 16}
    sincere.train(data=photos, out=folder, **options)
    sincere.evaluate(folder, quiet=True, report=False)
    return folder


@pytest.fixture(scope="module")
def model(run: Path) -> sincere.Model:
    return sincere.load(run)


def test_photos_of_any_shape_embed_as_in_evaluation(run: Path, photos: Path, model: sincere.Model) -> None:
    """They are stored at 28 px and resized to 16 by the model: both steps are repeated for a new image."""
    assert model.spec.image_shape == (3, 28, 28)
    data = sincere.load_dataset(photos, size=16)
    stored = load_file(run / "embeddings.safetensors")
    assert data.test.texts is not None
    files = [photos / name for name in data.test.texts]
    for given in (files, [Image.open(file) for file in files], [np.asarray(Image.open(file)) for file in files]):
        np.testing.assert_allclose(model.embed(given), stored["test.embeddings"], atol=1e-5)
    some = model.embed(files[0]), model.embed(torch.from_numpy(np.array(Image.open(files[0]))))
    assert torch.allclose(some[0], some[1], atol=1e-6)
    assert model.embed([]).shape == (0, 8)


def test_the_reference_set_is_the_training_part(run: Path, photos: Path, model: sincere.Model) -> None:
    stored, data = load_file(run / "embeddings.safetensors"), sincere.load_dataset(photos, size=16)
    np.testing.assert_allclose(model.reference.embeddings, stored["train.embeddings"], atol=1e-6)
    assert np.array_equal(model.reference.labels, data.train.labels)
    assert np.array_equal(model.reference.texts, data.train.texts)
    nearest = model.nearest(photos / str(data.train.texts[3]), k=2)
    assert nearest.names[0][0] == data.train.texts[3]
    assert nearest.similarities[0, 0] > 0.9999
    assert nearest.labels[0][0] == data.class_names[data.train.labels[3]]
    assert nearest.positions[0, 0] == 3


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_every_classifier_predicts(classifier: str, model: sincere.Model, tmp_path: Path) -> None:
    new = make_photos(tmp_path / "new", 4, 1)
    shares = model.predict_proba(new, classifier=classifier)
    assert shares.shape == (12, 3)
    assert torch.allclose(shares.sum(dim=1), torch.ones(12, dtype=shares.dtype))
    expected = [name for name in sorted(CLASSES) for _ in range(4)]
    predicted = model.predict(new, classifier=classifier)
    assert sum(a == b for a, b in zip(predicted, expected, strict=True)) >= 11
    assert predicted == [model.class_names[i] for i in shares.argmax(dim=1)]


def test_an_image_that_cannot_be_read(model: sincere.Model, tmp_path: Path) -> None:
    """The remedy is one for Python: there is no option to leave it out, because no row may be missing."""
    (tmp_path / "bad.jpg").write_text("no image")
    for use in (model.embed, model.predict, model.p_known, model.nearest):
        with pytest.raises(DataError, match=r"bad\.jpg: cannot be read as an image \(.*\); leave it out$"):
            use([tmp_path / "bad.jpg"])


def test_predictions_are_those_of_the_evaluation(run: Path, photos: Path, model: sincere.Model) -> None:
    results = sincere.evaluate(run, quiet=True, report=False, metrics=("margin", "knn", "linear", "classifiers"))
    data = sincere.load_dataset(photos, size=16)
    assert data.test.texts is not None
    files = [photos / name for name in data.test.texts]
    metrics = {"knn": "knn5", "dino": "dino", "means": "means", "linear": "linear"}
    assert "lightly" not in results.metrics, "200 votes of fewer images"
    for classifier, metric in metrics.items():
        labels = [data.class_names.index(name) for name in model.predict(files, classifier=classifier)]
        accuracy = float(np.mean(np.array(labels) == data.test.labels))
        assert results.rows[0].metrics[metric].estimate == pytest.approx(accuracy)


def test_a_model_of_features(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(60) % 3
    features = (np.eye(3)[labels] @ generator.normal(size=(3, 6)) + 0.1 * generator.normal(size=(60, 6))).astype("f4")
    sincere.train(data=(features, labels), out=tmp_path / "run", **{**QUICK, "epochs": 8})
    model = sincere.load(tmp_path / "run")
    assert model.predict(features[:9]) == [str(label) for label in labels[:9]]
    assert model.predict(torch.from_numpy(features[:3]).double()) == ["0", "1", "2"]
    with pytest.raises(DataError, match=r"features must have shape \(n, 6\).*got \(2, 5\)"):
        model.predict(np.zeros((2, 5)))
    assert main(["predict", str(tmp_path / "run"), str(tmp_path)]) == 2


def test_load_takes_the_model_file(run: Path, model: sincere.Model, photos: Path) -> None:
    other = sincere.load(run / "model.safetensors", device="cpu")
    assert torch.equal(other.embed(photos / "dark"), model.embed(photos / "dark"))
    assert "small" in repr(other)


def test_what_is_missing_is_named_with_its_command(run: Path, photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    (folder / REFERENCE).unlink()
    (folder / "linear.safetensors").unlink()
    model = sincere.load(folder)
    with pytest.raises(DataError, match=r"holds no reference embeddings.*`sincere evaluate .*run` writes it"):
        model.predict(photos)
    with pytest.raises(DataError, match=r"holds no linear classifier; `sincere evaluate .*run` writes it"):
        model.predict(photos, classifier="linear")
    with pytest.raises(InputValueError, match=r"classifier must be one of .*Did you mean 'means'"):
        model.predict(photos, classifier="mean")
    sincere.evaluate(folder, quiet=True, report=False)
    assert len(sincere.load(folder).predict(photos, classifier="linear")) == 60
    with pytest.raises(DataError, match="holds no model"):
        sincere.load(tmp_path)


def test_a_damaged_or_foreign_reference_is_refused(run: Path, photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    content = bytearray((folder / REFERENCE).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / REFERENCE).write_bytes(content)
    with pytest.raises(DataError, match="checksum does not match; `sincere evaluate"):
        sincere.load(folder).predict(photos)
    one = Reference(
        np.ones((2, 3), "f4"),
        np.array([0, 1]),
        np.arange(2),
        ("a", "b"),
        np.ones((1, 3), "f4"),
        np.array(["x\udcff.png", "y"]),
    )
    one.write(folder)
    again = Reference.read(folder)
    assert [again.name(i) for i in range(2)] == ["x\udcff.png", "y"]
    assert again.class_names == ("a", "b")
    with pytest.raises(DataError, match="its reference embeddings are of another model"):
        sincere.load(folder).predict(photos)
    Reference(np.ones((2, 3), "f4"), np.array([0, 7]), np.arange(2), ("a", "b"), np.ones((1, 3), "f4")).write(folder)
    with pytest.raises(DataError, match="is damaged"):
        Reference.read(folder)


def test_names_are_file_names_or_texts_else_ids() -> None:
    rows = (np.ones((2, 3), "f4"), np.array([0, 1]), np.arange(2), ("a", "b"), np.ones((1, 3), "f4"))
    assert [Reference(*rows).name(i) for i in (0, 1)] == ["#0", "#1"]
    assert [Reference(*rows, np.array(["", "a text"])).name(i) for i in (0, 1)] == ["#0", "a text"]


def test_other_data_do_not_become_the_reference(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    before = (folder / REFERENCE).read_bytes()
    sincere.evaluate(folder, data=str(make_photos(tmp_path / "other", 10, 3)), quiet=True, report=False)
    assert (folder / REFERENCE).read_bytes() == before
    with pytest.raises(DataError, match=r"holds no linear classifier; `sincere evaluate .*run` writes it"):
        sincere.load(folder).predict(tmp_path / "other", classifier="linear")


def test_predict_prints_tables_json_and_csv(
    run: Path, photos: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    images = [str(photos / "dark" / "00.jpg"), str(photos / "light")]
    assert main(["predict", str(run), *images, "--format", "json", "--k", "2"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["file"] for row in rows][:2] == [images[0], f"{images[1]}/00.jpg"]
    assert rows[0]["label"] == "dark"
    assert 0 < rows[0]["confidence"] <= 1
    assert [len(row["nearest"]) for row in rows] == [2] * 21
    assert rows[0]["nearest"][0]["name"].startswith("dark/")
    assert main(["predict", str(run), *images, "--format", "csv", "--classifier", "means"]) == 0
    table = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert table[0][:5] == ["file", "label", "confidence", "p_known", "unknown"]
    assert table[0][5:8] == ["nearest_1_name", "nearest_1_label", "nearest_1_similarity"]
    assert [len(row) for row in table] == [5 + 3 * 3] * 22
    assert [row[1] for row in table[1:]] == ["dark", *["light"] * 20]
    assert main(["predict", str(run), images[0]]) == 0
    table_of_one = capsys.readouterr().out
    assert "dark" in table_of_one
    assert "(dark, " not in table_of_one  # the folder of a training image says its class
    (tmp_path / "bad.jpg").write_text("no image")
    assert main(["predict", str(run), str(tmp_path / "bad.jpg"), images[0]]) == 2
    assert "bad.jpg: cannot be read as an image" in capsys.readouterr().err
    assert main(["predict", str(run), str(tmp_path / "bad.jpg"), images[0], "--skip-bad-images"]) == 0
    skipped = f"1 of 2 images could not be read and were left out: {tmp_path / 'bad.jpg'}"
    assert skipped in capsys.readouterr().err
    assert main(["predict", str(run), str(tmp_path / "bad.jpg"), "--skip-bad-images"]) == 2
    assert "predict: none of the images can be read" in capsys.readouterr().err
    assert main(["predict", str(run), str(tmp_path / "nowhere.jpg"), "--format", "csv"]) == 2
    assert capsys.readouterr().out == "", "no header without rows"
    assert main(["predict", str(run)]) == 2
    assert "IMAGES is missing" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_embed_writes_a_file(
    suffix: str, run: Path, photos: Path, model: sincere.Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / f"new/x{suffix}"
    arguments = ["embed", str(run), str(photos), "--out", str(out)]
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    assert main(arguments) == 0
    if suffix == ".npz":
        with np.load(out) as arrays:
            embeddings, names = arrays["embeddings"], arrays["names"].tolist()
    else:
        import pyarrow.parquet as pq

        table = pq.read_table(out)
        embeddings, names = np.stack(table["embedding"].to_numpy()), table["path"].to_pylist()
    assert names == sorted(str(path) for path in photos.glob("*/*"))
    assert embeddings.dtype == np.float32
    np.testing.assert_allclose(embeddings, model.embed(photos), atol=1e-6)
    assert [path.name for path in out.parent.iterdir()] == [out.name]
    before = out.read_bytes()
    assert main(arguments) == 2
    assert "exists already; --overwrite replaces it" in capsys.readouterr().err
    (tmp_path / "bad.jpg").write_text("no image")
    assert main(["embed", str(run), str(tmp_path / "bad.jpg"), "--out", str(out), "--overwrite"]) == 2
    assert out.read_bytes() == before
    assert main([*arguments[:-1], str(tmp_path / "x.txt")]) == 2
    assert "out must end with .npz or .parquet" in capsys.readouterr().err


def test_nearest_writes_a_page(run: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "page.html"
    image = str(photos / "dark" / "00.jpg")
    assert main(["nearest", str(run), image, "--k", "4", "--out", str(out)]) == 0
    page = out.read_text()
    assert page.count("<img") == 5
    assert page.count("<figcaption>dark, ") == 4
    assert f"p_known {float(sincere.load(run).p_known(image)[0]):.2f}: " in page
    assert "unknown?" not in page
    assert "12 test images are too few" in capsys.readouterr().err
    assert main(["nearest", str(run), image, "--false-alarms", "1", "--out", str(out)]) == 0
    assert "unknown?" in out.read_text()
    assert "script-src &#x27;none&#x27;" in page
    elsewhere = tmp_path / "moved"
    photos.rename(elsewhere)
    try:
        image = str(elsewhere / "dark" / "00.jpg")
        capsys.readouterr()
        assert main(["nearest", str(run), image, "--k", "4", "--out", str(out)]) == 0
        assert "no thumbnails of the training images" in capsys.readouterr().err
        assert out.read_text().count("<img") == 1
        assert main(["nearest", str(run), image, "--k", "4", "--out", str(out), "--data", str(elsewhere)]) == 0
        assert out.read_text().count("<img") == 5
    finally:
        elsewhere.rename(photos)


def test_nearest_replaces_its_own_pages_only(
    run: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image, words = tmp_path / "photo.html", ["nearest", str(run), str(photos / "dark" / "00.jpg"), "--out"]
    shutil.copy(photos / "dark" / "00.jpg", image)
    before = image.read_bytes()
    for out in (image, tmp_path, tmp_path / "page.png"):
        assert main([*words, str(out)]) == 2
        [error] = capsys.readouterr().err.splitlines()
        assert "exists already and is no page" in error or "out must end with .html" in error
    assert image.read_bytes() == before
    assert main([*words, str(tmp_path / "new" / "page.html")]) == 0
    (tmp_path / "bad.jpg").write_text("no image")
    assert main(["nearest", str(run), str(tmp_path / "bad.jpg"), "--skip-bad-images", "--out", "page.html"]) == 2
    assert "nearest: none of the images can be read" in capsys.readouterr().err


def test_changed_training_images_are_not_shown_as_the_old_ones(
    run: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(photos, changed)
    for path in changed.glob("*/*"):
        Image.new("RGB", (30, 30), "blue").save(path)
    words = ["nearest", str(run), str(photos / "dark" / "00.jpg"), "--out", str(tmp_path / "page.html")]
    assert main([*words, "--data", str(changed)]) == 0
    assert "no thumbnails of the training images: they are other images now" in capsys.readouterr().err


def test_names_are_no_markup(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither swallowed nor an error where they look like tags of the terminal's library."""
    monkeypatch.setenv("COLUMNS", "400")  # no name is folded
    folder = tmp_path / "in"
    folder.mkdir()
    Image.new("RGB", (30, 30)).save(folder / "a[final].png")
    (folder / "[").mkdir()
    Image.new("RGB", (30, 30)).save(folder / "[" / "n].png")
    assert main(["predict", str(run), str(folder)]) == 0
    out = "".join(capsys.readouterr().out.split())
    assert "a[final].png" in out
    assert "[/n].png" in out


def test_ties_go_to_the_smaller_label_as_in_evaluation(tmp_path: Path) -> None:
    arrays = {"train_features": np.ones((12, 4), "f4"), "train_labels": np.array([1, 0] * 6)}
    arrays |= {"test_features": np.ones((4, 4), "f4"), "test_labels": np.array([0, 1] * 2)}
    sincere.train(data=arrays, out=tmp_path / "run", **{**QUICK, "epochs": 1, "batch_size": 4})
    results = sincere.evaluate(tmp_path / "run", data=arrays, quiet=True, report=False)
    assert results.rows[0].metrics["knn1"].estimate == 0.5
    model = sincere.load(tmp_path / "run")
    for classifier in ("knn", "dino"):
        assert model.predict(arrays["test_features"], classifier=classifier) == ["0"] * 4
    assert model.nearest(arrays["test_features"], k=2).names[0] == ["#1", "#3"]


def test_devices_and_numbers_are_checked(run: Path, model: sincere.Model, photos: Path) -> None:
    assert sincere.load(run, device="cpu:0").device.type == "cpu"
    for device in ("cuda:99", "cpu:1", "cpu:x"):
        with pytest.raises(InputValueError, match="load: device must be available here; got"):
            sincere.load(run, device=device)
    with pytest.raises(InputValueError, match="load: device must be one of"):
        sincere.load(run, device="gpu")
    with pytest.raises(TypeError, match="nearest: k must be an integer of at least 1; got float"):
        model.nearest(photos / "dark", 2.5)  # type: ignore[arg-type]


def test_digits_from_files(tmp_path: Path) -> None:
    """The whole way of a newcomer: train on a named set, then classify 20 PNG files of its test part."""
    sincere.train(data="digits", epochs=12, out=tmp_path / "run", quiet=True)
    data = sincere.load_dataset("digits")
    pixels = data.test.items.gather(data.test.positions[:20]).cpu().numpy()
    for i, image in enumerate(pixels):
        Image.fromarray(image[0]).save(tmp_path / f"{i:02d}.png")
    predicted = sincere.load(tmp_path / "run").predict([tmp_path / f"{i:02d}.png" for i in range(20)])
    expected = [data.class_names[label] for label in data.test.labels[:20]]
    assert sum(a == b for a, b in zip(predicted, expected, strict=True)) >= 19


def test_wrong_labels_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(150) % 3
    features = np.eye(3)[labels] @ generator.normal(size=(3, 6)) + 0.2 * generator.normal(size=(150, 6))
    wrong = labels.copy()
    wrong[[4, 40]] = (labels[[4, 40]] + 1) % 3
    arrays = {"train_features": features, "train_labels": wrong, "test_features": features[:30]}
    arrays |= {"test_labels": labels[:30], "train_texts": np.array([f"item {i}" for i in range(150)])}
    arrays |= {"test_texts": np.array([f"test {i}" for i in range(30)])}
    np.savez(tmp_path / "data.npz", **arrays)
    run = tmp_path / "run"
    sincere.train(data=tmp_path / "data.npz", out=run, **QUICK)
    capsys.readouterr()
    assert main(["labels", str(run)]) == 0
    assert "2 of 180 samples have another label" in capsys.readouterr().out
    rows = list(csv.reader((run / "label_issues.csv").open()))
    assert rows[0] == ["name", "label", "suggested", "agreement", "part"]
    assert sorted(row[:3] for row in rows[1:]) == [
        ["item 4", str(wrong[4]), str(labels[4])],
        ["item 40", str(wrong[40]), str(labels[40])],
    ]
    assert main(["labels", str(tmp_path)]) == 2
    assert "holds no run" in capsys.readouterr().err


def test_labels_of_a_trained_encoder(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    assert main(["labels", str(folder), "--quiet"]) == 0
    assert (folder / "label_issues.csv").read_text().startswith("name,label,suggested,agreement,part\n")
    sincere.evaluate(folder, quiet=True, report=False)
    assert (folder / "label_issues.csv").exists()


@pytest.mark.parametrize("score", ["nearest", "mahalanobis"])
def test_unknown_images_are_called_so(score: str, tmp_path: Path) -> None:
    """Of new images of known classes, 5% are false alarms; images of another class have small p-values."""
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(4, 12))

    def drawn(n: int, label: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        labels = np.arange(n) % 3 if label is None else np.full(n, label)
        return (centres[labels] + 0.3 * generator.normal(size=(n, 12))).astype("f4"), labels

    sincere.train(data=(drawn(300), drawn(300)), out=tmp_path / "run", **QUICK)
    model = sincere.load(tmp_path / "run")
    known, unknown = model.p_known(drawn(600)[0], score=score), model.p_known(drawn(100, 3)[0], score=score)
    assert 0.01 < float((known <= 0.05).double().mean()) < 0.11
    assert float((unknown <= 0.05).double().mean()) > 0.5
    with pytest.raises(InputValueError, match="score must be one of"):
        model.p_known(drawn(3)[0], score="farthest")


def test_the_page_of_the_nearest_marks_unknown_images() -> None:
    pixels = np.zeros((4, 4, 3), np.uint8)
    known = Query("a.png", "cat", 1.0, 5, 0.5, is_unknown=False, pixels=pixels, nearest=[])
    page = neighbours_page("run", [known, replace(known, p_known=0.01, is_unknown=True)])
    assert page.count("unknown? cat: 100% of the votes of the 5 nearest") == 1
    assert page.count("cat: 100% of the votes") == 2


def test_predict_says_unknown(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.fromarray(np.indices((40, 40)).sum(axis=0).astype(np.uint8) % 2 * 255).save(tmp_path / "board.png")
    rows = {}
    for rate in ("0.05", "0.2", "1"):
        assert main(["predict", str(run), str(tmp_path), "--format", "json", "--false-alarms", rate]) == 0
        captured = capsys.readouterr()
        [rows[rate]] = json.loads(captured.out)
        assert ("12 test images are too few" in captured.err) == (rate == "0.05")
    assert not rows["0.05"]["unknown"]
    assert rows["1"]["unknown"]
    assert rows["0.2"]["unknown"] == (rows["0.2"]["p_known"] <= 0.2)
    assert main(["predict", str(run), str(tmp_path), "--false-alarms", "1"]) == 0
    assert "unknown?" in (shown := capsys.readouterr().out)
    assert "1 of 1 image seems to be of an unknown class (p_known of 1 or less)" in shown
    assert main(["predict", str(run), str(tmp_path), "--false-alarms", "1.5"]) == 2


@pytest.mark.parametrize("frozen", [False, True])
def test_classes_that_are_left_out_are_measured_as_unknown(
    frozen: bool, run: Path, photos: Path, tmp_path: Path
) -> None:
    options = {**QUICK, "unknown_classes": ["middle"]}
    options |= {"weights": run / "model.safetensors", "freeze": True} if frozen else {"encoder": "small", "size": 16}
    folder = tmp_path / "run"
    sincere.train(data=photos, out=folder, **options)
    results = sincere.evaluate(folder, quiet=True, report=False)
    assert results.data.class_names == ("dark", "light")
    [row] = results.rows
    model, data = sincere.load(folder), sincere.load_dataset(photos, size=16)
    assert data.test.texts is not None
    unknown = [photos / name for name in data.test.texts if name.startswith("middle")]
    known = [photos / name for name in data.test.texts if not name.startswith("middle")]
    for score, method in SCORES.items():
        z = torch.from_numpy(model.reference.embeddings), torch.from_numpy(model.reference.labels)
        scores = [method(*z)(model.embed(images)).double().numpy() for images in (known, unknown)]
        truth = np.repeat([1, 0], [len(known), len(unknown)])
        assert row.metrics[f"auroc_{score}"].estimate == pytest.approx(roc_auc_score(truth, np.concatenate(scores)))
        passing = np.mean(scores[1] >= scores[0].min())  # 8 known images: all must pass
        assert row.metrics[f"fpr95_{score}"].estimate == pytest.approx(passing)
    assert results.data.n_unknown == len(unknown)


def test_classes_to_leave_out_are_checked(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(InputValueError, match="Did you mean 'middle'"):
        sincere.train(data=photos, unknown_classes=["midle"], out=tmp_path / "a", **QUICK)
    with pytest.raises(DataError, match="at least two other classes must be left; got light"):
        sincere.train(data=photos, unknown_classes=["dark", "middle"], out=tmp_path / "b", **QUICK)
    assert not (tmp_path / "b").exists()
