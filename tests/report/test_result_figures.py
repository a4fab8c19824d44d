"""Panels share their axes and show the values of the results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sincere.catalog import LOSSES as CATALOG
from sincere.report.evidence import Evidence, read_evidence
from sincere.report.result_figures import (
    MOST_CLASSES,
    MOST_EPOCHS,
    Figure,
    confused_classes,
    confusion_figure,
    curves_figure,
    differences_figure,
    histogram_bars,
    meters_figure,
    similarity_figure,
)
from sincere.report.theme import class_colours, loss_colours
from tests.report.comparison_folder import CLASSES, LOSSES, chart_rows, make_comparison


@pytest.fixture(scope="module")
def evidence(reported: Path) -> Evidence:
    return read_evidence(reported, files=True)


def specs(figure: Figure) -> list[dict[str, Any]]:
    return list(figure.specs().values())


def test_histograms_share_their_axes(evidence: Evidence) -> None:
    axes = [spec["layer"][0]["encoding"] for spec in specs(similarity_figure(evidence.shown))]
    assert len(axes) == len(LOSSES)
    for axis in ("x", "y"):
        assert len({tuple(encoding[axis]["scale"]["domain"]) for encoding in axes}) == 1
    low, high = axes[0]["x"]["scale"]["domain"]
    bars = [bar for run in evidence.shown for bar in histogram_bars(run.row.margin)]
    assert low <= min(bar["start"] for bar in bars) < low + 0.21
    assert high == 1
    assert max(bar["share"] for bar in bars) < axes[0]["y"]["scale"]["domain"][1]


def test_bars_and_medians(evidence: Evidence) -> None:
    for run, spec in zip(evidence.shown, specs(similarity_figure(evidence.shown)), strict=True):
        bars, medians = (chart_rows(spec, i) for i in (0, 1))
        for kind in ("same class", "another class"):
            shares = [bar["share"] for bar in bars if bar["kind"] == kind]
            assert sum(shares) == pytest.approx(1, abs=1e-3)
        assert [row["median"] for row in medians] == [run.row.margin.target_median, run.row.margin.noise_median]
        assert spec["title"]["subtitle"].startswith(f"margin {run.row.margin.margin:.3f} ")


def test_curves_share_their_axis_and_are_thinned(tmp_path: Path) -> None:
    make_comparison(tmp_path, losses=("sincere", "supcon"), n_test=30, epochs=MOST_EPOCHS + 50)
    runs = read_evidence(tmp_path, files=False).runs
    drawn = specs(curves_figure(runs))
    assert len({tuple(spec["layer"][0]["encoding"]["y"]["scale"]["domain"]) for spec in drawn}) == 1
    epochs = [row["epoch"] for row in chart_rows(drawn[0]) if row["quantity"] == "loss"]
    assert len(epochs) == MOST_EPOCHS
    assert (epochs[0], epochs[-1]) == (1, MOST_EPOCHS + 50)
    assert epochs == sorted(set(epochs))


def test_losses_without_a_repulsion_meter_are_left_out(evidence: Evidence) -> None:
    pushed, live = specs(meters_figure(evidence.runs))
    assert {row["loss"] for row in chart_rows(pushed)} == {"SINCERE", "SupCon"}
    assert {row["loss"] for row in chart_rows(live)} == {"SINCERE", "SupCon", "eps-SupInfoNCE"}
    infonce = [run for run in evidence.runs if run.row.loss == "eps-supinfonce"]
    assert [spec["title"]["text"] for spec in specs(meters_figure(infonce))] == ["live 1-NN accuracy"]


def test_differences_are_in_points_where_metrics_are_shares(evidence: Evidence) -> None:
    margin, knn = specs(differences_figure(evidence.results))
    stored = {d.metric: d for d in evidence.results.differences if (d.a, d.b) == ("sincere", "supcon")}
    for spec, name, times in ((margin, "margin", 1), (knn, "knn1", 100)):
        row = chart_rows(spec, 1)[0]
        assert row["pair"] == "SINCERE minus SupCon"
        assert row["estimate"] == pytest.approx(times * stored[name].estimate)


def test_confusion_counts_every_test_image(evidence: Evidence) -> None:
    for run, spec in zip(evidence.shown, specs(confusion_figure(evidence.shown, CLASSES)), strict=True):
        cells = chart_rows(spec)
        assert sum(cell["images"] for cell in cells) == evidence.results.data.n_test
        wrong = sum(cell["images"] for cell in cells if cell["class"] != cell["predicted"])
        assert wrong / evidence.results.data.n_test == pytest.approx(1 - run.row.metrics["knn1"].estimate)


def test_the_most_confused_of_many_classes(tmp_path: Path) -> None:
    make_comparison(tmp_path, losses=("sincere",), class_names=[f"c{i}" for i in range(60)], n_test=300)
    runs = read_evidence(tmp_path, files=False).runs
    kept = confused_classes(runs, 60)
    assert len(kept) == MOST_CLASSES
    wrong = np.zeros((60, 60), dtype=int)
    for label, predicted, n in runs[0].row.confusion:
        wrong[label, predicted] = n * (label != predicted)
    mistakes = wrong.sum(axis=0) + wrong.sum(axis=1)
    assert min(mistakes[kept]) >= max(np.delete(mistakes, kept))
    assert confused_classes(runs, MOST_CLASSES) == list(range(MOST_CLASSES))


def test_colours() -> None:
    assert loss_colours(["supcon", "mine", "sincere", "mine"])["supcon"] == CATALOG["supcon"].colour
    named = loss_colours(["sincere", "supcon", "mine", "yours"])
    assert len(set(named.values())) == 4
    assert loss_colours(["mine", "mine", "yours"]) == loss_colours(["mine", "yours"])
    for n in (2, 10, 11, 100):
        assert len(set(class_colours(n))) == n
