"""Damaged, crafted and foreign files give one line or a gap, never a traceback."""

from __future__ import annotations

import io
import json
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from sincere.cli import main
from sincere.errors import DataError
from sincere.messages import Messages
from sincere.records.arrays import MAP, EmbeddingMap
from sincere.records.files import read_json, write_json
from sincere.records.npz import read_arrays, write_arrays
from sincere.records.results import Results
from sincere.report.evidence import read_evidence
from sincere.report.page import write_report
from sincere.report.tables import show
from tests.report.comparison_folder import make_comparison

Edit = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_comparison(tmp_path_factory.mktemp("made"), losses=("sincere", "supcon"), n_test=40, epochs=3)


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "c"))


def edited(folder: Path, edit: Edit) -> Path:
    """Change results.json as someone does who also writes a new checksum."""
    content = read_json(folder / "results.json", remedy="")
    edit(content)
    path = folder / "results.json"
    write_json(path, content) if not _has_nan(content) else path.write_text(json.dumps(content))
    return folder


def _has_nan(content: Any) -> bool:
    return re.search("NaN|Infinity", json.dumps(content)) is not None


CONTRADICTIONS: dict[str, Edit] = {
    "no rows": lambda c: c["rows"].clear(),
    "no classes": lambda c: c["data"].update(class_names=[]),
    "no metrics": lambda c: c["metrics"].clear(),
    "a row without a metric": lambda c: c["rows"][0]["metrics"].pop("margin"),
    "a row with another metric": lambda c: c["rows"][0]["metrics"].update(x=c["rows"][0]["metrics"]["margin"]),
    "a row twice": lambda c: c["rows"].append(c["rows"][0]),
    "a class fewer": lambda c: c["rows"][0]["classes"].pop(),
    "another class": lambda c: c["rows"][0]["classes"][0].update(name="else"),
    "images of a class": lambda c: c["rows"][0]["classes"][0].update(n_test=99),
    "images in all": lambda c: c["data"].update(n_test=7),
    "a summary of another loss": lambda c: c["summaries"][0].update(loss="else"),
    "no summary": lambda c: c["summaries"].clear(),
    "a summary without a metric": lambda c: c["summaries"][0]["metrics"].pop("knn1"),
    "other seeds": lambda c: c["summaries"][0].update(seeds=[5]),
    "a difference of an unknown metric": lambda c: c["differences"][0].update(metric="x"),
    "a difference of an unknown loss": lambda c: c["differences"][0].update(a="x"),
    "a difference fewer": lambda c: c["differences"].pop(),
    "an interval upside down": lambda c: c["differences"][0].update(low=1, high=-1, significant=False),
    "significant with 0 inside": lambda c: c["differences"][0].update(low=-1, high=1, significant=True),
    "not a number": lambda c: c["rows"][0]["metrics"]["margin"].update(low=float("nan")),
    "infinite": lambda c: c["differences"][0].update(high=float("inf")),
    "huge": lambda c: c["summaries"][0]["metrics"]["knn1"].update(high=1e308),
    "a histogram without width": lambda c: c["rows"][0]["margin"]["target"].update(low=1.0),
    "a histogram with NaN": lambda c: c["rows"][0]["margin"]["target"].update(low=float("nan")),
    "a histogram without bins": lambda c: c["rows"][0]["margin"]["target"].update(counts=[]),
    "negative counts": lambda c: c["rows"][0]["margin"]["target"]["counts"].__setitem__(0, -1),
    "counts of more images": lambda c: c["rows"][0]["margin"].update(n=3),
    "a median missing": lambda c: c["rows"][0]["margin"].update(target_median=None),
    "a label beyond the classes": lambda c: c["rows"][0]["confusion"][0].__setitem__(0, 99),
    "a negative label": lambda c: c["rows"][0]["confusion"][0].__setitem__(1, -1),
    "a cell twice": lambda c: c["rows"][0]["confusion"].append(c["rows"][0]["confusion"][0]),
    "a dense confusion": lambda c: c["rows"][0].update(confusion=[[4] * 10] * 10),
    "negative seconds": lambda c: c["rows"][0].update(seconds=-1),
    "a string for a number": lambda c: c["rows"][0].update(epochs="many"),
    "a list for an object": lambda c: c.update(data=[]),
    "a key with a line break": lambda c: c["metrics"].update({"a\nb": 3}),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictions_give_one_line(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edited(folder, CONTRADICTIONS[name])
    assert main(["report", str(folder), "--no-figures"]) == 2
    messages = capsys.readouterr().err
    assert len(messages.splitlines()) == 1
    assert "is damaged or of another version (" in messages
    assert messages.rstrip().endswith("); evaluate again")


@pytest.mark.parametrize(
    "outside", ["/etc", "..", "runs/../../x", "a/..", "\\\\host\\x", "runs\\..\\..\\x", "C:/x", "C:x", "", "a\x00b"]
)
def test_a_row_cannot_point_outside_the_folder(outside: str, folder: Path) -> None:
    edited(folder, lambda c: c["rows"][0].update(folder=outside))
    with pytest.raises(DataError, match="folder must be a relative path that stays inside"):
        Results.read(folder)


@pytest.mark.slow
def test_every_single_value_replaced_gives_a_page_or_one_line(tmp_path: Path) -> None:
    """Each number, text, list and object in turn becomes something else."""
    make_comparison(tmp_path, losses=("sincere", "supcon"), class_names=("a", "b"), n_test=8, epochs=2)
    content = read_json(tmp_path / "results.json", remedy="")
    Results.model_validate(content)  # right before it is changed
    shown, refused = set[tuple[Any, ...]](), list[str]()
    for *parents, last in value_paths(content):
        for other in (None, -1, 10**30, "\x1b[31m\n", [], {"a": {}}):
            changed = json.loads(json.dumps(content))
            inner = changed
            for key in parents:
                inner = inner[key]
            inner[last] = other
            write_json(tmp_path / "results.json", changed)
            try:
                results = Results.read(tmp_path)
            except DataError as error:
                refused.append(str(error))
                continue
            show(results, None, Messages(Console(file=io.StringIO())))
            if (*parents, last) not in shown and "manifest" not in parents:  # which has a test of its own
                write_report(tmp_path, figures=False)
                shown.add((*parents, last))
    assert all(len(message.splitlines()) == 1 for message in refused)
    assert len(shown) > 20
    assert len(refused) > 200


def value_paths(content: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of keys to every value; of a list, to its first value only."""
    items = content.items() if isinstance(content, dict) else list(enumerate(content))[:1]
    for key, value in items:
        yield (*at, key)
        if isinstance(value, dict | list) and key != "settings":
            yield from value_paths(value, (*at, key))


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"a": ' * 5000 + b"1" + b"}" * 5000]
)
def test_results_that_are_not_json(content: bytes, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "results.json").write_bytes(content)
    assert main(["report", str(folder)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_changed_byte_is_noticed(folder: Path) -> None:
    path = folder / "results.json"
    path.write_text(path.read_text().replace('"n_train": 1438', '"n_train": 1439', 1))
    with pytest.raises(DataError, match="its checksum does not match; evaluate again"):
        Results.read(folder)


def test_damaged_files_of_a_run_leave_gaps(folder: Path) -> None:
    for name in ("config.toml", "manifest.json"):
        (folder / "runs" / "sincere-0" / name).write_bytes(b"\xff\x00\x1b[31m{" * 3)
    (folder / "runs" / "supcon-0" / "manifest.json").write_text(
        '{"versions": 3, "command": "rm", "device": ["\\u001b"]}'
    )
    messages: list[str] = []
    text = write_report(folder, figures=False, warn=messages.append).read_text(encoding="utf-8")
    assert "\x1b" not in text
    assert any("config.toml: was damaged or changed since the run began" in line for line in messages)
    assert any("manifest.json: is damaged: no readable JSON; it is left out" in line for line in messages)
    assert "the settings in results.json are shown instead" in text


def test_a_truncated_log_is_reported(folder: Path) -> None:
    path = folder / "runs" / "sincere-0" / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[: len(lines) // 2]))
    messages: list[str] = []
    write_report(folder, figures=False, warn=messages.append)
    assert any("metrics.jsonl: is truncated: it has " in line for line in messages)


@pytest.mark.parametrize("manifest", [{"command": 3}, {"versions": [1]}, {"command": [None, ["a"]]}, {"started": {}}])
def test_a_crafted_manifest(manifest: dict[str, Any], folder: Path) -> None:
    edited(folder, lambda c: c.update(manifest=manifest))
    write_report(folder, figures=False)


def test_damaged_lines_of_the_log_are_counted_and_left_out(folder: Path) -> None:
    log = folder / "runs" / "sincere-0" / "metrics.jsonl"
    first, second, third = log.read_text().splitlines()
    crafted = [
        "[1, 2]",
        '"text"',
        "3",
        "null",
        "{}",
        '{"epoch": "one"}',
        '{"epoch": 1, "loss": "low"}',
        '{"epoch": true}',
    ]
    crafted += [
        '{"epoch": 2, "knn1_train": [1]}',
        f'{{"epoch": {10**400}}}',
        "[" * 100_000,
        '{"epoch": 1, "floor": 1e999}',
    ]
    log.write_bytes("\n".join([first, "{damaged", second, *crafted, third, ""]).encode() + b"\xff")
    text = write_report(folder, figures=False).read_text(encoding="utf-8")
    assert "SINCERE, seed 0: metrics.jsonl: 12 damaged lines are left out." in text
    run = read_evidence(folder, files=False).runs[0]
    assert [row["epoch"] for row in run.log] == [1, 2, 1, 3]  # infinite values are gaps
    log.unlink()
    log.mkdir()
    write_report(folder, figures=False)


def archive(**changes: Any) -> Callable[[Path], None]:
    """Return what writes a map with some arrays replaced."""

    def write(path: Path) -> None:
        arrays = {**read_arrays(path, remedy=""), **changes}
        write_arrays(path, {name: array for name, array in arrays.items() if array is not None})

    return write


def encrypted(path: Path) -> None:
    content = bytearray(path.read_bytes())
    position = content.index(b"PK\x01\x02")
    content[position + 8] |= 1  # a flag in the directory
    path.write_bytes(content)


def packed_in_an_unknown_way(path: Path) -> None:
    content = bytearray(path.read_bytes())
    position = content.index(b"PK\x01\x02")
    content[position + 10] = 99
    path.write_bytes(content)


def pickled(path: Path) -> None:
    np.savez(path, ids=np.array([{}], dtype=object))


def of_something_else(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("ids.npy", b"\x93NUMPY\x01\x00")


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:300]),
    "encrypted": encrypted,
    "unknown": packed_in_an_unknown_way,
    "pickled": pickled,
    "foreign": of_something_else,
    "one array": lambda path: np.save(path.open("wb"), np.zeros(3)),
    "lacking": archive(points=None),
    "more": archive(more=np.zeros(3)),
    "shorter": archive(labels=np.zeros(3, dtype=np.int64)),
    "scalar": archive(ids=np.array(3)),
    "floats": archive(labels=np.zeros(40)),
    "negative": archive(predictions=np.full(40, -1)),
    "beyond": archive(predictions=np.full(40, 10)),
    "neighbours": archive(neighbours=np.full((40, 5), 30)),
    "no neighbours": archive(neighbours=None),
    "similarities": archive(similarities=np.zeros((40, 4), dtype=np.float32)),
    "integer similarities": archive(similarities=np.zeros((40, 5), dtype=np.int64)),
    "infinite similarities": archive(similarities=np.full((40, 5), np.nan, dtype=np.float32)),
    "training ids": archive(train_ids=np.arange(30) * 1.0),
    "one training id": archive(train_ids=np.array(3)),
    "few training labels": archive(train_labels=np.zeros(29, dtype=np.int64)),
    "negative training labels": archive(train_labels=np.full(30, -1)),
    "training labels beyond": archive(train_labels=np.full(30, 10)),
    "many training pixels": archive(train_thumbnails=np.zeros((31, 8, 8, 1), dtype=np.uint8)),
    "training channels": archive(train_thumbnails=np.zeros((30, 8, 8, 2), dtype=np.uint8)),
    "flat training pixels": archive(train_thumbnails=np.zeros((30, 64), dtype=np.uint8)),
    "huge training pixels": archive(train_thumbnails=np.zeros((30, 8, 257, 1), dtype=np.uint8)),
    "few training texts": archive(train_texts=np.array(["a", "b"])),
    "no training texts": archive(train_texts=np.zeros(30)),
    "flat": archive(neighbours=np.zeros(40, dtype=np.int64)),
    "infinite": archive(points=np.full((40, 2), np.inf, dtype=np.float32)),
    "integers": archive(points=np.zeros((40, 2), dtype=np.int64)),
    "channels": archive(thumbnails=np.zeros((40, 8, 8, 4), dtype=np.uint8)),
    "pixels": archive(thumbnails=np.zeros((40, 8, 8, 1))),
    "no pixels": archive(thumbnails=np.zeros((40, 0, 8, 1), dtype=np.uint8)),
    "method": archive(method=np.array(["a", "b"])),
    "few texts": archive(texts=np.array(["a", "b"])),
    "no texts": archive(texts=np.zeros(40)),
}


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("checked", [True, False])
def test_a_damaged_map_is_a_gap(name: str, checked: bool, folder: Path) -> None:
    run = folder / "runs" / "sincere-0"
    DAMAGES[name](run / MAP)
    if not checked:  # as if the checksum had been made to match
        edited(folder, lambda c: c["rows"][0].update(files={}))
    first, second = read_evidence(folder, files=False).runs
    assert first.map is None
    assert first.problems[MAP].endswith("; evaluate the run again")
    assert second.map is not None


def test_arrays_of_another_evaluation_are_noticed(folder: Path) -> None:
    shutil.copy(folder / "runs" / "supcon-0" / MAP, folder / "runs" / "sincere-0" / MAP)
    EmbeddingMap.read(folder / "runs" / "sincere-0")
    text = write_report(folder, figures=False).read_text(encoding="utf-8")
    assert "map.npz: is damaged, or of another evaluation: its checksum does not match; evaluate the run again." in text
