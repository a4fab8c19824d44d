"""`compare` trains under the same conditions, goes on where it was, and does nothing twice."""

from __future__ import annotations

import csv
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import sincere
from sincere.cli import main
from sincere.cli.flags import parse_request
from sincere.data.loader import ViewLoader
from sincere.errors import DataError, InputValueError
from sincere.records.arrays import PER_IMAGE, PerImage
from sincere.records.results import Results
from sincere.settings.requests import CompareRequest
from sincere.statistics.bootstrap import intervals
from sincere.training.checkpoints import Checkpoints
from sincere.training.fit import Fit
from sincere.training.interruption import InterruptedRunError
from sincere.workflows import compare as compare_module
from sincere.workflows import embedded_data as embedded_module
from sincere.workflows.run_folder import RunFolder
from tests.workflows.conftest import QUICK, blobs

LOSSES = ("sincere", "supcon", "eps-supinfonce")
OPTIONS: dict[str, Any] = {**QUICK, "losses": LOSSES, "seeds": (0, 1), "resamples": 200}


@pytest.fixture(scope="module")
def compared(data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared") / "comparison"
    sincere.compare(data=data, out=folder, **OPTIONS)
    return folder


def test_rows_differences_and_summaries(compared: Path) -> None:
    results = Results.read(compared)
    assert [(row.loss, row.seed) for row in results.rows] == [(loss, seed) for seed in (0, 1) for loss in LOSSES]
    n_metrics = len(results.metrics)
    assert list(results.metrics)[:4] == ["margin", "knn1", "knn5", "linear"]
    assert len(results.differences) == 3 * n_metrics
    assert [summary.loss for summary in results.summaries] == list(LOSSES)
    images = {row.loss: [] for row in results.rows}
    for row in results.rows:
        images[row.loss].append(PerImage.read(compared / row.folder).values["margin"])
    expected = intervals([images[loss] for loss in LOSSES], n_resamples=200)
    margins = [d for d in results.differences if d.metric == "margin"]
    for difference, estimate in zip(margins, expected.differences.values(), strict=True):
        assert (difference.estimate, difference.low, difference.high) == (
            estimate.estimate,
            estimate.low,
            estimate.high,
        )
        assert difference.significant == (estimate.low > 0 or estimate.high < 0)
    assert all(set(summary.seed_std) == set(results.metrics) for summary in results.summaries)
    assert results.scope == "trained models"
    (note,) = (note for note in results.notes if "about these trained models, not about the losses" in note)
    assert f"--out {compared} " in note
    assert note.endswith("--seeds 0 1 2`")
    assert not any("differences were tested" in note for note in results.notes)
    assert any("does not compare margins of eps-SupInfoNCE" in note for note in results.notes)
    content = json.loads((compared / "results.json").read_text())
    assert content["differences"][0].keys() == {"metric", "a", "b", "estimate", "low", "high", "significant"}


def test_three_seeds_are_about_the_losses(data: str, tmp_path: Path) -> None:
    options = {**OPTIONS, "seeds": (2, 0, 1), "epochs": 1}
    results = sincere.compare(data=data, out=tmp_path / "c", **options)
    assert results.scope == "losses"
    assert [summary.seeds for summary in results.summaries] == [(0, 1, 2)] * 3
    assert any(f"{3 * len(results.metrics)} differences were tested" in note for note in results.notes)
    assert not any("trained models" in note for note in results.notes)
    for summary in results.summaries:
        for name, estimate in summary.metrics.items():
            values = [row.metrics[name].estimate for row in results.rows if row.loss == summary.loss]
            assert estimate.estimate == pytest.approx(np.mean(values))
            assert summary.seed_std[name] == pytest.approx(np.std(values, ddof=1))


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ({}, "--seeds 0 1 2"),
        ({"data": "my photos", "epochs": 15, "quiet": True}, "--data 'my photos' --epochs 15 --seeds 0 1 2"),
        ({"losses": ("supcon",), "seeds": (1,), "overwrite": True}, "--losses supcon --seeds 1 0 2"),
        ({"skip_bad_images": True, "seeds": (7, 8)}, "--skip-bad-images --seeds 7 8 0"),
        ({"epochs": 15, "skip_bad_images": False}, "--epochs 15 --seeds 0 1 2"),
    ],
)
def test_the_command_that_adds_seeds(settings: dict[str, Any], flags: str) -> None:
    request = CompareRequest.make(**settings)
    assert compare_module.command_with_seeds(request) == f"sincere compare {flags}"
    words = shlex.split(compare_module.command_with_seeds(request))[2:]
    again = parse_request(CompareRequest, words)
    assert compare_module.command_with_seeds(again) == compare_module.command_with_seeds(request)
    kept = {"seeds", "quiet", "overwrite"}
    assert again.model_dump(exclude=kept) == request.model_dump(exclude=kept)


