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
from sincere.records.reproduction import CurvePoint, Experiment, curve_points
from sincere.report.reproduction_page import markdown_table, tables_of
from sincere.report.reproduction_tables import late_change, paper_progress
from sincere.settings.reproduce_request import ITEMS, ReproduceRequest
from sincere.workflows.loss_costs import known_bounds

TINY = Recipe(
    title="Two digits",
    scale="cpu",
    form="a test",
    settings={"data": "digits", "classes": ["3", "8"], "epochs": 5, "validate_every": 1, "batch_size": 64},
    evaluation={"metrics": ["margin", "knn", "linear"], "resamples": 100},
    losses={"sincere": {}, "supcon": {}},
    seeds=(0,),
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
    sincere.reproduce("knn", train=True, out=out, quiet=True)
    return out


def test_what_is_missing_is_named_with_its_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "margins", "--out", str(tmp_path / "out")]) == 0
    text = capsys.readouterr().out
    assert "tiny: 2 runs" in text
    assert f"sincere compare --recipe tiny --out {tmp_path / 'out' / 'runs' / 'tiny'}" in text
    assert "sincere transfer" in text
    assert "digits" not in text.partition("missing:")[0], "no value is guessed"
    assert "Not run" in (tmp_path / "out" / "margins.html").read_text()


def test_trains_what_is_missing_once_and_rebuilds_from_what_is_stored(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    again = sincere.reproduce("margins", train=True, out=out)
    text = capsys.readouterr().out
    assert again.missing == ()
    assert "[1/2]" not in text, "nothing is trained twice"
    stored = Experiment.read(out / "results", "tiny")
    assert stored is not None
    assert [curve.loss for curve in stored.curves] == ["sincere", "supcon"]
    assert len(stored.curves[0].points) == 5
    shutil.rmtree(out / "runs")
    rebuilt = sincere.reproduce("margins", out=out)
    assert rebuilt.missing == ()
    assert rebuilt.experiments == again.experiments
    assert tables_of(rebuilt, "margins") == tables_of(again, "margins")


def test_the_values_are_those_of_the_comparison(finished: Path) -> None:
    found = sincere.reproduce("knn", out=finished, quiet=True)
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
    (repelled,) = tables_of(found, "repulsion")
    assert float(repelled.rows[0][5].text.removesuffix("%")) == 0.0, "SINCERE never repels"
    (transfer,) = tables_of(found, "transfer")
    assert {row[1].text for row in transfer.rows} == {"other"}
    assert "| digits, 2 classes |" in markdown_table(table)


def test_a_transfer_is_paired_by_test_image(finished: Path) -> None:
    stored = Experiment.read(finished / "results", "tiny-to-other")
    assert stored is not None
    results = stored.results
    assert [row.loss for row in results.rows] == ["sincere", "supcon"]
    (difference,) = [d for d in results.differences if d.metric == "knn1"]
    values = {row.loss: row.metrics["knn1"].estimate for row in results.rows}
    assert difference.estimate == pytest.approx(values["sincere"] - values["supcon"])


@pytest.mark.parametrize("item", ITEMS)
def test_every_item_has_a_page(item: str, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sincere.workflows.loss_costs.SIZES", (64,))
    sincere.reproduce(item, out=finished, quiet=True)
    page = (finished / ("report.html" if item == "all" else f"{item}.html")).read_text()
    assert "The paper&#x27;s tables and figures" in page
    assert "Not run" not in page
    if item in ("histograms", "all"):
        assert (finished / "figures" / "histograms-tiny.svg").stat().st_size > 1000


def test_a_damaged_result_is_named_and_made_again_from_its_runs(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    before = (out / "results" / "tiny.json").read_text()
    (out / "results" / "tiny.json").write_text(before[:100])
    sincere.reproduce("margins", out=out, quiet=True)
    assert (out / "results" / "tiny.json").read_text() == before
    shutil.rmtree(out / "runs")
    (out / "results" / "tiny.json").write_text(before[:100])
    with pytest.raises(DataError, match=r"tiny\.json"):
        sincere.reproduce("margins", out=out, quiet=True)
    (out / "results" / "tiny.json").write_text((out / "results" / "tiny-to-other.json").read_text())
    with pytest.raises(DataError, match="holds the results of tiny-to-other"):
        sincere.reproduce("margins", out=out, quiet=True)


def test_results_of_other_settings_are_not_those_of_the_recipe(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    found = sincere.reproduce("margins", out=out, batch_size=32, quiet=True)
    assert (dict(found.experiments), [item.n_runs for item in found.missing]) == ({}, [2, 2])
    assert "--batch-size 32" in found.missing[0].command
    assert "tiny: its results are left out: sincere-0 has batch_size = 64, not 32" in capsys.readouterr().err
    shutil.rmtree(out / "runs")
    changed = TINY.model_copy(update={"settings": {**TINY.settings, "epochs": 6}})
    monkeypatch.setattr("sincere.recipes.all_recipes", lambda: {"tiny": changed})
    assert sincere.reproduce("margins", out=out, quiet=True).experiments == {}, "stored for an earlier recipe"


def test_search_settings_are_those_of_the_recipe_and_the_papers_grid() -> None:
    request = ReproduceRequest.make(item="margins", scale="paper", train=True, search=True, out="runs/x")
    settings = request.search_settings("cifar10")
    assert (settings["grid"], settings["epochs"], settings["encoder"]) == ("paper", 800, "resnet50")
    assert "learning_rate" not in settings
    assert "temperature" not in settings
    assert settings["out"] == Path("runs/x/searches/cifar10")


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


def test_the_bounds_hold_where_the_divergence_is_known() -> None:
    for row in known_bounds():
        slack = 3 * row.standard_error
        assert row.loss >= row.tighter_bound - slack
        assert row.tighter_bound >= row.bound
