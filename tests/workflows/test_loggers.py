"""Experiment loggers get settings, metrics and results, and cannot harm a run."""

from __future__ import annotations

import csv
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lightning_fabric.loggers import CSVLogger

import sincere
from sincere.errors import DataError, InputTypeError, InputValueError, MissingPackageError
from sincere.records.log import MetricsLog
from tests.workflows.conftest import QUICK


def logged_losses(folder: Path) -> list[float]:
    return [row["loss"] for row in MetricsLog(folder / "metrics.jsonl").rows()]


def tensorboard_losses(folder: Path) -> list[float]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return [event.value for event in events.Scalars("loss")]


def test_a_given_logger_gets_settings_and_metrics(data: str, tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path, name="csv", version="")
    settings: list[dict[str, Any]] = []
    logger.log_hyperparams = settings.append  # type: ignore[assignment,method-assign]
    result = sincere.train(data=data, out=tmp_path / "run", loggers=[logger], **QUICK)
    assert settings[0]["loss"] == "sincere"
    assert settings[0]["epochs"] == 4
    with open(tmp_path / "csv" / "metrics.csv") as file:
        rows = list(csv.DictReader(file))
    losses = [float(row["loss"]) for row in rows if row["loss"]]
    np.testing.assert_allclose(losses, logged_losses(tmp_path / "run"), rtol=1e-6)
    assert float(rows[-1]["knn1_test"]) == pytest.approx(result.knn1_test)


