"""Searches that train models: what a trial measures, resuming one, final models, and comparisons of tuned losses."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sincere
from sincere.errors import DataError, InputValueError
from sincere.records.search import SearchResults
from sincere.report.search_page import write_search_report
from sincere.training import fit as fit_module
from sincere.training.interruption import InterruptedRunError
from sincere.workflows import assembly
from tests.workflows.conftest import QUICK, blobs

GRID: dict[str, Any] = {
    "grid": "space",
    "space": ["temperature=0.05,0.1,0.3", "learning_rate=0.02,0.06"],
    "losses": ["sincere", "supcon"],
    "validation": 0.2,
    "validate_every": 1,
    **{name: value for name, value in QUICK.items() if name != "epochs"},
    "epochs": 2,
}


@pytest.fixture(autouse=True)
def _no_figure_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sincere.workflows.search.write_search_report", partial(write_search_report, figures=False))


@pytest.fixture(scope="module")
def searched(data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished search, to copy and not to change."""
    folder = tmp_path_factory.mktemp("searched") / "search"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sincere.workflows.search.write_search_report", partial(write_search_report, figures=False))
        sincere.search(data=data, out=folder, **GRID)
    return folder


def test_a_trial_is_a_run_with_validation(data: str, searched: Path, tmp_path: Path) -> None:
    found = SearchResults.read(searched)
    assert (found.n_train, found.n_validation) == (48, 12)
    trial = next(trial for trial in found.of_loss("supcon") if trial.settings["temperature"] == 0.3)
    shared = {"validation": 0.2, "validate_every": 1, **QUICK, "epochs": 2}
    sincere.train(data=data, loss="supcon", out=tmp_path / "run", **shared, **trial.settings)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert trial.value == rows[-1]["knn1_validation"]  # all training images are references of so few
    assert list(trial.curve) == [(row["epoch"], row["knn1_validation"]) for row in rows]


def test_trials_leave_no_checkpoints(searched: Path) -> None:
    runs = list((searched / "trials").glob("*/*/*"))
    assert len(runs) == 12
    assert all((run / "config.toml").exists() for run in runs)
    assert not list(searched.rglob("*.pt"))
    assert not list(searched.rglob("model.safetensors"))


def test_the_test_part_is_not_used(data: str, searched: Path, tmp_path: Path) -> None:
    with np.load(data) as arrays:
        changed = {name: arrays[name] for name in arrays.files}
    changed["test_images"] = 255 - changed["test_images"]
    np.savez(tmp_path / "changed.npz", **changed)
    found = sincere.search(data=tmp_path / "changed.npz", out=tmp_path / "s", **GRID)
    assert found is not None
    expected = SearchResults.read(searched)
    assert found.digest != expected.digest
    assert [(t.value, t.curve) for t in found.trials] == [(t.value, t.curve) for t in expected.trials]


