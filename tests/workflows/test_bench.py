"""`sincere bench` measures every part and says what it left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sincere.cli import main
from sincere.settings.bench_request import PARTS
from sincere.workflows import bench, timing

QUICK = ["bench", "--seconds", "0.01", "--batch-sizes", "16", "40", "--dim", "8", "--device", "cpu"]


def test_every_part_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "VIEWS", 8)
    monkeypatch.setattr(bench, "STEP_VIEWS", 8)
    monkeypatch.setattr(bench, "QUERIES", 20)
    monkeypatch.setattr(bench, "REFERENCES", 50)
    out = tmp_path / "bench.json"
    assert main([*QUICK, "--out", str(out)]) == 0
    content = json.loads(out.read_text())
    rows = content["rows"]
    assert list(dict.fromkeys(row["part"] for row in rows)) == list(PARTS)
    assert {row["size"] for row in rows if row["part"] == "losses"} == {16, 40}
    assert {"dense", "tiled", "three GEMMs"} <= {row["case"] for row in rows if row["part"] == "losses"}
    assert all(row["low_ms"] <= row["median_ms"] <= row["high_ms"] and row["rounds"] >= 3 for row in rows)
    assert [row["times_as_long"] for row in rows if row["case"] == "dense"] == [1.0, 1.0]  # what `auto` takes here
    printed = capsys.readouterr().out
    assert "three GEMMs" in printed
    assert "wrote" in printed
    # What a user may send to others names no folder and no machine.
    assert str(tmp_path) not in out.read_text()
    assert "command" not in content["machine"]


def test_matrices_that_do_not_fit_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "free_bytes", lambda device: 10_000)
    out = tmp_path / "bench.json"
    assert main([*QUICK, "--parts", "losses", "--quiet", "--out", str(out)]) == 0
    content = json.loads(out.read_text())
    assert not any(row["case"] == "dense" and row["size"] == 40 for row in content["rows"])
    left_out = {(row["case"], row["size"]): row["why"] for row in content["left_out"]}
    assert left_out["dense", 40] == "its matrices would not fit into memory"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--device", "cuda"], "device must be available here"),
        (["--parts", "loses"], "losses"),
        (["--batch-sizes", "1"], "batch_sizes must be at least 2"),
        (["--seconds", "0"], "seconds"),
    ],
)
def test_wrong_flags(flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--out", str(tmp_path / "bench.json"), *flags]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_cases_take_turns() -> None:
    calls: list[str] = []
    cases = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    times = timing.time_in_turns(cases, seconds=0, warm_up=1, least=4)
    assert calls == ["a", "b"] * 5
    assert [len(values) for values in times.values()] == [4, 4]
    assert timing.ratio([1.0, 2.0, 4.0], [2.0, 6.0, 8.0]) == 2.0
