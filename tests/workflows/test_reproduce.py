"""`sincere reproduce`: tables from stored results, training of what is missing, and nothing that is guessed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import sincere
from sincere.cli import main
from sincere.errors import DataError
from sincere.recipes import Recipe, all_recipes
from sincere.records.reproduction import Costs, CurvePoint, Experiment, curve_points
from sincere.report.reproduction_cells import late_change
from sincere.report.reproduction_contents import Reproduction
from sincere.report.reproduction_page import markdown_table, tables_of
from sincere.report.reproduction_tables import paper_progress
from sincere.settings.reproduce_request import ITEMS, ReproduceRequest
from sincere.workflows.loss_costs import coefficient_extremes, known_bounds

TINY = Recipe(
    title="Two digits",
    scale="cpu",
    form="a test",
    settings={"data": "digits", "classes": ["3", "8"], "epochs": 5, "validate_every": 1, "batch_size": 64},
    evaluation={"metrics": ["margin", "knn", "linear"], "resamples": 100},
    losses={"sincere": {}, "supcon": {}},
    seeds=(0, 1),
    transfers={"other": {"to": "digits", "classes": ["1", "7"], "metrics": ["knn", "linear"], "resamples": 100}},
)


@pytest.fixture(scope="module", autouse=True)
def _one_recipe() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        known = {**all_recipes(), "tiny": TINY}
        others = {name: recipe for name, recipe in known.items() if recipe.scale == "paper" or name == "tiny"}
        patch.setattr("sincere.recipes.all_recipes", lambda: others)
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reproduction with all runs, to copy and not to change."""
    out = tmp_path_factory.mktemp("finished") / "out"
    sincere.reproduce("transfer", train=True, out=out, quiet=True)
    return out


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "out"))


def test_what_is_missing_is_named_with_its_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "margins", "--out", str(tmp_path / "out")]) == 0
    text = capsys.readouterr().out
    assert "tiny: 4 runs" in text
    assert f"sincere compare --recipe tiny --out {tmp_path / 'out' / 'runs' / 'tiny'}" in text
    assert "tiny-to-other" not in text, "transfers are not needed for margins"
    assert "digits" not in text.partition("missing:")[0], "no value is guessed"
    assert "Not run" in (tmp_path / "out" / "margins.html").read_text()
    assert main(["reproduce", "transfer", "--out", str(tmp_path / "out")]) == 0
    command = f"sincere reproduce transfer --train --scale cpu --recipes tiny --out {tmp_path / 'out'}"
    assert command in capsys.readouterr().out.replace("\n", " ")


def test_an_item_without_models_trains_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sincere.workflows.loss_costs.SIZES", (64,))
    found = sincere.reproduce("complexity", train=True, out=tmp_path / "out", quiet=True)
    assert found.missing == ()
    assert not (tmp_path / "out" / "runs").exists()
    (table,) = tables_of(found, "complexity")
    assert [row[0].text for row in table.rows] == ["64"]