def test_other_data_are_refused(searched: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(searched, tmp_path / "search")
    other = blobs(tmp_path / "other.npz", n_train=90)
    with pytest.raises(DataError, match="is for other data "):
        sincere.search(data=other, out=folder, **GRID)


def test_a_mean_over_seeds(data: str, searched: Path, tmp_path: Path) -> None:
    options = {**GRID, "losses": ["sincere"], "space": ["temperature=0.3", "learning_rate=0.06"]}
    one, two, both = (sincere.search(data=data, out=tmp_path / str(seeds), seeds=seeds, **options)
                      for seeds in ([0], [1], [0, 1]))  # fmt: skip
    values = [found.trials[0].value for found in (one, two) if found is not None and found.trials[0].value is not None]
    assert both is not None
    assert both.trials[0].value == pytest.approx(sum(values) / 2)
    assert one is not None
    assert both.trials[0].curve == one.trials[0].curve


def test_a_trial_that_was_stopped_resumes_from_its_checkpoint(
    data: str, searched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = list[int]()
    step = fit_module.Fit._step

    def counted(self: fit_module.Fit, batch: Any) -> Any:
        steps.append(self.state.step)
        if len(steps) == 3:  # in the second epoch of the first trial
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, batch)

    monkeypatch.setattr(fit_module.Fit, "_step", counted)
    options = {**GRID, "checkpoint_minutes": 0}
    with pytest.raises(InterruptedRunError):
        sincere.search(data=data, out=tmp_path / "s", **options)
    found = sincere.search(data=data, out=tmp_path / "s", **options)
    assert steps[:5] == [0, 1, 2, 3, 0]  # 2 steps an epoch: it resumed after the third
    expected = SearchResults.read(searched)
    assert found is not None
    assert [(t.number, t.value, t.curve) for t in found.trials] == [
        (t.number, t.value, t.curve) for t in expected.trials
    ]


@pytest.mark.slow
def test_a_comparison_of_tuned_losses(data: str, searched: Path, tmp_path: Path) -> None:
    found = SearchResults.read(searched)
    results = sincere.compare(tuned=searched, data=data, seeds=[0, 1], out=tmp_path / "c", quiet=True)
    assert {row.loss for row in results.rows} == {"sincere", "supcon"}
    for row in results.rows:
        best = found.best(row.loss)
        assert {name: row.settings[name] for name in best} == best
        assert row.settings["epochs"] == 2
        assert row.settings["validation"] == 0.0
    (note,) = [note for note in results.notes if note.startswith("each loss has its own settings")]
    assert "(6 trials)" in note
    assert "12 held-out training images" in note


def test_the_losses_of_a_comparison_must_have_been_searched(data: str, searched: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the search has no trials of infonce; it is about sincere, supcon"):
        sincere.compare(tuned=searched, data=data, losses=["infonce"], out=tmp_path / "c", quiet=True)
    with pytest.raises(InputValueError, match="compare: temperature was searched; leave it out, or leave out tuned"):
        sincere.compare(tuned=searched, data=data, temperature=0.2, out=tmp_path / "c", quiet=True)
    other = blobs(tmp_path / "other.npz", n_train=90)
    with pytest.raises(DataError, match="is a search on other data than"):
        sincere.compare(tuned=searched, data=other, out=tmp_path / "c", quiet=True)
    with pytest.raises(DataError, match=r"holds no search\.json"):
        sincere.compare(tuned=tmp_path, data=data, out=tmp_path / "c", quiet=True)
    assert not (tmp_path / "c").exists()


@pytest.mark.slow
def test_another_winner_is_another_comparison(data: str, searched: Path, tmp_path: Path) -> None:
    """A comparison is not taken for done when the search has found something better since."""
    folder = shutil.copytree(searched, tmp_path / "search")
    options: dict[str, Any] = {"tuned": folder, "data": data, "out": tmp_path / "c", "quiet": True}
    first = sincere.compare(**options)
    found = SearchResults.read(folder)
    best = {**found.losses[0].best, "temperature": 0.05 if found.best("sincere")["temperature"] != 0.05 else 0.1}
    changed = found.losses[0].model_copy(update={"best": best})
    found.model_copy(update={"losses": (changed, *found.losses[1:])}).write(folder)
    with pytest.raises(DataError, match="its run has temperature = "):
        sincere.compare(**options)
    again = sincere.compare(**options, overwrite=True)
    assert first.rows[0].settings["temperature"] != again.rows[0].settings["temperature"]


def test_final_models(data: str, tmp_path: Path) -> None:
    options = {**GRID, "space": ["temperature=0.1", "learning_rate=0.06"]}
    sincere.search(data=data, out=tmp_path / "s", final=True, **options)
    results = json.loads((tmp_path / "s" / "final" / "results.json").read_text())
    assert results["data"]["n_train"] == 60  # all of them
    assert {row["loss"] for row in results["rows"]} == {"sincere", "supcon"}
    before = (tmp_path / "s" / "final" / "results.json").read_bytes()
    sincere.search(data=data, out=tmp_path / "s", final=True, **options)
    assert (tmp_path / "s" / "final" / "results.json").read_bytes() == before  # nothing is done twice


@pytest.mark.slow
def test_final_models_of_a_search_that_went_on(data: str, tmp_path: Path) -> None:
    """Another winner replaces the final models; the search itself stays."""
    options = {name: value for name, value in GRID.items() if name not in ("grid", "space", "losses")}
    out = tmp_path / "s"
    for n_trials in (1, 4):
        found = sincere.search(
            data=data, out=out, losses=["sincere"], trials=n_trials, final=True, threads=1, **options
        )
        assert found is not None
        stored = json.loads((out / "final" / "comparison.json").read_text())["request"]
        assert stored["tuned"] == {"sincere": found.best("sincere")}
        assert stored["threads"] == 1


@pytest.mark.slow
def test_all_losses_have_the_views_that_one_needs(tmp_path: Path) -> None:
    data = blobs(tmp_path / "large.npz", side=20)  # one view is the default above 16 px
    options = {**GRID, "losses": ["sincere", "infonce"], "space": ["temperature=0.1", "learning_rate=0.06"]}
    sincere.search(data=data, out=tmp_path / "s", final=True, **options)
    configs = [*(tmp_path / "s" / "trials").rglob("config.toml"), *(tmp_path / "s" / "final").rglob("config.toml")]
    assert len(configs) == 4
    assert all("n_views = 2\n" in path.read_text() for path in configs)


def test_the_data_are_found_from_another_folder(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(data, tmp_path / "blobs.npz")
    options = {**GRID, "space": ["temperature=0.1", "learning_rate=0.06"], "losses": ["sincere"]}
    monkeypatch.chdir(tmp_path)
    sincere.search(data="blobs.npz", out="s", **options)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    sincere.search(worker=True, out="../s", quiet=True)
    sincere.compare(tuned="../s", out="c", quiet=True)


def test_frozen_features_are_computed_once_for_all_trials(
    data: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, original = list[str](), assembly.with_features

    def counted(*arguments: Any, **options: Any) -> Any:
        calls.append("features")
        return original(*arguments, **options)

    monkeypatch.setattr(assembly, "with_features", counted)
    found = sincere.search(data=data, weights=finished / "model.safetensors", freeze=True, out=tmp_path / "s", **GRID)
    assert found is not None
    assert len(found.trials) == 12
    assert calls == ["features"]


def test_ready_made_features(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(90) % 3
    features = (labels[:, None] + generator.normal(0, 0.7, (90, 6))).astype(np.float32)
    np.savez(tmp_path / "f.npz", features=features, labels=labels)
    options = {**GRID, "space": ["temperature=0.1,0.2", "learning_rate=0.001", "feature_dropout=0.1,0.5"]}
    found = sincere.search(data=tmp_path / "f.npz", out=tmp_path / "s", **options)
    assert found is not None
    assert found.noun == "samples"
    assert len(found.trials) == 8
    assert all(trial.state == "complete" for trial in found.trials)


def test_the_papers_grid_needs_sgd(data: str, tmp_path: Path) -> None:
    options = {name: value for name, value in GRID.items() if name not in ("grid", "space")}
    with pytest.raises(InputValueError, match="optimizer must be sgd for the paper's grid"):
        sincere.search(data=data, out=tmp_path / "s", grid="paper", **options)
    found = sincere.search(data=data, out=tmp_path / "s", grid="paper", optimizer="sgd", **options)
    assert found is not None
    assert len(found.of_loss("sincere")) == 6


@pytest.mark.slow
def test_a_worker_takes_the_settings_of_the_study(data: str, searched: Path, tmp_path: Path) -> None:
    """A search that was stopped before its last trials is ended by a worker that is given the folder alone."""
    folder, calls = tmp_path / "s", list[Mapping[str, Any]]()

    class StoppedError(Exception):
        pass

    from sincere.workflows import trial as trial_module

    original = trial_module.TrainingObjective.__call__

    def stopping(self: Any, loss: str, settings: Mapping[str, Any], report: Any) -> float:
        calls.append(settings)
        if len(calls) == 4:
            raise StoppedError
        return original(self, loss, settings, report)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial_module.TrainingObjective, "__call__", stopping)
        with pytest.raises(StoppedError):
            sincere.search(data=data, out=folder, **GRID)
    assert sincere.search(worker=True, out=folder, quiet=True) is None
    found = sincere.search(data=data, out=folder, **GRID)
    expected = SearchResults.read(searched)
    assert found is not None
    assert [(t.number, t.value) for t in found.trials] == [(t.number, t.value) for t in expected.trials]
