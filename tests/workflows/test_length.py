"""Minutes in place of epochs: as many epochs as fit, the same weights as with that number, and a plan that stays."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import sincere
from sincere.errors import InputValueError
from sincere.training.fit import Fit
from sincere.workflows.run_folder import RunFolder
from tests.workflows.conftest import QUICK
from tests.workflows.trained_runs import same_weights, stopped_after

OPTIONS: dict[str, Any] = {name: value for name, value in QUICK.items() if name != "epochs"}


@pytest.fixture
def two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch takes two seconds; it is timed all the same."""
    real = Fit.epoch_seconds
    monkeypatch.setattr(Fit, "epoch_seconds", lambda fit: 2.0 if real(fit) > 0 else 0.0)


@pytest.mark.usefixtures("two_seconds")
def test_as_many_epochs_as_fit(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {**OPTIONS, "quiet": False}
    assert sincere.train(data=data, minutes=0.11, out=tmp_path / "a", **options).epochs == 3
    assert "an epoch takes about 2 s on this machine: 3 epochs in 0.11 minutes" in capsys.readouterr().out
    sincere.train(data=data, epochs=3, out=tmp_path / "b", **options)
    assert same_weights(tmp_path / "a", tmp_path / "b"), "the timed steps leave no trace"
    stored = [RunFolder(tmp_path / name).stored_settings() for name in "ab"]
    assert stored[0] == stored[1]


@pytest.mark.usefixtures("two_seconds")
def test_at_least_one_epoch(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sincere.train(data=data, minutes=0.01, out=tmp_path / "run", **OPTIONS).epochs == 1
    assert "a single epoch takes about 2 s, longer than --minutes 0.01" in capsys.readouterr().err


def test_a_resumed_run_keeps_its_plan(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fit, "epoch_seconds", lambda fit: 1.0)
    stopped_after(5, monkeypatch, data=data, minutes=0.055, out=tmp_path / "run", **OPTIONS)
    monkeypatch.setattr(Fit, "epoch_seconds", lambda fit: pytest.fail("it has a plan"))
    result = sincere.train(data=data, minutes=0.055, resume=True, out=tmp_path / "run", **OPTIONS)
    assert result.epochs == 3


def test_the_runs_of_a_comparison_have_the_same_length(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fit, "epoch_seconds", lambda fit: 1.0)
    options = {**OPTIONS, "data": data, "minutes": 0.04, "out": tmp_path / "c", "metrics": ("margin", "knn")}
    first = sincere.compare(losses=("sincere", "supcon"), **options)
    assert [row.epochs for row in first.rows] == [2, 2]
    monkeypatch.setattr(Fit, "epoch_seconds", lambda fit: pytest.fail("its runs have a length"))
    assert sincere.compare(losses=("sincere", "supcon"), **options) == first, "done already"
    more = sincere.compare(losses=("sincere", "supcon", "eps-supinfonce"), **options)
    assert [row.epochs for row in more.rows] == [2, 2, 2]


def test_the_time_of_an_epoch(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of 0.1 s, three of them in an epoch; the first ones, slower, do not count."""
    found, n_steps, real = list[float](), list[int](), Fit._step

    def slow(fit: Fit, batch: Any) -> Any:
        time.sleep(1.0 if len(n_steps) < 2 else 0.1)
        n_steps.append(1)
        return real(fit, batch)

    real_seconds = Fit.epoch_seconds

    def timed(fit: Fit) -> float:
        found.append(real_seconds(fit))
        raise KeyboardInterrupt  # the run need not start

    monkeypatch.setattr(Fit, "_step", slow)
    monkeypatch.setattr(Fit, "epoch_seconds", timed)
    with pytest.raises(KeyboardInterrupt):
        sincere.train(data=data, minutes=1, out=tmp_path / "run", **OPTIONS)
    assert 0.3 <= found[0] < 0.9
    assert not (tmp_path / "run").exists(), "nothing is written before the plan is made"


def test_epochs_and_minutes_exclude_each_other(data: str, tmp_path: Path) -> None:
    for verb in (sincere.train, sincere.compare):
        with pytest.raises(InputValueError, match="epochs and minutes both say how long to train; give one of them"):
            verb(data=data, epochs=2, minutes=2, out=tmp_path / "run", quiet=True)
    with pytest.raises(InputValueError, match="minutes must be greater than 0; got 0"):
        sincere.train(data=data, minutes=0, out=tmp_path / "run")