def test_csv_has_a_line_for_each_run_and_metric(compared: Path) -> None:
    with (compared / "results.csv").open() as file:
        lines = list(csv.DictReader(file))
    results = Results.read(compared)
    assert len(lines) == len(results.rows) * len(results.metrics)
    first = next(line for line in lines if line["metric"] == "knn1")
    assert float(first["estimate"]) == results.rows[0].metrics["knn1"].estimate


def test_same_weights_and_batches_for_each_loss_within_a_seed(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[dict[str, torch.Tensor]] = []
    seen: list[list[int]] = []
    real_run, real_batch = Fit.run, ViewLoader.batch

    def run(self: Fit) -> None:
        started.append({name: value.clone() for name, value in self.model.state_dict().items()})
        seen.append([])
        real_run(self)

    def batch(self: ViewLoader, step: int) -> Any:
        made = real_batch(self, step)
        if step == 2:
            seen[-1] += [*made.ids.tolist(), float(made.inputs.sum())]
        return made

    monkeypatch.setattr(Fit, "run", run)
    monkeypatch.setattr(ViewLoader, "batch", batch)
    sincere.compare(data=data, out=tmp_path / "c", metrics=("knn",), **{**OPTIONS, "losses": ("sincere", "supcon")})
    one, other, next_seed, _ = started
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert any(not torch.equal(one[name], next_seed[name]) for name in one)
    assert seen[0] == seen[1] != seen[2]
    weights = [load_file(tmp_path / "c" / "runs" / f"{loss}-0" / "model.safetensors") for loss in ("sincere", "supcon")]
    assert any(not torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_the_same_request_returns_the_stored_result(compared: Path, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path: path.stat().st_mtime_ns for path in compared.rglob("*")}
    monkeypatch.setattr(compare_module, "load_data", lambda *arguments: pytest.fail("loads data"))
    again = sincere.compare(data=data, out=compared, **OPTIONS)
    assert again == Results.read(compared)
    assert before == {path: path.stat().st_mtime_ns for path in compared.rglob("*")}


def test_another_loss_reuses_the_finished_runs(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {**OPTIONS, "seeds": (0,), "metrics": ("knn",)}
    sincere.compare(data=data, out=tmp_path, **{**options, "losses": ("sincere", "supcon")})
    trained: list[str] = []
    real = compare_module.train_run
    monkeypatch.setattr(
        compare_module,
        "train_run",
        lambda request, *rest, **more: trained.append(request.loss.name) or real(request, *rest, **more),
    )
    more = sincere.compare(data=data, out=tmp_path, **options)
    assert trained == ["eps-supinfonce"]
    assert [row.loss for row in more.rows] == list(LOSSES)
    measured = sincere.compare(data=data, out=tmp_path, **{**options, "metrics": ("knn", "margin")})
    assert trained == ["eps-supinfonce"]
    assert set(measured.metrics) == {"knn1", "knn5", "margin"}


def test_an_interrupted_comparison_goes_on_to_the_same_end(
    compared: Path, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, steps = Checkpoints.save, list[bool]()

    def save(self: Checkpoints, *arguments: Any) -> Path:
        path = real(self, *arguments)
        steps.append("supcon" in str(path))
        if sum(steps) == 3:  # within the second run
            raise InterruptedRunError("stopped")
        return path

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", save)
        with pytest.raises(InterruptedRunError):
            sincere.compare(data=data, out=tmp_path, checkpoint_minutes=0, **OPTIONS)
    finished = [path.parent.name for path in tmp_path.glob("runs/*/summary.json")]
    assert finished == ["sincere-0"]
    assert not (tmp_path / "results.json").exists()
    results = sincere.compare(data=data, out=tmp_path, **OPTIONS)
    whole = Results.read(compared)
    assert results.differences == whole.differences
    assert [row.metrics for row in results.rows] == [row.metrics for row in whole.rows]


def test_other_settings_are_refused_and_overwrite_begins_again(compared: Path, data: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="its run has epochs = 4, not 5; choose another folder with out, or start"):
        sincere.compare(data=data, out=compared, **{**OPTIONS, "epochs": 5})
    (tmp_path / "letter.txt").write_text("dear")
    for overwrite in (False, True):
        with pytest.raises(DataError, match=r"holds files that are not a comparison's, such as letter.txt"):
            sincere.compare(data=data, out=tmp_path, overwrite=overwrite, **OPTIONS)
    assert (tmp_path / "letter.txt").exists()
    (tmp_path / "letter.txt").unlink()
    options = {**OPTIONS, "losses": ("sincere",), "seeds": (0,), "metrics": ("knn",)}
    one = sincere.compare(data=data, out=tmp_path, **options)
    assert one.differences == ()
    again = sincere.compare(data=data, out=tmp_path, overwrite=True, **{**options, "epochs": 1})
    assert again.rows[0].epochs == 1


def test_damaged_and_foreign_evaluations_are_measured_anew(data: str, tmp_path: Path) -> None:
    options = {**OPTIONS, "losses": ("sincere", "supcon"), "seeds": (0,)}
    first = sincere.compare(data=data, out=tmp_path / "c", **options)
    runs = tmp_path / "c" / "runs"
    sincere.evaluate(runs / "sincere-0", data=blobs(tmp_path / "b.npz", n_test=36), report=False, resamples=200)
    content = bytearray((runs / "supcon-0" / PER_IMAGE).read_bytes())
    content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    (runs / "supcon-0" / PER_IMAGE).write_bytes(content)
    (tmp_path / "c" / "report.html").unlink()
    again = sincere.compare(data=data, out=tmp_path / "c", **options)
    assert again.differences == first.differences


def test_overwrite_removes_a_comparison_only_and_only_when_it_can_begin(data: str, tmp_path: Path) -> None:
    options = {**OPTIONS, "losses": ("sincere",), "seeds": (0,), "metrics": ("knn",)}
    project = tmp_path / "project"
    (project / "runs" / "mine").mkdir(parents=True)
    (project / "runs" / "mine" / "notes.txt").write_text("dear")
    with pytest.raises(DataError, match=r"mine: holds files that are not a run's, such as notes\.txt"):
        sincere.compare(data=data, out=project, overwrite=True, **options)
    with pytest.raises(InputValueError, match="out must be the name of a folder"):
        sincere.compare(data=data, out="", overwrite=True, **options)
    sincere.compare(data=data, out=tmp_path / "c", **options)
    with pytest.raises(DataError, match=r"typo\.npz: no such file"):
        sincere.compare(data="typo.npz", out=tmp_path / "c", overwrite=True, **options)
    run = RunFolder(tmp_path / "c" / "runs" / "sincere-0")
    with run.locked(), pytest.raises(DataError, match="another process is working in it"):
        sincere.compare(data=data, out=tmp_path / "c", overwrite=True, **options)
    assert (tmp_path / "c" / "runs" / "sincere-0" / "model.safetensors").exists()
    (tmp_path / "c" / "runs" / "notes.txt").write_text("dear")
    with pytest.raises(DataError, match=r"notes\.txt: is not a comparison's"):
        sincere.compare(data=data, out=tmp_path / "c", overwrite=True, **options)


def test_it_says_which_run_is_next(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {**OPTIONS, "losses": ("sincere",), "seeds": (0,), "metrics": ("knn",), "quiet": False}
    sincere.compare(data=data, out=tmp_path / "c", **options)
    assert "\n\n[1/1] sincere, seed 0\n" in capsys.readouterr().out


def test_changed_data_are_noticed(tmp_path: Path) -> None:
    data = blobs(tmp_path / "blobs.npz")
    options = {**OPTIONS, "losses": ("sincere",), "seeds": (0,), "metrics": ("knn",)}
    sincere.compare(data=data, out=tmp_path / "c", **options)
    blobs(tmp_path / "blobs.npz", n_test=33)
    with pytest.raises(DataError, match=r"was trained on other data than .*blobs.npz holds now; choose another folder"):
        sincere.compare(data=data, out=tmp_path / "c", **options)
    assert sincere.compare(data=data, out=tmp_path / "c", overwrite=True, **options).data.n_test == 33


def test_one_pixel_among_many_is_noticed(tmp_path: Path) -> None:
    data = blobs(tmp_path / "blobs.npz")
    options = {**OPTIONS, "losses": ("sincere",), "seeds": (0,), "metrics": ("knn",)}
    sincere.compare(data=data, out=tmp_path / "c", **options)
    with np.load(data) as file:
        arrays = dict(file)
    arrays["train_images"][17, 3, 3] ^= 1
    np.savez(data, **arrays)
    with pytest.raises(DataError, match=r"was trained on other data"):
        sincere.compare(data=data, out=tmp_path / "c", **options)


@pytest.mark.parametrize("moment", ["write_request", "set_aside", "train_run"])
def test_a_killed_overwrite_can_be_repeated(
    moment: str, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**OPTIONS, "losses": ("sincere",), "seeds": (0,), "metrics": ("knn",)}
    first = sincere.compare(data=data, out=tmp_path / "c", **options)

    def kill(*arguments: object, **more: object) -> None:
        raise KeyboardInterrupt

    for again in ({}, {"overwrite": True}):
        with monkeypatch.context() as patch:
            patch.setattr(RunFolder if moment == "set_aside" else compare_module, moment, kill)
            with pytest.raises(KeyboardInterrupt):
                sincere.compare(data=data, out=tmp_path / "c", overwrite=True, **options)
        assert (
            sincere.compare(data=data, out=tmp_path / "c", **options, **again).rows[0].metrics == first.rows[0].metrics
        )


def test_a_comparison_is_extended_on_a_machine_with_more_cores(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**OPTIONS, "losses": ("sincere",), "metrics": ("knn",)}
    sincere.compare(data=data, out=tmp_path / "c", **{**options, "seeds": (0,)})
    monkeypatch.setattr("sincere.workflows.defaults._threads", lambda *arguments: 2)
    assert len(sincere.compare(data=data, out=tmp_path / "c", **{**options, "seeds": (0, 1)}).rows) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"losses": ("sincere", "supcom")}, "losses must be one of .*Did you mean 'supcon'"),
        ({"losses": ("sincere", "sincere")}, "each one once; got sincere sincere"),
        ({"losses": ()}, "losses and seeds must be given"),
        ({"seeds": (1, 1)}, "each one once; got 1 1"),
        ({"loss": "supcon"}, "loss is not a setting; did you mean 'losses'"),
        ({"seed": 1}, "did you mean 'seeds'"),
        ({"metrics": ("knm",)}, "Did you mean 'knn'"),
        ({"devices": 0}, "devices must be at least 1"),
    ],
)
def test_bad_settings(options: dict[str, Any], message: str, data: str, tmp_path: Path) -> None:
    with pytest.raises(InputValueError, match=message):
        sincere.compare(data=data, out=tmp_path / "c", quiet=True, **options)
    assert not (tmp_path / "c").exists()


def test_the_command_ends_with_a_table_a_sentence_and_the_report(
    compared: Path, data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--epochs", "4", "--batch-size", "20", "--head", "linear", "--dim", "8", "--resamples", "200"]
    assert main(["compare", "--data", data, "--out", str(compared), "--seeds", "0", "1", *words]) == 0
    said = capsys.readouterr().out
    assert "is done already; --overwrite starts over" in said
    for word in ("SINCERE against SupCon", "eps-supinfonce", "training", f"report: {compared / 'report.html'}"):
        assert word in said
    assert main(["compare", "--loss", "supcon"]) == 2
    assert "Did you mean --losses?" in capsys.readouterr().err
    code = f"from sincere.cli import main; main(['compare', '--data', {data!r}, '--out', {str(compared)!r}, '--seeds',"
    code += f" '0', '1', *{words!r}]); import sys; sys.exit('torch' in sys.modules)"
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert time.perf_counter() - start < 10  # about a second on an idle machine


def test_a_report_of_earlier_results_does_not_stay_beside_new_ones(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**OPTIONS, "losses": ("sincere",), "metrics": ("knn",)}
    sincere.compare(data=data, out=tmp_path / "c", **{**options, "seeds": (0,)})

    def kill(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(compare_module, "write_report", kill)
    with pytest.raises(KeyboardInterrupt):
        sincere.compare(data=data, out=tmp_path / "c", **{**options, "seeds": (0, 1)})
    assert len(Results.read(tmp_path / "c").rows) == 2
    assert not (tmp_path / "c" / "report.html").exists()


def test_images_are_embedded_once(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The final check of a training run and its evaluation share their embeddings; a later evaluation agrees."""
    parts: list[int] = []
    real = embedded_module.embed_part
    monkeypatch.setattr(embedded_module, "embed_part", lambda *rest: parts.append(1) or real(*rest))
    options = {**OPTIONS, "losses": ("sincere",), "seeds": (0,), "metrics": ("knn", "margin")}
    compared = sincere.compare(data=data, out=tmp_path / "c", **options)
    assert len(parts) == 2, "the training and the test part"
    again = sincere.evaluate(
        tmp_path / "c" / "runs" / "sincere-0", metrics=("knn", "margin"), resamples=200, quiet=True
    )
    assert len(parts) == 4
    assert again.rows[0].metrics == compared.rows[0].metrics
