"""An evaluation lists doubtful labels as `sincere labels` does, where that is cheap, and the report shows them."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest

import sincere
from sincere.cli import main
from sincere.loss_catalog import RAW_FEATURES
from sincere.records.label_issues import LABEL_ISSUES, LABEL_LIST, LabelList
from sincere.workflows import label_list
from sincere.workflows.label_list import is_cheap
from tests.workflows.conftest import QUICK

WRONG, WRONG_IN_TEST = (4, 40), 7


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three clusters with two wrong labels in training, and one in the test part."""
    path = tmp_path_factory.mktemp("features") / "data.npz"
    generator = np.random.default_rng(0)
    labels = np.arange(150) % 3
    vectors = np.eye(3)[labels] @ generator.normal(size=(3, 6)) + 0.2 * generator.normal(size=(150, 6))
    wrong = labels.copy()
    wrong[list(WRONG)] = (labels[list(WRONG)] + 1) % 3
    test_labels = labels[:30].copy()
    test_labels[WRONG_IN_TEST] = (labels[WRONG_IN_TEST] + 1) % 3
    texts = {f"{part}_texts": np.array([f"{part} {i}" for i in range(n)]) for part, n in (("train", 150), ("test", 30))}
    arrays = {
        "train_features": vectors,
        "train_labels": wrong,
        "test_features": vectors[:30],
        "test_labels": test_labels,
    }
    np.savez(path, **arrays, **texts)
    return str(path)


def rows(folder: Path) -> list[list[str]]:
    return list(csv.reader((folder / LABEL_ISSUES).open()))[1:]


def test_evaluate_lists_what_the_command_lists(features: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    sincere.train(data=features, out=run, **QUICK)
    sincere.evaluate(run, resamples=100, quiet=True)
    assert {(row[0], row[4]) for row in rows(run)} == {
        *((f"train {i}", "training") for i in WRONG),
        (f"test {WRONG_IN_TEST}", "test"),
    }
    found = LabelList.read(run, 3)
    assert (found.basis, found.n_samples, found.n_issues, found.thumbnails) == ("features", 180, 3, None)
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "3 have another label than most of their 30 nearest neighbours by features" in page
    assert "train 40" in page
    before = (run / LABEL_ISSUES).read_text()
    assert main(["labels", str(run), "--quiet"]) == 0
    assert (run / LABEL_ISSUES).read_text() == before
    assert main(["labels", str(run), "--k", "3", "--quiet"]) == 0
    assert LabelList.read(run, 3).k == 3
    assert "of their 3 nearest neighbours by features" in (run / "report.html").read_text(encoding="utf-8")


def test_images_are_compared_by_embeddings(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    sincere.evaluate(run, resamples=100, quiet=True, report=False)
    found = LabelList.read(run, 3)
    assert (found.basis, found.n_samples, found.epochs) == ("embeddings", 90, 4)
    before = [getattr(found, name).tolist() for name in ("ids", "labels", "suggested", "agreement")]
    assert len(rows(run)) == found.n_issues
    assert main(["labels", str(run), "--quiet"]) == 0
    again = LabelList.read(run, 3)
    assert [getattr(again, name).tolist() for name in ("ids", "labels", "suggested", "agreement")] == before
    assert not (run / "report.html").exists(), "there was none to update"


def test_large_data_are_left_to_the_command(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    monkeypatch.setattr(label_list, "MOST_MULTIPLICATIONS", 1000)
    sincere.evaluate(run, resamples=100, quiet=True)
    assert not (run / LABEL_LIST).exists()
    assert "sincere labels ." in (run / "report.html").read_text(encoding="utf-8")
    assert main(["labels", str(run), "--quiet"]) == 0
    assert "sincere labels ." not in (run / "report.html").read_text(encoding="utf-8")
    sincere.evaluate(run, resamples=120, quiet=True)
    assert (run / LABEL_LIST).exists(), "the list of the same model and data stays"
    assert "sincere labels ." not in (run / "report.html").read_text(encoding="utf-8")


def test_a_comparison_of_features_looks_once(features: str, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    sincere.compare(data=features, losses=("sincere", "supcon"), out=folder, resamples=100, **QUICK)
    lists = [path.parent.name for path in folder.glob(f"runs/*/{LABEL_LIST}")]
    assert lists == [RAW_FEATURES]
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "train 40" in page
    assert f"runs/{RAW_FEATURES}/label_issues.csv" in page


def test_a_transfer_does_not_look(finished: Path, data: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    sincere.transfer(run, data, resamples=100, quiet=True)
    assert not list(run.rglob(LABEL_LIST))


def test_cost() -> None:
    assert is_cheap(1_438, 128)
    assert is_cheap(10_000, 1_280)
    assert not is_cheap(20_000, 128)
