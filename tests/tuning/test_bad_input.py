"""Wrong settings, other studies, damaged files, bad objectives: one line, and nothing is lost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import optuna
import pytest

import sincere
from sincere.errors import DataError, InputTypeError, InputValueError
from sincere.records.search import STUDY, SearchResults
from sincere.tuning.study import Report
from tests.tuning.analytic import bowl, run


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"epochs": 5}, r"is for epochs = None, not 5"),
        ({"seeds": [1]}, r"is for seeds = \[0\], not \[1\]"),
        ({"space": ["temperature=0.1:0.2"]}, "is for another space"),
    ],
)
def test_a_study_for_something_else_is_refused(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    first = run(tmp_path / "s", trials=2)
    with pytest.raises(DataError, match=message):
        run(tmp_path / "s", trials=2, **changed)
    assert SearchResults.read(tmp_path / "s") == first
    run(tmp_path / "s", trials=2, overwrite=True, **changed)


def test_a_study_for_another_loss_is_refused(tmp_path: Path) -> None:
    run(tmp_path / "s", trials=2)
    path = f"sqlite:///{tmp_path / 's' / STUDY}"
    study = optuna.load_study(study_name="s/sincere", storage=path)
    study.set_user_attr("identity", {**study.user_attrs["identity"], "loss": "supcon"})
    with pytest.raises(DataError, match="is for loss = 'supcon', not 'sincere'"):
        run(tmp_path / "s", trials=2)


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("...")
    with pytest.raises(DataError, match=r"holds files that are not a search's, such as thesis\.tex"):
        run(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"trials": 0}, "search: trials must be at least 1; got 0"),
        ({"space": ["temperature=0.5:0.1"]}, "search: space: temperature must have its low end below its high end"),
        (
            {"space": ["temprature=0.1:0.5"]},
            "search: space: 'temprature' cannot be searched; did you mean 'temperature'?",
        ),
        ({"space": ["temperature=0:0.5"]}, "search: space: temperature must be greater than 0; got 0.0"),
        ({"space": ["temperature=warm"]}, "search: space: temperature must be a number; got 'warm'"),
        ({"space": ["temperature"]}, "search: space must be NAME=LOW:HIGH or NAME=VALUE,VALUE,...; got 'temperature'"),
        ({"space": ["head=mlp:linear"]}, "search: space: head takes names, which have no range; list them"),
        (
            {"space": ["head=mlpp"]},
            "search: space: head must be one of 'mlp', 'linear', 'none'; got 'mlpp'. Did you mean 'mlp'?",
        ),
        ({"space": ["batch_size=1.5,2"]}, "search: space: batch_size must be an integer; got '1.5'"),
        ({"space": ["temperature=0.1,0.1"]}, "search: space: temperature must have each value once; got 0.1,0.1"),
        ({"space": ["temperature=0.1,0.2"], "temperature": 0.1}, "search: temperature is given a value and searched"),
        ({"grid": "space"}, "search: the grid `space` needs space"),
        ({"grid": "space", "space": ["temperature=0.1:0.2"]}, "search: space: a grid needs values in place of a range"),
        ({"grid": "paper", "space": ["temperature=0.1"]}, "search: space is not for the paper's grid"),
        ({"minutes": 3}, "search: minutes cannot be searched with"),
        ({"worker": True, "overwrite": True}, "search: a worker only helps with trials"),
        ({"losses": ["sincere", "sincere"]}, "search: losses and seeds must be given, and each one once"),
        ({"storage": "nonsense"}, "search: storage is no address of a database"),
        ({"storage": "mysql://a:secret@b/c"}, "search: storage mysql://a:***@b/c is of a kind that is not supported"),
        ({"storage": "postgresql://b:9/c?password=secret"}, "search: storage postgresql://b:9/c?password=*** cannot"),
        ({"study": "a/b"}, "search: study must be a name without a slash; got 'a/b'"),
        ({"temperature": 0.1, "learning_rate": 0.1}, "search: nothing is left to be searched for sincere; see space"),
        ({"grid": "space", "space": ["epsilon=0.1,0.2"]}, "search: nothing is left to be searched for sincere"),
        ({"final": True}, "search: final models are trained; leave out final for an objective of your own"),
    ],
)
def test_bad_input(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises((InputValueError, DataError)) as error:
        run(tmp_path / "s", **settings)
    assert str(error.value).startswith(message)
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unreachable_server_is_named_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        run(tmp_path / "s", storage="postgresql://ann:secret@127.0.0.1:9/studies")
    assert str(error.value).startswith("search: storage postgresql://ann:***@127.0.0.1:9/studies cannot be used (")
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)


def test_a_damaged_study_is_one_line(tmp_path: Path) -> None:
    run(tmp_path / "s", trials=2)
    (tmp_path / "s" / STUDY).write_bytes(b"not a database at all" * 100)
    with pytest.raises(DataError, match=r"study\.db cannot be used \(file is not a database\)"):
        run(tmp_path / "s", trials=2)


def test_a_worker_needs_a_study(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such study; start `sincere search` without worker=True first"):
        sincere.search(objective=bowl, worker=True, out=tmp_path / "s", quiet=True)
    run(tmp_path / "s", trials=2)
    with pytest.raises(DataError, match="holds no study 'other'"):
        sincere.search(objective=bowl, worker=True, out=tmp_path / "s", study="other", quiet=True)


def test_overwrite_keeps_the_search_if_the_new_one_cannot_start(tmp_path: Path) -> None:
    first = run(tmp_path / "s", trials=2)
    for wrong in ({"storage": "postgresql://127.0.0.1:9/x"}, {"temperature": 0.1, "learning_rate": 0.1}):
        with pytest.raises((DataError, InputValueError)):
            run(tmp_path / "s", overwrite=True, **wrong)
        assert SearchResults.read(tmp_path / "s") == first
    assert run(tmp_path / "s", trials=2) == first.model_copy(update={"manifest": ANY})


def test_studies_of_similar_names_are_left_alone(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'all.db'}"
    for name in ("a", "ab"):
        run(tmp_path / name, trials=2, storage=address)
    run(tmp_path / "a", trials=3, storage=address, overwrite=True)
    counts = {name: len(optuna.load_study(study_name=name, storage=address).trials)
              for name in optuna.get_all_study_names(address)}  # fmt: skip
    assert counts == {"a/sincere": 3, "ab/sincere": 2}


def test_a_passing_error_stops_the_search_and_is_no_trial(tmp_path: Path) -> None:
    def full(loss: str, settings: Mapping[str, Any], report: Report) -> float:
        raise DataError("disk full")

    with pytest.raises(DataError, match="disk full"):
        run(tmp_path / "s", objective=full, trials=3)
    found = run(tmp_path / "s", trials=3, pruner="none")
    assert [trial.state for trial in found.trials] == ["complete"] * 3


@pytest.mark.parametrize("value", [1.5, -0.1, float("nan"), float("inf"), None, "good"])
def test_values_that_are_no_accuracies(tmp_path: Path, value: Any) -> None:
    with pytest.raises(
        (InputValueError, InputTypeError), match="the values of an objective must be numbers from 0 to 1"
    ):
        run(tmp_path / "s", trials=2, objective=lambda loss, settings, report: value)

    def reporting(loss: str, settings: Mapping[str, Any], report: Report) -> float:
        report(1, value)
        return 0.5

    with pytest.raises((InputValueError, InputTypeError), match="the values of `report` must be numbers from 0 to 1"):
        run(tmp_path / "s", trials=2, objective=reporting)
    assert len(run(tmp_path / "s", trials=2).trials) == 2  # nothing of it was stored


def test_a_grid_and_suggestions_are_not_mixed(tmp_path: Path) -> None:
    space = ["temperature=0.1,0.2", "learning_rate=0.1,0.3"]
    run(tmp_path / "s", trials=2, space=space)
    with pytest.raises(DataError, match="is for grid = False, not True"):
        run(tmp_path / "s", grid="space", space=space)


@pytest.mark.parametrize("name", ["a?b", "50%41", "a b#c"])
def test_odd_names_of_folders(tmp_path: Path, name: str) -> None:
    run(tmp_path / name, trials=2)
    assert (tmp_path / name / STUDY).exists()
    assert [path.name for path in tmp_path.iterdir()] == [name]
