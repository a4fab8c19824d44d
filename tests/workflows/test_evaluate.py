"""`evaluate` and `transfer` measure a run, store what they found, and refuse what cannot be measured."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import sincere
from sincere.catalog import METRICS
from sincere.cli import main
from sincere.errors import DataError, InputValueError
from sincere.evaluation.neighbours import find_neighbours
from sincere.evaluation.probe import Probe
from sincere.records.arrays import PER_IMAGE, EmbeddingMap, PerImage
from sincere.records.files import EVALUATION_LOCK, locked
from sincere.records.npz import read_arrays, write_arrays
from sincere.records.reference import Reference
from sincere.records.results import Results
from sincere.workflows import results as results_module
from sincere.workflows.measure import first_come
from sincere.workflows.run_folder import EMBEDDINGS, NAMES, PROBES
from tests.data.made_sets import picture
from tests.workflows.conftest import QUICK, blobs


@pytest.fixture(scope="module")
def evaluated(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluated") / "run"
    shutil.copytree(finished, folder)
    sincere.evaluate(folder, metrics=tuple(METRICS), ks=(1, 3), probe="both", probe_epochs=5, quiet=True)
    return folder


def test_figures_are_those_of_the_stored_embeddings(evaluated: Path) -> None:
    stored = {name: torch.from_numpy(array) for name, array in load_file(evaluated / EMBEDDINGS).items()}
    found = find_neighbours(
        stored["test.embeddings"], stored["test.labels"], stored["train.embeddings"], stored["train.labels"], ks=(1, 3)
    )
    row = Results.read(evaluated).rows[0]
    for k in (1, 3):
        share = float((found.predictions[k] == stored["test.labels"]).double().mean())
        assert row.metrics[f"knn{k}"].estimate == pytest.approx(share)
    margin = np.median(found.target_similarity) - np.median(found.noise_similarity)
    assert row.metrics["margin"].estimate == pytest.approx(margin, abs=1e-6)
    assert row.margin.margin == pytest.approx(margin, abs=1e-6)
    assert set(row.metrics) >= {"margin", "knn1", "knn3", "linear", "linear_paper", "map_at_r", "r_precision"}
    assert all(figure.low <= figure.estimate <= figure.high for figure in row.metrics.values())
    norms = stored["test.embeddings"].norm(dim=1)
    torch.testing.assert_close(norms, torch.ones(30))
    assert not torch.allclose(stored["test.features"].norm(dim=1), norms)
    assert stored["test.ids"].tolist() == list(range(30))


def test_histograms_count_every_test_image_and_classes_make_up_the_whole(evaluated: Path) -> None:
    row = Results.read(evaluated).rows[0]
    for histogram in (row.margin.target, row.margin.noise):
        assert sum(histogram.counts) == 30
    per_class = np.sum([c.margin.target.counts for c in row.classes], axis=0)
    assert tuple(per_class) == row.margin.target.counts
    assert [c.n_test for c in row.classes] == [10, 10, 10]
    accuracy = np.mean([c.accuracy for c in row.classes])
    assert accuracy == pytest.approx(row.metrics["knn1"].estimate)
    assert sum(n for _, _, n in row.confusion) == 30
    right = sum(n for label, predicted, n in row.confusion if label == predicted)
    assert right / 30 == pytest.approx(row.metrics["knn1"].estimate)
    for label, c in enumerate(row.classes):
        assert c.confused_with in {"0", "1", "2"} - {str(label)}
        assert c.confused_share is not None
        assert 0.5 <= c.confused_share <= 1  # of two other classes
        assert c.divergence is not None
        assert c.divergence_cap is not None
        assert c.divergence.low <= c.divergence.estimate <= c.divergence_cap


def test_the_classifiers_are_stored_and_predict(evaluated: Path) -> None:
    stored = load_file(evaluated / EMBEDDINGS)
    row = Results.read(evaluated).rows[0]
    for metric, name in PROBES.items():
        probe, class_names = Probe.load(evaluated / name)
        assert class_names == ("0", "1", "2")
        right = probe.correct(torch.from_numpy(stored["test.features"]), torch.from_numpy(stored["test.labels"]))
        assert float(right.mean()) == pytest.approx(row.metrics[metric].estimate)
    with pytest.raises(DataError, match="is missing, or is not the classifier"):
        Probe.load(evaluated / EMBEDDINGS)


def test_the_map_shows_test_images_and_the_training_images_that_decided(evaluated: Path) -> None:
    found = EmbeddingMap.read(evaluated)
    assert found.points.shape == (30, 2)
    assert np.isfinite(found.points).all()
    assert found.thumbnails.shape == (30, 8, 8, 1)
    assert found.method == "t-SNE"
    stored = load_file(evaluated / EMBEDDINGS)
    similarities = stored["test.embeddings"] @ stored["train.embeddings"].T
    positions = {int(id): i for i, id in enumerate(stored["train.ids"])}
    nearest = np.array([[positions[int(found.train_ids[i])] for i in row] for row in found.neighbours])
    assert nearest.shape == (30, 5), "5 are shown although 3 vote at most"
    np.testing.assert_allclose(found.similarities, -np.sort(-similarities, axis=1)[:, :5], atol=1e-6)
    np.testing.assert_allclose(np.take_along_axis(similarities, nearest, axis=1), found.similarities, atol=1e-6)
    np.testing.assert_array_equal(found.train_labels[found.neighbours[:, 0]], found.predictions)
    np.testing.assert_array_equal(found.predictions, PerImage.read(evaluated).predictions)
    np.testing.assert_array_equal(found.train_labels, stored["train.labels"][[positions[i] for i in found.train_ids]])
    assert found.train_thumbnails.shape == (len(found.train_ids), 8, 8, 1)
    assert len(set(found.train_ids)) == len(found.train_ids)


def test_neighbours_are_listed_once_and_the_nearest_first() -> None:
    nearest = np.random.default_rng(0).integers(20, size=(50, 5))
    positions, listed = first_come(nearest)
    np.testing.assert_array_equal(listed[positions], nearest)
    assert sorted(listed) == sorted(set(nearest.ravel()))
    n_first = len(set(nearest[:, 0]))
    assert set(listed[:n_first]) == set(nearest[:, 0])


def test_evaluation_is_the_same_again_and_overwrite_removes_it(evaluated: Path, data: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(evaluated, folder)
    options = {
        "metrics": tuple(METRICS),
        "ks": (1, 3),
        "probe": "both",
        "probe_epochs": 5,
        "report": False,
        "quiet": True,
    }
    again = sincere.evaluate(folder, **options)
    assert again.rows == Results.read(evaluated).rows
    assert {path.name for path in folder.iterdir()} <= NAMES
    sincere.train(data=data, out=folder, overwrite=True, **QUICK)
    assert not (folder / "results.json").exists()
    assert not (folder / PER_IMAGE).exists()


def test_an_unfinished_run_is_measured_at_its_last_checkpoint(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (folder / "summary.json").unlink()
    (folder / "model.safetensors").unlink()
    broken = folder / "checkpoints" / "step-999999999.pt"
    broken.write_bytes(b"cut off")
    results = sincere.evaluate(folder, metrics=("knn",), report=False, quiet=True)
    assert "the run is not finished; this is its last checkpoint, after step 12" in results.notes[0]
    assert "note: " in capsys.readouterr().err  # also when quiet
    assert not results.rows[0].finished
    assert results.rows[0].epochs == 4
    whole = sincere.evaluate(finished_copy(finished, tmp_path), metrics=("knn",), report=False)
    assert results.rows[0].metrics == whole.rows[0].metrics
    assert broken.exists()  # evaluation removes nothing
    for path in (folder / "checkpoints").iterdir():
        path.unlink()
    with pytest.raises(DataError, match="holds neither a model nor an intact checkpoint; resume it with"):
        sincere.evaluate(folder)


def finished_copy(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "whole")
    return tmp_path / "whole"


def test_transfer_prepares_images_as_the_run_does(finished: Path, tmp_path: Path) -> None:
    """Colour images of another size go through a grey 8-px network."""
    other = blobs(tmp_path / "other.npz", channels=3, side=20)
    folder = finished_copy(finished, tmp_path)
    results = sincere.transfer(folder, other, probe="both", probe_epochs=20, quiet=True)
    written = folder / "transfer" / "other"
    assert Results.read(written) == results
    assert results.kind == "transfer"
    assert results.data.name == "other"
    assert {path.name for path in written.iterdir()} >= {*PROBES.values(), EMBEDDINGS, PER_IMAGE, "report.html"}
    for name in ("knn1", "linear", "linear_paper"):
        assert results.rows[0].metrics[name].estimate > 0.8, name
    elsewhere = sincere.transfer(
        folder, other, classes=("0", "2"), out=tmp_path / "two", metrics=("knn",), report=False, quiet=True
    )
    assert elsewhere.data.class_names == ("0", "2")
    assert (tmp_path / "two" / "results.json").exists()


def test_a_negative_margin_is_reported_as_negative(finished: Path, tmp_path: Path) -> None:
    """Test labels are those of another class, so that the nearest noise is nearer than the nearest target."""
    path = tmp_path / "blobs.npz"
    arrays = dict(np.load(blobs(path)))
    arrays["test_labels"] = (arrays["test_labels"] + 1) % 3
    np.savez(path, **arrays)
    results = sincere.evaluate(finished_copy(finished, tmp_path), data=str(path), report=False, quiet=True)
    figure = results.rows[0].metrics["margin"]
    assert figure.high < 0
    assert results.rows[0].metrics["knn1"].estimate < 0.5


def test_a_corrected_label_draws_another_split_and_the_note_counts_what_was_learned(tmp_path: Path) -> None:
    photos, run = tmp_path / "photos", tmp_path / "run"
    for label in range(2):
        (photos / f"{label}").mkdir(parents=True)
        for i in range(40):
            picture(photos / f"{label}" / f"{label}-{i:02d}.png", 40 + 100 * label + i)
    sincere.train(data=photos, encoder="small", size=8, out=run, **QUICK)
    sincere.evaluate(run, metrics=("knn",), report=False, quiet=True)
    trained_on = set(Reference.read(run).texts)
    (photos / "1" / "1-07.png").rename(photos / "0" / "1-07.png")
    results = sincere.evaluate(run, metrics=("knn",), report=False, quiet=True)
    learned = len(trained_on & set(sincere.load_dataset(str(photos), size=8).test.texts))
    assert learned > 0, "the split is the same: the test shows nothing"
    note = next(note for note in results.notes if note.startswith("these are not the images"))
    assert f"{learned} of the 16 test images were training images of the run" in note


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metrics": ("knm",)}, "evaluate: metrics must be one of .*Did you mean 'knn'"),
        ({"ks": (61,)}, "ks must be at most 60, the training images there are; got 61"),
        ({"ks": (0,)}, "ks must be at least 1; got 0"),
        ({"metrics": ()}, "metrics must have at least one value"),
        ({"resamples": 3}, "resamples must be at least 100"),
        ({"prob": "fast"}, "prob is not a setting; did you mean 'probe'"),
        ({"device": "tpu"}, "device must be one of"),
    ],
)
def test_bad_settings(options: dict[str, object], message: str, finished: Path, tmp_path: Path) -> None:
    with pytest.raises(InputValueError, match=message):
        sincere.evaluate(finished_copy(finished, tmp_path), report=False, quiet=True, **options)


def test_bad_folders_and_data(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(tmp_path / "nothing")]) == 2
    assert capsys.readouterr().err.endswith("nothing: does not exist\n")
    (tmp_path / "photos-sincere-0").mkdir()
    assert main(["evaluate", str(tmp_path / "photos")]) == 2
    assert capsys.readouterr().err.endswith(f"photos: does not exist; did you mean {tmp_path}/photos-sincere-0?\n")
    assert main(["evaluate", str(tmp_path)]) == 2
    assert capsys.readouterr().err.endswith(": holds no run; config.toml is missing\n")
    assert main(["evaluate"]) == 2
    assert capsys.readouterr().err == "sincere: evaluate: RUN is missing; put it before the options\n"
    assert main(["transfer", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "sincere: transfer: to is missing: name the other data set, or a recipe\n"
    folder = finished_copy(finished, tmp_path)
    with pytest.raises(DataError, match="was trained on other classes than those of digits"):
        sincere.evaluate(folder, data="digits", report=False, quiet=True)
    path = tmp_path / "lacking.npz"
    arrays = dict(np.load(blobs(path)))
    arrays["train_labels"] = arrays["train_labels"] % 2
    np.savez(path, **arrays)
    with pytest.raises(DataError, match="class '2' has no training image"):
        sincere.evaluate(folder, data=str(path), report=False, quiet=True)
    assert not (folder / "results.json").exists()


def test_nan_in_stored_figures_is_refused(evaluated: Path, tmp_path: Path) -> None:
    arrays = read_arrays(evaluated / PER_IMAGE, remedy="")
    arrays["value_margin"][3, 0] = np.nan
    write_arrays(tmp_path / PER_IMAGE, arrays)
    with pytest.raises(DataError, match="margin is not finite for every image; evaluate the run again"):
        PerImage.read(tmp_path)
    (tmp_path / PER_IMAGE).write_bytes(b"PK damaged")
    with pytest.raises(DataError, match="is damaged; evaluate the run again"):
        PerImage.read(tmp_path)
    with pytest.raises(DataError, match="is missing; evaluate the run again"):
        PerImage.read(tmp_path / "nowhere")


def test_nan_weights_are_refused(finished: Path, tmp_path: Path) -> None:
    folder = finished_copy(finished, tmp_path)
    model = sincere.load(folder).network
    with torch.no_grad():
        next(model.head.parameters()).fill_(torch.nan)
    from sincere.models.embedding import save_model

    save_model(model, folder)
    with pytest.raises(
        DataError, match="output for image 0 is not finite; its weights are damaged or its training diverged"
    ):
        sincere.evaluate(folder, report=False, quiet=True)


def test_a_class_with_one_training_image_is_learned_from(finished: Path, tmp_path: Path) -> None:
    path = tmp_path / "single.npz"
    arrays = dict(np.load(blobs(path)))
    kept = np.flatnonzero((arrays["train_labels"] != 2) | (np.arange(60) == 2))
    np.savez(
        path, **{**arrays, "train_images": arrays["train_images"][kept], "train_labels": arrays["train_labels"][kept]}
    )
    results = sincere.transfer(
        finished_copy(finished, tmp_path), path, probe="both", probe_epochs=2, report=False, quiet=True
    )
    assert results.rows[0].metrics["linear"].estimate > 0.5
    alone = [np.flatnonzero(arrays["train_labels"] == c)[0] for c in range(3)]
    np.savez(path, **{**arrays, "train_images": arrays["train_images"][alone], "train_labels": np.arange(3)})
    with pytest.raises(DataError, match="linear needs a class with two training images; leave it out: metrics"):
        sincere.transfer(tmp_path / "whole", path, ks=(1,), quiet=True)


def test_other_images_of_the_same_classes_get_a_note(finished: Path, data: str, tmp_path: Path) -> None:
    folder = finished_copy(finished, tmp_path)
    other = blobs(tmp_path / "blobs.npz", n_test=36)
    assert any("not the images that the run" in n for n in sincere.evaluate(folder, data=other, report=False).notes)
    shutil.copy(data, tmp_path / "moved.npz")
    same = sincere.evaluate(folder, data=str(tmp_path / "moved.npz"), report=False, quiet=True)
    assert not any("not the images that the run" in note for note in same.notes)
    few = blobs(tmp_path / "few.npz", n_test=9)
    assert any("only 9 test images" in note for note in sincere.transfer(folder, few, report=False).notes)


def test_transfer_overwrites_nothing_but_a_transfer(finished: Path, tmp_path: Path) -> None:
    folder, other = finished_copy(finished, tmp_path), blobs(tmp_path / "other.npz")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    options = {"metrics": ("knn",), "report": False, "quiet": True}
    with pytest.raises(DataError, match=r"holds files that are not a transfer's, such as letter.txt"):
        sincere.transfer(folder, other, out=tmp_path / "mine", **options)
    with pytest.raises(DataError, match="is a file; choose a folder with out"):
        sincere.transfer(folder, other, out=tmp_path / "mine" / "letter.txt", **options)
    with pytest.raises(DataError, match="holds files that are not a transfer's"):
        sincere.transfer(folder, other, out=folder, **options)
    with pytest.raises(InputValueError, match="out must be the name of a folder"):
        sincere.transfer(folder, other, out="", **options)
    first = sincere.transfer(folder, other, out=tmp_path / "t", **options)
    assert sincere.transfer(folder, other, out=tmp_path / "t", **options).rows == first.rows


@pytest.mark.parametrize("content", ["{", "[]", '{"epochs": 4}'])
def test_a_damaged_summary_is_named(content: str, finished: Path, tmp_path: Path) -> None:
    folder = finished_copy(finished, tmp_path)
    (folder / "summary.json").write_text(content)
    with pytest.raises(DataError, match=r"summary\.json: is .*remove it and resume the run with `sincere train"):
        sincere.evaluate(folder, metrics=("knn",), report=False, quiet=True)


def test_earlier_results_stay_until_the_new_ones_are_written(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = finished_copy(finished, tmp_path)
    sincere.evaluate(folder, metrics=("knn",), resamples=100, quiet=True)
    (folder / "figures" / "mine.png").write_bytes(b"mine")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for name, error in (("write_csv", KeyboardInterrupt), ("write_csv", OSError), ("measure", KeyboardInterrupt)):
        with monkeypatch.context() as patch:

            def fail(*arguments: object, error: type[BaseException] = error, **options: object) -> None:
                raise error

            patch.setattr(results_module, name, fail)
            with pytest.raises(error):
                sincere.evaluate(folder, metrics=("knn", "margin"), resamples=200, quiet=True)
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    sincere.evaluate(folder, metrics=("knn", "margin"), resamples=200, report=False, quiet=True)
    assert (folder / "figures" / "mine.png").read_bytes() == b"mine"
    assert not (folder / "report.html").exists(), "it would be that of the earlier results"
    assert [path.name for path in (folder / "figures").iterdir()] == ["mine.png"]


def test_two_processes_do_not_evaluate_in_one_folder(finished: Path, tmp_path: Path) -> None:
    folder = finished_copy(finished, tmp_path)
    with locked(folder, EVALUATION_LOCK), pytest.raises(DataError, match="another process is working in it"):
        sincere.evaluate(folder, metrics=("knn",), report=False, quiet=True)


def test_paths_are_not_taken_for_markup(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "x[" / "b]"
    shutil.copytree(finished, folder)
    (folder / "model.safetensors").unlink()
    assert main(["evaluate", str(folder), "--metrics", "knn", "--no-report"]) == 0
    said = capsys.readouterr().out
    assert said.count("model.safetensors is missing; this is its last checkpoint") == 1
    assert str(folder) in said
    assert main(["datasets", "--data-dir", "x[/b]"]) == 0
    assert "x[/b]" in capsys.readouterr().out


def test_results_json_has_the_promised_keys(evaluated: Path) -> None:
    content = json.loads((evaluated / "results.json").read_text())
    assert content["schema"] == 1
    (row,) = content["rows"]
    assert {"loss", "seed", "metrics", "train_loss", "seconds"} <= row.keys()
    assert row["metrics"]["margin"].keys() == {"estimate", "low", "high"}
    assert row["train_loss"].keys() == {"first", "last"}
    (evaluated / "results.json").read_text().index('"differences": []')
    damaged = evaluated.parent / "damaged"
    damaged.mkdir()
    (damaged / "results.json").write_text('{"schema": 2}')
    with pytest.raises(DataError, match="is damaged or of another version"):
        Results.read(damaged)
