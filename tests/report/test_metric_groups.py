"""Metrics of other groups and baselines: where they are shown, and that the finding is about the first table."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from sincere.messages import Messages
from sincere.records.estimates import Estimate
from sincere.records.results import Baseline, Difference, MetricAbout, Results
from sincere.report.metric_groups import baseline_rows, more_metrics
from sincere.report.page import write_report
from sincere.report.tables import brief_metrics, finding, group_metrics, show
from tests.report.comparison_folder import make_comparison

HOSTILE = "<script>alert(1)</script>"
ABOUT = {
    "rankme": MetricAbout(title="RankMe", share=False, about="how many dimensions", better=None, group="geometry"),
    "dino": MetricAbout(title="20-NN (DINO)", share=True, about="votes of 20", group="classifiers"),
    "map_at_r": MetricAbout(title="MAP@R", share=True, group="retrieval"),
    "odd": MetricAbout(title=HOSTILE, share=False, about=HOSTILE, group=HOSTILE),
}
VALUES = {"rankme": (12.5, 9.25), "dino": (0.984, 0.9), "map_at_r": (0.71, 0.7), "odd": (1.0, 2.0)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of two losses with more metrics, of which the paired difference is stored the other way round."""
    folder = make_comparison(tmp_path_factory.mktemp("groups"), losses=("supcon", "sincere"))
    results = Results.read(folder)
    values = {
        loss: {name: Estimate(pair[i], pair[i] - 0.01, pair[i] + 0.01) for name, pair in VALUES.items()}
        for i, loss in enumerate(("sincere", "supcon"))
    }
    differences = [
        Difference(metric=name, a="supcon", b="sincere", estimate=b - a, low=b - a - 0.02, high=b - a + 0.02,
                   significant=abs(b - a) > 0.02)
        for name, (a, b) in VALUES.items()
    ]  # fmt: skip
    rows = [row.model_copy(update={"metrics": {**row.metrics, **values[row.loss]}}) for row in results.rows]
    summaries = [s.model_copy(update={"metrics": {**s.metrics, **values[s.loss]}}) for s in results.summaries]
    baselines = (
        Baseline(name="majority class", about="always the most frequent", accuracy=Estimate(0.125, 0.1, 0.15)),
        Baseline(name=HOSTILE, about=HOSTILE, accuracy=Estimate(0.5, 0.4, 0.6)),
    )
    update = {
        "metrics": {**results.metrics, **ABOUT},
        "rows": tuple(rows),
        "summaries": tuple(summaries),
        "differences": (*results.differences, *differences),
        "baselines": baselines,
    }
    results.model_copy(update=update).write(folder)
    return folder


@pytest.fixture
def results(folder: Path) -> Results:
    return Results.read(folder)


def test_groups_keep_the_order_of_the_metrics(results: Results) -> None:
    assert group_metrics(results) == {
        "main": ["margin", "knn1"],
        "geometry": ["rankme"],
        "classifiers": ["dino"],
        "retrieval": ["map_at_r"],
        HOSTILE: ["odd"],
    }
    assert brief_metrics(results) == ["margin", "knn1", "map_at_r", "odd"]
    only = results.model_copy(update={"metrics": {"rankme": ABOUT["rankme"]}})
    assert brief_metrics(only) == ["rankme"]  # nothing else was measured


def test_every_other_metric_is_in_the_section_with_how_to_read_it(results: Results) -> None:
    section = more_metrics(results)
    assert section is not None
    for title in ("Geometry", "Classifiers", "Retrieval"):
        assert f"<h3>{title}</h3>" in section
    assert "how many dimensions" in section
    assert "12.500" in section
    assert "98.4%" in section
    assert "MAP@R" in section
    assert "SINCERE minus SupCon" in section
    assert "<b>3.250</b>" in section  # the difference with the sign of that heading
    assert "<b>8.4 points</b>" in section
    assert "1.0 points" in section
    assert "<b>1.0 points" not in section  # its interval includes 0
    assert "margin" not in section
    assert HOSTILE not in section


def test_without_other_metrics_there_is_no_section(results: Results) -> None:
    main = {name: about for name, about in results.metrics.items() if about.group == "main"}
    assert more_metrics(results.model_copy(update={"metrics": main})) is None


def test_baselines_stand_below_the_losses_in_the_column_of_accuracy(results: Results) -> None:
    first, second = baseline_rows(results, ["margin", "knn1"], 5)
    assert first.count("<td") == 4
    assert first.index("12.5%") > first.index("</td>")  # not in the column of the margin
    assert "[10.0, 15.0]" in first
    assert HOSTILE not in second
    (alone, _) = baseline_rows(results, ["margin"], 4)
    assert "always the most frequent: 12.5%" in alone


def test_the_page_links_the_section_and_the_terminal_names_the_groups(folder: Path, results: Results) -> None:
    page = write_report(folder, figures=False).read_text(encoding="utf-8")
    assert '<a href="#metrics">' in page
    assert HOSTILE not in page
    text = io.StringIO()
    show(results, None, Messages(Console(file=text, width=120)))
    printed = text.getvalue()
    assert "MAP@R" in printed
    assert "RankMe" not in printed
    assert "more metrics, in the report and in results.json: geometry, classifiers" in printed
    assert "accuracy without training: majority class 12.5%" in printed
    assert "RankMe" not in finding(results)
    assert "margin" in finding(results)