def test_tensorboard_has_each_epoch_once_after_a_resume(data: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    folder = tmp_path / "run"
    sincere.train(data=data, out=folder, log=["tensorboard"], checkpoint_minutes=0, **QUICK)
    whole = tensorboard_losses(folder)
    np.testing.assert_allclose(whole, logged_losses(folder), rtol=1e-6)
    (folder / "summary.json").unlink()
    for path in sorted((folder / "checkpoints").iterdir())[-1:]:
        path.unlink()  # the last epochs are trained again
    sincere.train(out=folder, resume=True, quiet=True)  # with its own loggers
    np.testing.assert_allclose(tensorboard_losses(folder), whole, rtol=1e-6)


def test_mlflow_has_the_run_and_its_report(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("lightning")
    pytest.importorskip("sqlalchemy")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    store = "sqlite:///mlflow.db"  # the default
    folder = tmp_path / "run"
    sincere.train(data=data, out=folder, log=["mlflow"], **QUICK)
    results = sincere.evaluate(folder, log=["mlflow"], metrics=["margin", "knn"], quiet=True)
    client = mlflow.MlflowClient(store)
    runs = client.search_runs([client.get_experiment_by_name("sincere").experiment_id])
    assert len(runs) == 1  # the evaluation is logged into the run that was trained
    run = runs[0]
    assert run.data.params["loss"] == "sincere"
    assert run.data.metrics["loss"] == pytest.approx(logged_losses(folder)[-1])
    assert run.data.metrics["margin"] == pytest.approx(results.rows[0].metrics["margin"].estimate)
    assert {file.path for file in client.list_artifacts(run.info.run_id)} == {
        "report.html", "results.csv", "results.json",
    }  # fmt: skip
    history = client.get_metric_history(run.info.run_id, "loss")
    assert [point.value for point in history] == pytest.approx(logged_losses(folder))


def test_wandb_offline(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    pytest.importorskip("lightning")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    folder = tmp_path / "run"
    sincere.train(data=data, out=folder, log=["wandb"], **QUICK)
    stored = list((folder / "wandb").glob("offline-run-*/*.wandb"))
    assert stored
    limit = time.monotonic() + 60  # a process of wandb's own writes the file, and may end after the run
    while b"knn1_test" not in stored[0].read_bytes() and time.monotonic() < limit:
        time.sleep(0.1)
    assert b"knn1_test" in stored[0].read_bytes()
    sincere.train(data=data, out=folder, overwrite=True, **QUICK)  # its own files are no obstacle
    assert not (folder / "wandb").exists()


def test_a_comparison_logs_its_runs_and_its_results(data: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    folder = tmp_path / "comparison"
    request: dict[str, Any] = {
        "data": data,
        "out": folder,
        "losses": ["sincere", "supcon"],
        "metrics": ["margin"],
        **QUICK,
    }
    sincere.compare(**request)
    assert not list(folder.rglob("events.*"))
    sincere.compare(log=["tensorboard"], **request)  # finished before, logged now
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    assert {"sincere-0/margin", "supcon-0/margin"} <= set(events.Tags()["scalars"])
    shutil.rmtree(folder / "runs" / "supcon-0")
    sincere.compare(log=["tensorboard"], **request)
    assert list((folder / "runs" / "supcon-0" / "tensorboard").glob("events.*"))


def test_two_loggers_of_one_kind(data: str, tmp_path: Path) -> None:
    loggers = [CSVLogger(tmp_path, name=name, version="") for name in ("one", "two")]
    sincere.train(data=data, out=tmp_path / "run", loggers=loggers, **QUICK)
    one, two = ((tmp_path / name / "metrics.csv").read_text() for name in ("one", "two"))
    assert one == two
    assert one.count("\n") >= 5


class BrokenLogger(CSVLogger):
    def log_metrics(self, *arguments: Any, **keywords: Any) -> None:
        raise ConnectionError("the server is gone")


def test_a_failing_logger_is_left_out(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    healthy = CSVLogger(tmp_path, name="csv", version="")
    broken = BrokenLogger(tmp_path, name="broken", version="")
    sincere.train(data=data, out=tmp_path / "run", loggers=[broken, healthy], **QUICK)
    warnings = capsys.readouterr().err
    assert warnings.count("the logger BrokenLogger (1) failed (the server is gone) and is left out") == 1
    assert (tmp_path / "csv" / "metrics.csv").read_text().count("\n") >= 5


def test_a_full_disk_of_tensorboard_is_one_note(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.summary.writer.record_writer import RecordWriter

    def write(writer: RecordWriter, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    printed = list[threading.ExceptHookArgs]()
    monkeypatch.setattr(threading, "excepthook", printed.append)
    monkeypatch.setattr(RecordWriter, "write", write)
    assert sincere.train(data=data, out=tmp_path / "run", log=["tensorboard"], **QUICK).epochs == 4
    assert capsys.readouterr().err.count("the logger tensorboard failed ([Errno 28] No space left on device)") == 1
    assert not printed, "a traceback of its thread"
    other = threading.Thread(target=lambda: [][0])
    other.start()
    other.join()
    assert len(printed) == 1, "other threads print theirs"


def test_unknown_and_missing_loggers(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputValueError, match="Did you mean 'mlflow'"):
        sincere.train(data=data, out=tmp_path / "run", log=["mlflo"], **QUICK)
    with pytest.raises(InputTypeError, match="loggers must be loggers of Lightning or Lightning Fabric; got str"):
        sincere.train(data=data, out=tmp_path / "run", loggers=["tensorboard"], **QUICK)  # type: ignore[list-item]
    with pytest.raises(InputTypeError, match="loggers must be a list of loggers of Lightning"):
        sincere.train(data=data, out=tmp_path / "run", loggers=CSVLogger(tmp_path), **QUICK)  # type: ignore[arg-type]
    monkeypatch.setattr("sincere.training.loggers.find_spec", lambda name: None)
    missing = r"train: the logger wandb needs lightning, .* install it with: pip install 'sincere\[wandb\]'"
    with pytest.raises(MissingPackageError, match=missing):
        sincere.train(data=data, out=tmp_path / "run", log=["wandb"], **QUICK)
    assert not (tmp_path / "run").exists()


def test_a_logger_that_cannot_be_started_leaves_no_run(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://nowhere")
    with pytest.raises(DataError, match="mlflow: the logger cannot be started"):
        sincere.train(data=data, out=tmp_path / "run", log=["mlflow"], **QUICK)
    assert sincere.train(data=data, out=tmp_path / "run", **QUICK).epochs == 4  # nothing is in its way
