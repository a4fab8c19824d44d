"""Panels share their axes and show the values of the results."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sincere.evaluation.margins import margin
from sincere.loss_catalog import COMPARED_LOSSES, RAW_FEATURES
from sincere.loss_catalog import LOSSES as CATALOG
from sincere.records.results import MarginAbout
from sincere.report.evidence import Evidence, read_evidence
from sincere.report.figure import Figure
from sincere.report.result_figures import (
    MOST_CLASSES,
    MOST_EPOCHS,
    confused_classes,
    confusion_figure,
    curves_figure,
    differences_figure,
    epoch_axis,
    meters_figure,
)
from sincere.report.similarity_figure import KINDS, histogram_bars, margin_text, similarity_axis, similarity_figure
from sincere.report.theme import ON_DARK, class_colours, loss_colours
from sincere.workflows.class_table import margin_about
from tests.report.comparison_folder import CLASSES, LOSSES, chart_rows, make_comparison, make_margin


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
    bars = [bar for run in evidence.shown for bar in histogram_bars(run.row.margin, 0.02)]
    assert low <= min(bar["start"] for bar in bars) < low + 0.21
    assert high == 1
    assert max(bar["share"] for bar in bars) < axes[0]["y"]["scale"]["domain"][1]


def margins_of(*ranges: tuple[float, float]) -> list[MarginAbout]:
    generator = np.random.default_rng(0)
    return [margin_about(margin(*np.sort(generator.uniform(*ends, (2, 400)), axis=0)[::-1])) for ends in ranges]


def test_the_axis_shows_the_range_of_the_data() -> None:
    (about,) = margins_of((0.91, 0.999))
    domain, width = similarity_axis([about])
    assert domain == [0.91, 1.0]
    bars = histogram_bars(about, width)
    assert len({bar["start"] for bar in bars}) > 30, "not one spike"
    assert similarity_axis(margins_of((0.9985, 0.9999)))[0] == [0.9984, 1.0], "round ends"
    assert similarity_axis([make_margin(np.empty(0), np.empty(0))])[0] == [-1, 1]
    (low, high), _ = similarity_axis([make_margin(np.ones(3), np.ones(3))])
    assert 0.97 < low < high == 1


def test_losses_of_different_ranges_have_bars_of_one_width() -> None:
    wide, narrow = margins_of((-0.2, 1.0), (0.99, 1.0))
    domain, width = similarity_axis([wide, narrow])
    assert (domain, width) == ([-0.2, 1.0], 0.02)
    for about in (wide, narrow):
        bars = histogram_bars(about, width)
        assert {round(bar["end"] - bar["start"], 6) for bar in bars} == {0.02}
        assert len({(bar["kind"], bar["start"]) for bar in bars}) == len(bars)
        for kind in KINDS:
            assert sum(bar["share"] for bar in bars if bar["kind"] == kind) == pytest.approx(1, abs=1e-3)


def test_few_images_are_not_a_comb() -> None:
    (many,), (about,) = margins_of((0.2, 1.0)), [margin_about(margin([0.9, 0.8, 0.7], [0.2, 0.3, 0.4]))]
    assert similarity_axis([about])[1] == 0.02
    (few,) = [margin_about(margin(np.linspace(0.95, 0.99, 50), np.linspace(0.93, 0.96, 50)))]
    assert 10 <= 0.06 / similarity_axis([few])[1] <= 20
    assert similarity_axis([many])[1] <= 0.02


def test_runs_without_training_have_no_curve(tmp_path: Path) -> None:
    make_comparison(tmp_path, losses=("sincere", "raw-features"), n_test=30, epochs=3)
    (tmp_path / "runs" / "raw-features-0" / "metrics.jsonl").unlink()
    (curve,) = specs(curves_figure(read_evidence(tmp_path, files=False).runs))
    assert curve["title"]["text"] == "SINCERE"


def test_small_margins_are_shown_with_two_digits() -> None:
    def shown(value: float) -> str:
        return margin_text(make_margin(np.full(3, 0.9), np.full(3, 0.9 - value))).split(" (")[0]

    assert [shown(v) for v in (0.25, 0.0123, 0.00123, -0.00045)] == [
        "margin 0.250", "margin 0.012", "margin 0.0012", "margin -0.00045",
    ]  # fmt: skip
    assert shown(0.0) == "margin 0.000"


@pytest.mark.parametrize(
    ("epochs", "ticks"),
    [
        ([1], [1]),
        ([1, 2], [1, 2]),
        ([1, 2, 3], [1, 2, 3]),
        (range(1, 6), [1, 2, 3, 4, 5]),
        (range(1, 41), [10, 20, 30, 40]),
        ([10, 20, 1000], [200, 400, 600, 800, 1000]),
    ],
)
def test_epochs_on_the_axis_are_whole(epochs: Sequence[int], ticks: list[int]) -> None:
    axis = epoch_axis(list(epochs)).to_dict()
    assert axis["axis"]["values"] == ticks
    low, high = axis["scale"]["domain"]
    assert low < high
    assert low <= min(epochs) <= max(epochs) <= high


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
    sums = loss_colours(["sincere+supcon", "sincere", "k-positives", "decoupled", "sincere+infonce", "mine"])
    assert len(set(sums.values())) == 6
    compared = loss_colours([*COMPARED_LOSSES, RAW_FEATURES]).values()
    for shown in (compared, [ON_DARK.get(colour, colour) for colour in compared]):
        channels = [np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) for colour in shown]
        assert min(np.abs(a - b).sum() for a, b in combinations(channels, 2)) > 100
    assert loss_colours(["mine", "mine", "yours"]) == loss_colours(["mine", "yours"])
    for n in (2, 10, 11, 100):
        assert len(set(class_colours(n))) == n
