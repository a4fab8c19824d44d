"""Runs on long-tailed data: part of what a run is, resumed, evaluated and compared by groups of classes."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import sincere
from sincere.errors import DataError
from sincere.workflows.run_folder import RunFolder
from tests.workflows.conftest import QUICK
from tests.workflows.trained_runs import same_weights, stopped_after

GROUPS = {"knn1_many", "knn1_medium", "knn1_few", "knn1_balanced"}
DIGITS = {"data": "digits", "imbalance": 50, "epochs": 4, "batch_size": 64, "quiet": True, "threads": 1}
MEASURED = {"resamples": 100, "report": False, "quiet": True}


def test_resumed_and_evaluated_it_is_the_same_tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sincere.train(out=tmp_path / "whole", **DIGITS)
    stopped_after(7, monkeypatch, out=tmp_path / "parts", **DIGITS)
    sincere.train(resume=True, out=tmp_path / "parts", quiet=True)
    assert same_weights(tmp_path / "whole", tmp_path / "parts")
    assert RunFolder(tmp_path / "parts").stored_settings()["imbalance"] == 50
    results = sincere.evaluate(tmp_path / "parts", **MEASURED)
    assert results.data.n_train == 399
    assert results.data.n_test == 359
    assert results.data.digest == sincere.load_dataset("digits", imbalance=50).digest
    metrics = results.rows[0].metrics
    assert metrics.keys() >= {*GROUPS, "knn1", "margin"}
    many, few = metrics["knn1_many"], metrics["knn1_few"]
    assert many.estimate > few.estimate
    assert all(metrics[name].low <= metrics[name].estimate <= metrics[name].high for name in GROUPS)
    assert few.high - few.low > 0
    named = sincere.evaluate(tmp_path / "parts", metrics=("knn",), **MEASURED)
    assert not {*named.metrics} & {"knn1_many", "knn1_few"}


def test_another_imbalance_is_another_run(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {**QUICK, "data": data, "batch_size": 8}
    stopped_after(2, monkeypatch, out=tmp_path / "run", imbalance=4, **options)
    with pytest.raises(DataError, match="imbalance"):
        sincere.train(resume=True, out=tmp_path / "run", imbalance=5, quiet=True)


def test_without_imbalance_the_groups_are_not_measured_unless_named(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    assert not {*sincere.evaluate(run, **MEASURED).metrics} & GROUPS
    named = sincere.evaluate(run, metrics=("knn", "long-tail"), **MEASURED)
    assert {*named.metrics} & GROUPS == {"knn1_balanced", "knn1_medium"}


@pytest.mark.slow
def test_a_comparison(tmp_path: Path) -> None:
    options = {**DIGITS, "epochs": 1, "losses": ("sincere", "supcon"), "resamples": 100}
    results = sincere.compare(out=tmp_path / "both", **options)
    assert {found.metric for found in results.differences} >= GROUPS
    again = sincere.compare(out=tmp_path / "both", **options)
    assert again == results
    with pytest.raises(DataError):
        sincere.compare(out=tmp_path / "both", **{**options, "imbalance": 10})


def test_features(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(300) % 3
    features = generator.normal(size=(300, 5)) + 3 * np.eye(3, 5)[labels]
    np.savez(
        tmp_path / "f.npz",
        train_features=features[:240],
        train_labels=labels[:240],
        test_features=features[240:],
        test_labels=labels[240:],
    )
    out = tmp_path / "run"
    sincere.train(data=tmp_path / "f.npz", imbalance=16, out=out, epochs=3, batch_size=16, dim=4, quiet=True)
    results = sincere.evaluate(out, **MEASURED)
    assert results.data.n_train == 80 + 20 + 5
    assert {*results.metrics} & GROUPS == {"knn1_balanced", "knn1_medium", "knn1_few"}


def test_frozen_features(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINCERE_HOME", str(tmp_path / "home"))
    sincere.train(data=data, out=tmp_path / "first", **QUICK)
    options = {"weights": tmp_path / "first" / "model.safetensors", "freeze": True, **QUICK, "batch_size": 8}
    for name, more in (("whole", {}), ("tailed", {"imbalance": 5})):
        sincere.train(data=data, out=tmp_path / name, **options, **more)
    results = sincere.evaluate(tmp_path / "tailed", **MEASURED)
    assert results.data.n_train == 20 + 8 + 4
    assert "knn1_few" in results.metrics
    assert sincere.evaluate(tmp_path / "whole", **MEASURED).data.n_train == 60


def test_the_known_data_are_no_unknown_data(data: str, tmp_path: Path) -> None:
    sincere.train(data=data, out=tmp_path / "run", imbalance=4, **{**QUICK, "batch_size": 8})
    with pytest.raises(DataError, match="is the data that the model knows"):
        sincere.evaluate(tmp_path / "run", unknown_data=data, **MEASURED)
