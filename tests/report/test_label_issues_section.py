"""The report lists the labels of one run that may be wrong, or says how to find them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sincere.loss_catalog import RAW_FEATURES
from sincere.records.arrays import MAP
from sincere.records.files import read_json, write_json
from sincere.records.label_issues import LABEL_LIST
from sincere.records.npz import read_arrays, write_arrays
from sincere.report.evidence import read_evidence
from sincere.report.label_issues_section import label_issues
from sincere.report.page import refresh_report, write_report
from tests.report.comparison_folder import CLASSES, HOSTILE_NAMES, SCRIPT, make_comparison, write_labels


def section(folder: Path) -> str:
    found = label_issues(read_evidence(folder, files=False))
    assert found is not None
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_comparison(tmp_path, losses=("sincere", "supcon"), n_test=40)


def test_the_list_of_the_first_run(folder: Path) -> None:
    write_labels(folder / "runs" / "sincere-0")
    write_labels(folder / "runs" / "supcon-0", n=9)
    text = section(folder)
    assert "Of 1,438 images, 3 have another label than most of their 71 nearest neighbours by embeddings of " in text
    assert "SINCERE, seed 0" in text
    assert "a reason to look, not to relabel" in text
    assert "Embeddings that were trained on wrong labels hide many of them." in text
    assert text.count("<tr>") == 4
    assert text.count('<img src="data:image/png;base64,') == 3
    assert "#5001" in text
    assert "<td>two</td>" in text
    assert (text.count("<td>training</td>"), text.count("<td>test</td>")) == (2, 1)
    assert "2.0%" in text
    assert "runs/sincere-0/label_issues.csv" in text
    page = write_report(folder, figures=False).read_text(encoding="utf-8")
    assert text in page
    assert '<a href="#labels">Labels</a>' in page


def test_raw_features_come_first(tmp_path: Path) -> None:
    make_comparison(tmp_path, losses=("sincere", RAW_FEATURES), n_test=40)
    write_labels(tmp_path / "runs" / "sincere-0", n=2)
    write_labels(tmp_path / "runs" / f"{RAW_FEATURES}-0", n=1, basis="features")
    text = section(tmp_path)
    assert "1 has another label than most of their 71 nearest neighbours by features." in text
    assert "The features have not seen the labels" in text


def test_the_first_twenty_of_many(folder: Path) -> None:
    write_labels(folder / "runs" / "sincere-0", n=500)
    text = section(folder)
    assert "The 20 most doubtful of 500" in text
    assert text.count("<tr>") == 21


def test_none_found(folder: Path) -> None:
    write_labels(folder / "runs" / "sincere-0", n=0, thumbnails=None)
    text = section(folder)
    assert "0 have another label" in text
    assert "<table" not in text


def test_texts_are_escaped_and_cut(folder: Path) -> None:
    write_labels(folder / "runs" / "sincere-0", n=10, pixels=False, texts=(*HOSTILE_NAMES, SCRIPT))
    text = section(folder)
    assert SCRIPT not in text
    assert "<img" not in text
    assert not set("\x1b\x00\u202e\u2028") & set(text)
    assert "x" * 200 in text
    assert "x" * 201 not in text


def test_without_a_list_the_command_is_named(folder: Path) -> None:
    text = section(folder)
    assert "Nobody has looked for them yet." in text
    assert "<pre>sincere labels runs/sincere-0</pre>" in text


@pytest.mark.parametrize("change", [{"data": "other"}, {"epochs": 39}])
def test_a_list_of_other_data_or_weights_is_not_shown(change: dict[str, object], folder: Path) -> None:
    write_labels(folder / "runs" / "sincere-0", **change)
    assert "Nobody has looked for them yet." in section(folder)


def test_a_transfer_has_no_such_section(folder: Path) -> None:
    content = read_json(folder / "results.json", remedy="")
    write_json(folder / "results.json", {**content, "kind": "transfer"})
    assert label_issues(read_evidence(folder, files=False)) is None
    assert "#labels" not in write_report(folder, figures=False).read_text(encoding="utf-8")


def test_a_damaged_list_is_a_gap(folder: Path) -> None:
    run = folder / "runs" / "sincere-0"
    write_labels(run)
    arrays = read_arrays(run / LABEL_LIST, remedy="")
    write_arrays(run / LABEL_LIST, {**arrays, "labels": arrays["labels"] + len(CLASSES)})
    assert "labels has a wrong shape, type or value; find them again with `sincere labels`." in section(folder)
    messages: list[str] = []
    write_report(folder, figures=False, warn=messages.append)
    assert len(messages) == 1
    (run / LABEL_LIST).write_bytes(b"cut")
    assert "is damaged; find them again" in section(folder)


def test_refreshing_changes_the_page_and_no_figure(folder: Path) -> None:
    assert refresh_report(folder) is None
    assert not (folder / "report.html").exists()
    write_report(folder)
    figures = {path: path.stat().st_mtime_ns for path in (folder / "figures").iterdir()}
    write_labels(folder / "runs" / "sincere-0")
    assert refresh_report(folder) == folder / "report.html"
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "#5001" in page
    assert "figures/map.png" in page
    assert {path: path.stat().st_mtime_ns for path in (folder / "figures").iterdir()} == figures
    assert (folder / "runs" / "sincere-0" / MAP).exists()