@pytest.mark.slow
def test_trains_what_is_missing_once_and_rebuilds_from_what_is_stored(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Costs(rows=(), manifest={}).write(copy / "results")  # of no matter here, and takes long to measure
    again = sincere.reproduce("all", train=True, out=copy)
    text = capsys.readouterr().out
    assert again.missing == ()
    assert "[1/4]" not in text, "nothing is trained twice"
    stored = Experiment.read(copy / "results", "tiny")
    assert stored is not None
    assert [curve.loss for curve in stored.curves] == ["sincere", "supcon"] * 2
    assert len(stored.curves[0].points) == 5
    assert not any("--out" in note for note in stored.results.notes), "no path of a machine"
    shutil.rmtree(copy / "runs")
    rebuilt = sincere.reproduce("all", out=copy)
    assert rebuilt.missing == ()
    assert rebuilt.experiments == again.experiments
    assert tables_of(rebuilt, "all") == tables_of(again, "all")


def test_half_finished_transfers_are_listed_and_completed(copy: Path) -> None:
    shutil.rmtree(copy / "runs" / "tiny" / "runs" / "supcon-1" / "transfer")
    (copy / "results" / "tiny-to-other.json").unlink()
    found = sincere.reproduce("transfer", out=copy, quiet=True)
    assert [(item.name, item.runs) for item in found.missing] == [("tiny-to-other", ("sincere-1", "supcon-1"))]
    assert [row.seed for row in found.experiments["tiny-to-other"].results.rows] == [0, 0], "seeds that all losses have"
    completed = sincere.reproduce("transfer", train=True, out=copy, quiet=True)
    assert completed.missing == ()


def test_seeds_are_added_to_a_stored_transfer(copy: Path) -> None:
    """What is stored of one seed is not enough for the intervals of two."""
    runs = copy / "runs" / "tiny" / "runs"
    for run in runs.glob("*-1"):
        shutil.rmtree(run / "transfer")
    (copy / "results" / "tiny-to-other.json").unlink()
    sincere.reproduce("transfer", out=copy, quiet=True)  # stores one seed
    for run in runs.glob("*-0"):
        shutil.rmtree(run / "transfer")
    completed = sincere.reproduce("transfer", train=True, out=copy, quiet=True)
    assert completed.missing == ()
    assert len(completed.experiments["tiny-to-other"].results.rows) == 4


def test_fewer_runs_do_not_replace_stored_ones(copy: Path) -> None:
    shutil.rmtree(copy / "runs" / "tiny" / "runs" / "supcon-1" / "transfer")
    assert sincere.reproduce("transfer", out=copy, quiet=True).missing == ()


def test_transfers_of_other_models_are_left_out(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(copy / "runs")
    stored = Experiment.read(copy / "results", "tiny")
    assert stored is not None
    stored.model_copy(update={"models": {**stored.models, "supcon-1": "0" * 64}}).write(copy / "results")
    found = sincere.reproduce("transfer", out=copy, quiet=True)
    assert list(found.experiments) == ["tiny"]
    assert "tiny-to-other: its results are left out: supcon-1 has been trained again since" in capsys.readouterr().err


def test_one_failure_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = TINY.model_copy(update={"settings": {**TINY.settings, "data": "imagenet100", "classes": None}})
    quick = TINY.model_copy(update={"seeds": (0,), "transfers": {}})
    monkeypatch.setattr("sincere.recipes.all_recipes", lambda: {"nowhere": nowhere, "tiny": quick})
    with pytest.raises(DataError, match="imagenet100: has no download"):
        sincere.reproduce("margins", train=True, out=tmp_path / "out", data_dir=tmp_path, quiet=True)
    assert Experiment.read(tmp_path / "out" / "results", "tiny") is not None
    assert "digits" in (tmp_path / "out" / "margins.html").read_text()


def test_the_values_are_those_of_the_comparison(finished: Path) -> None:
    found = sincere.reproduce("transfer", out=finished, quiet=True)
    results = json.loads((finished / "runs" / "tiny" / "results.json").read_text())
    (table,) = tables_of(found, "margins")
    (row,) = table.rows
    by_loss = {s["loss"]: s["metrics"]["margin"]["estimate"] for s in results["summaries"]}
    assert float(row[2].text) == pytest.approx(by_loss["supcon"], abs=6e-4)
    assert float(row[3].text) == pytest.approx(by_loss["sincere"], abs=6e-4)
    difference = next(d for d in results["differences"] if d["metric"] == "margin")
    assert float(row[4].text) == pytest.approx(difference["estimate"], abs=6e-4)
    assert row[5].text == "-", "the paper has no table of this data"
    (losses,) = tables_of(found, "losses")
    assert [row[2].text for row in losses.rows] == ["SINCERE", "SupCon"]
    (repelled,) = tables_of(found, "repulsion")  # without ranges, which are shown with that item and with all
    assert float(repelled.rows[0][5].text.removesuffix("%")) == 0.0, "SINCERE never repels"
    (transfer,) = tables_of(found, "transfer")
    assert {row[1].text for row in transfer.rows} == {"other"}
    stored = found.experiments["tiny-to-other"].results.summaries
    shown = {summary.loss: summary.metrics["knn1"].estimate for summary in stored}
    assert [float(row[4].text.removesuffix("%")) for row in transfer.rows] == pytest.approx(
        [100 * shown["sincere"], 100 * shown["supcon"]], abs=0.06
    )
    assert "| digits, 2 classes |" in markdown_table(table)


def test_a_transfer_is_paired_by_test_image(finished: Path) -> None:
    stored = Experiment.read(finished / "results", "tiny-to-other")
    assert stored is not None
    results = stored.results
    assert [row.loss for row in results.rows] == ["sincere", "supcon"] * 2
    (difference,) = [d for d in results.differences if d.metric == "knn1"]
    of_loss = {loss: [r.metrics["knn1"].estimate for r in results.rows if r.loss == loss] for loss in TINY.losses}
    assert difference.estimate == pytest.approx((sum(of_loss["sincere"]) - sum(of_loss["supcon"])) / 2)


def test_a_difference_is_the_loss_minus_supcon_whichever_comes_first(finished: Path) -> None:
    stored = Experiment.read(finished / "results", "tiny")
    assert stored is not None
    turned = [
        d.model_copy(update={"a": d.b, "b": d.a, "estimate": -d.estimate, "low": -d.high, "high": -d.low})
        for d in stored.results.differences
    ]
    other = stored.model_copy(update={"results": stored.results.model_copy(update={"differences": tuple(turned)})})
    shown = [tables_of(Reproduction("cpu", {"tiny": found}), "margins")[0].rows[0][4] for found in (stored, other)]
    assert shown[0] == shown[1]
    assert shown[0].text != "-"


@pytest.mark.parametrize("item", ITEMS)
def test_every_item_has_a_page(item: str, copy: Path) -> None:
    Costs(rows=(), manifest={}).write(copy / "results")
    sincere.reproduce(item, out=copy, quiet=True)
    page = (copy / ("report.html" if item == "all" else f"{item}.html")).read_text()
    assert "The paper&#x27;s tables and figures" in page
    assert "Not run" not in page
    if item in ("histograms", "all"):
        assert (copy / "figures" / "histograms-tiny.svg").stat().st_size > 1000


def test_a_damaged_result_is_named_and_made_again_from_its_runs(copy: Path) -> None:
    path = copy / "results" / "tiny.json"
    before = path.read_text()
    path.write_text(before[:100])
    sincere.reproduce("margins", out=copy, quiet=True)
    assert path.read_text() == before
    shutil.rmtree(copy / "runs")
    path.write_text(before[:100])
    with pytest.raises(DataError, match=r"tiny\.json"):
        sincere.reproduce("margins", out=copy, quiet=True)
    path.write_text((copy / "results" / "tiny-to-other.json").read_text())
    with pytest.raises(DataError, match="holds the results of tiny-to-other"):
        sincere.reproduce("margins", out=copy, quiet=True)


def test_results_of_other_settings_are_not_those_of_the_recipe(
    copy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (copy / "results" / "tiny.json").read_text()
    found = sincere.reproduce("margins", out=copy, batch_size=32, quiet=True)
    assert (dict(found.experiments), [item.n_runs for item in found.missing]) == ({}, [4])
    assert "--batch-size 32" in found.missing[0].command
    assert "tiny: its results are left out: sincere-0 has batch_size = 64, not 32" in capsys.readouterr().err
    shutil.rmtree(copy / "runs")
    for changes in ({"settings": {**TINY.settings, "epochs": 6}}, {"evaluation": {"metrics": ["margin"]}}):
        changed = TINY.model_copy(update=changes)
        monkeypatch.setattr("sincere.recipes.all_recipes", lambda changed=changed: {"tiny": changed})
        assert sincere.reproduce("margins", out=copy, quiet=True).experiments == {}, "stored for an earlier recipe"
    assert (copy / "results" / "tiny.json").read_text() == before, "it stays"


def test_a_search_has_a_folder_of_its_own_and_the_papers_grid() -> None:
    request = ReproduceRequest.make(item="margins", scale="paper", search=True, out="runs/x")
    settings = request.search_settings("cifar10")
    assert (settings["grid"], settings["epochs"], settings["encoder"]) == ("paper", 800, "resnet50")
    assert not {"learning_rate", "temperature"} & settings.keys()
    assert settings["out"] == request.comparison_settings("cifar10")["tuned"] == Path("runs/x/searches/cifar10")
    assert request.run_folder("cifar10") == Path("runs/x/runs/cifar10-searched")
    assert request.command("cifar10").startswith("sincere reproduce margins --train --search --scale paper")


def test_progress_from_chance_to_floor() -> None:
    assert CurvePoint(epoch=1, loss=2.0, chance=4.0, floor=0.0).progress == 0.5
    assert CurvePoint(epoch=1, loss=2.0).progress is None
    assert paper_progress("cifar2", "supcon", 6.28) == pytest.approx((6.930 - 6.28) / (6.930 - 6.236), abs=1e-2)


def test_the_change_over_the_last_fifth_covers_all_of_it() -> None:
    rows = [{"epoch": e, "loss": 1.0} for e in range(1, 11)]
    for epoch, value in ((3, 0.1), (6, 0.5), (9, 0.6), (10, 0.58)):
        rows[epoch - 1]["knn1_train"] = value
    assert late_change(curve_points(rows)) == pytest.approx(0.1), "0.5 was the last before epoch 8"
    assert late_change(curve_points(rows[:2])) is None
    assert curve_points(rows[1:]) == (), "of a damaged log, whose first epoch is not the first"


def test_the_bounds_hold_where_the_divergence_is_known() -> None:
    for row in known_bounds():
        slack = 3 * row.standard_error
        assert row.loss >= row.tighter_bound - slack
        assert row.tighter_bound >= row.bound


def test_coefficients_reach_the_ends_of_the_papers_ranges_and_stay_within() -> None:
    rows = {(row.loss, row.n_positives): row for row in coefficient_extremes()}
    for row in rows.values():
        assert row.low <= row.lowest <= row.highest <= row.high
        assert (row.lowest, row.highest) == pytest.approx((row.low, row.high), abs=1e-6)
    assert (rows["supcon", 8].lowest, rows["supcon", 8].highest) == pytest.approx((-1 / 8, 7 / 8), abs=1e-6)
    assert (rows["sincere", 8].lowest, rows["sincere", 8].highest) == pytest.approx((-1 / 8, 0), abs=1e-6)
