"""The report of a search: what it says, and that nothing in it can become markup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sincere.cli import main
from sincere.errors import DataError
from sincere.records.results import FIGURE_FORMATS
from sincere.records.search import FIGURE_NAMES, SEARCH, Dimension, Edge, LossSearch, SearchResults, TrialRow
from sincere.report.search_figures import importance_figure, live_figure, plane_figure, settings_figure
from sincere.report.search_page import write_search_report

RANGE = Dimension(name="temperature", low=0.02, high=0.5, log=True)
VALUES = Dimension(name="learning_rate", values=(0.1, 0.3, 1.0))
NAMES = Dimension(name="head", values=("mlp", "linear"))


def search_results(**changes: Any) -> SearchResults:
    trials = []
    for loss in ("sincere", "supcon"):
        for i in range(6):
            rate, head = (0.1, 0.3, 1.0)[i % 3], ("mlp", "linear")[i % 2]
            settings = {"temperature": 0.02 * 1.7**i, "learning_rate": rate, "head": head}
            state = ("complete", "complete", "pruned", "complete", "failed", "complete")[i]
            value = None if state == "failed" else 0.9 + 0.01 * i
            curve = ((1, 0.5), (2, 0.6 + 0.01 * i))
            error = "train: the loss is inf" if state == "failed" else None
            trials.append(TrialRow(loss=loss, number=i, state=state, value=value, settings=settings, curve=curve,
                                   seconds=3.0, error=error))  # fmt: skip
    losses = tuple(
        LossSearch(
            loss=loss,
            space=(RANGE, VALUES, NAMES),
            trial=5,
            value=0.95,
            best=trials[5].settings,
            n_close=2,
            edges=(Edge(name="temperature", end="high", next="temperature=0.12:2"),),
            importance={"temperature": 0.7, "learning_rate": 0.3},
        )
        for loss in ("sincere", "supcon")
    )
    content: dict[str, Any] = {
        "data": "digits",
        "digest": "abc",
        "n_train": 900,
        "n_validation": 100,
        "grid": False,
        "seeds": (0,),
        "settings": {"epochs": 15},
        "losses": losses,
        "trials": tuple(trials),
        "notes": ("sincere: the best temperature, 0.28, is at the high end",),
        "manifest": {"command": ["sincere", "search"], "started": "2026-11-17T00:00:00+00:00"},
    }
    return SearchResults(**{**content, **changes})


def test_the_page_and_its_figures(tmp_path: Path) -> None:
    search_results().write(tmp_path)
    text = write_search_report(tmp_path).read_text()
    assert "Search of 3 settings for SINCERE and SupCon on digits" in text
    assert "6, 1 pruned, 1 failed" in text
    assert "failed: train: the loss is inf" in text
    assert "within one standard error of the best, on 100 held-out images" in text
    assert "the best temperature, 0.28, is at the high end" in text
    names = {f"{name}.{suffix}" for name in FIGURE_NAMES for suffix in FIGURE_FORMATS}
    assert {path.name for path in (tmp_path / "figures").iterdir()} == names
    assert main(["report", str(tmp_path), "--no-figures"]) == 0


def test_panels() -> None:
    results = search_results()
    assert len(settings_figure(results).panels) == 2  # numbers only
    assert len(plane_figure(results).panels) == len(live_figure(results).panels) == 2
    assert len(importance_figure(results).panels) == 2
    bare = tuple(found.model_copy(update={"importance": {}, "space": (NAMES,)}) for found in results.losses)
    empty = results.model_copy(update={"losses": bare, "trials": ()})
    for draw in (settings_figure, plane_figure, live_figure, importance_figure):
        assert draw(empty).panels == ()


def test_figures_that_are_gone_are_removed(tmp_path: Path) -> None:
    results = search_results()
    results.write(tmp_path)
    write_search_report(tmp_path)
    (tmp_path / "figures" / "mine.png").touch()
    without = tuple(found.model_copy(update={"importance": {}}) for found in results.losses)
    results.model_copy(update={"losses": without}).write(tmp_path)
    write_search_report(tmp_path)
    left = {path.name for path in (tmp_path / "figures").iterdir()}
    assert "importance.png" not in left
    assert {"mine.png", "settings.png"} <= left


def test_nothing_becomes_markup(tmp_path: Path) -> None:
    search_results(data="<script>alert(1)</script>", notes=("<img src=x onerror=alert(1)>",)).write(tmp_path)
    text = write_search_report(tmp_path, figures=False).read_text()
    assert "<script>alert" not in text
    assert "<img src=x" not in text


def test_damage_is_one_line(tmp_path: Path) -> None:
    search_results().write(tmp_path)
    path = tmp_path / SEARCH
    path.write_text(path.read_text().replace("0.95", "0.99", 1))
    with pytest.raises(DataError, match=r"its checksum does not match; the same `sincere search` writes it again"):
        write_search_report(tmp_path)
    path.write_text('{"schema": 2}')
    with pytest.raises(DataError, match=r"search\.json: is damaged or of another version \(schema: "):
        write_search_report(tmp_path)
