"""Searches with objectives whose best settings are known: budgets, resuming, pruning, edges, failures."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import optuna
import pytest
from optuna.pruners import NopPruner
from optuna.trial import TrialState

import sincere
from sincere.catalog import LOSSES
from sincere.errors import DataError, InputTypeError, InputValueError
from sincere.records.search import STUDY, Dimension, SearchResults
from sincere.training.interruption import InterruptedRunError
from sincere.tuning.storage import open_storage
from sincere.tuning.study import FailedTrialError, Report, open_study
from tests.tuning.analytic import BEST, GRID, bowl


def run(out: Path, **settings: Any) -> SearchResults:
    options: dict[str, Any] = {"objective": bowl, "losses": ["sincere"], "trials": 8, "quiet": True}
    found = sincere.search(**{**options, **settings}, out=out)
    assert found is not None
    return found


def test_finds_the_best_point_of_a_grid(tmp_path: Path) -> None:
    found = run(tmp_path / "s", grid="space", space=GRID)
    assert found.best("sincere") == BEST
    assert len(found.trials) == 12
    assert found.losses[0].edges == ()
    assert {trial.state for trial in found.trials} == {"complete"}  # a grid is not pruned
    assert SearchResults.read(tmp_path / "s") == found


def test_suggestions_approach_the_best(tmp_path: Path) -> None:
    found = run(tmp_path / "s", trials=40)
    first = max(trial.value or 0 for trial in found.trials[:5])
    assert found.losses[0].value > max(first, 0.9)
    assert set(found.losses[0].importance) == {"temperature", "learning_rate"}
    assert sum(found.losses[0].importance.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("losses", [["sincere", "supcon"], list(LOSSES)])
def test_equal_budgets_and_equal_first_suggestions(tmp_path: Path, losses: list[str]) -> None:
    found = run(tmp_path / "s", losses=losses, trials=5)
    assert Counter(trial.loss for trial in found.trials) == dict.fromkeys(losses, 5)
    of = {loss: [trial.settings["temperature"] for trial in found.of_loss(loss)] for loss in losses}
    assert all(values == of["sincere"] for loss, values in of.items())  # those before the sampler has learned
    assert not any("different numbers" in note for note in found.notes)


def test_own_hyper_parameters_are_searched_and_make_a_grid_larger(tmp_path: Path) -> None:
    found = run(tmp_path / "a", losses=["sincere", "eps-supinfonce"], trials=3)
    assert {tuple(trial.settings) for trial in found.of_loss("eps-supinfonce")} == {
        ("temperature", "learning_rate", "epsilon")
    }
    grid = run(tmp_path / "b", losses=["sincere", "eps-supinfonce"], grid="paper", data="cifar100")
    counts = Counter(trial.loss for trial in grid.trials)
    assert counts == {"sincere": 6, "eps-supinfonce": 18}
    assert any("different numbers of trials: sincere 6, eps-supinfonce 18" in note for note in grid.notes)


def test_the_grid_of_cifar10_is_the_authors(tmp_path: Path) -> None:
    found = run(tmp_path / "s", grid="paper", data="cifar10")
    assert len(found.trials) == 9 * 6


def test_the_same_command_runs_nothing_again_and_more_trials_are_added(tmp_path: Path) -> None:
    calls = list[str]()

    def counted(loss: str, settings: Mapping[str, Any], report: Report) -> float:
        calls.append(loss)
        return bowl(loss, settings, report)

    first = run(tmp_path / "s", objective=counted, trials=4)
    again = run(tmp_path / "s", objective=counted, trials=4)
    assert (len(calls), again.trials) == (4, first.trials)
    more = run(tmp_path / "s", objective=counted, trials=6)
    assert len(calls) == len(more.trials) == 6
    assert more.trials[:4] == first.trials


def test_a_search_that_was_stopped_resumes_and_ends_as_if_it_was_not(tmp_path: Path) -> None:
    calls = list[dict[str, Any]]()

    def interrupted(loss: str, settings: Mapping[str, Any], report: Report) -> float:
        calls.append(dict(settings))
        if len(calls) in (3, 4):
            raise InterruptedRunError("stopped by SIGTERM") if len(calls) == 3 else KeyboardInterrupt
        return bowl(loss, settings, report)

    with pytest.raises(InterruptedRunError):
        run(tmp_path / "s", objective=interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "s", objective=interrupted)
    found = run(tmp_path / "s", objective=interrupted)
    whole = run(tmp_path / "whole", objective=bowl)
    assert calls[2] == calls[3] == calls[4]  # the trial is run again with the same settings
    assert [(t.number, t.settings, t.state) for t in found.trials] == [
        (t.number, t.settings, t.state) for t in whole.trials
    ]


def test_bad_trials_are_pruned_by_the_median(tmp_path: Path) -> None:
    found = run(tmp_path / "s", trials=20)
    pruned = [trial for trial in found.trials if trial.state == "pruned"]
    complete = [trial for trial in found.trials if trial.state == "complete"]
    assert pruned
    assert complete
    assert all(len(trial.curve) < 8 for trial in pruned)
    assert found.losses[0].trial in {trial.number for trial in complete}
    without = run(tmp_path / "t", trials=20, pruner="none")
    assert {trial.state for trial in without.trials} == {"complete"}


def test_successive_halving_prunes_too(tmp_path: Path) -> None:
    found = run(tmp_path / "s", trials=20, pruner="halving")
    assert {trial.state for trial in found.trials} == {"complete", "pruned"}


@pytest.mark.parametrize(
    ("space", "next_space"),
    [
        ("temperature=0.2,0.4,0.8", "temperature=0.1,0.2,0.4"),
        ("temperature=0.0125,0.025,0.05", "temperature=0.025,0.05,0.1"),
        ("temperature=0.05,0.1,0.2", None),
    ],
)
def test_warns_at_the_edge_of_a_grid(tmp_path: Path, space: str, next_space: str | None) -> None:
    found = run(tmp_path / "s", grid="space", space=[space])
    if next_space is None:
        assert found.notes == ()
        return
    (note,) = found.notes
    assert note.endswith(f"end of what was searched; try --space {next_space}")


def test_warns_at_the_edge_of_a_range(tmp_path: Path) -> None:
    found = run(tmp_path / "s", trials=30, space=["temperature=0.2:0.8"], learning_rate=0.3)
    (edge,) = found.losses[0].edges
    assert (edge.name, edge.end, edge.next) == ("temperature", "low", "temperature=0.05:0.8")


def test_among_equal_trials_the_middle_wins(tmp_path: Path) -> None:
    def flat(loss: str, settings: Mapping[str, Any], report: Report) -> float:
        return 0.9

    found = run(tmp_path / "s", objective=flat, grid="space", space=GRID)
    assert found.best("sincere")["learning_rate"] == 0.3
    assert found.best("sincere")["temperature"] in (0.05, 0.1)
    assert found.losses[0].importance == {}


def test_failed_trials_do_not_end_a_search_unless_all_fail(tmp_path: Path) -> None:
    def failing(loss: str, settings: Mapping[str, Any], report: Report) -> float:
        if settings["learning_rate"] == 1.0:
            raise FailedTrialError("train: the loss is inf at step 3")
        return bowl(loss, settings, report)

    found = run(tmp_path / "s", objective=failing, grid="space", space=GRID)
    failed = [trial for trial in found.trials if trial.state == "failed"]
    assert len(failed) == 4
    assert {trial.error for trial in failed} == {"train: the loss is inf at step 3"}
    with pytest.raises(DataError, match="no trial of sincere is complete; the first failed: train: the loss is inf"):
        run(tmp_path / "t", objective=failing, grid="space", space=["temperature=0.1,0.2", "learning_rate=1.0"])


def test_given_values_are_not_searched(tmp_path: Path) -> None:
    found = run(tmp_path / "s", temperature=0.1)
    assert {tuple(trial.settings) for trial in found.trials} == {("learning_rate",)}
    assert found.settings["temperature"] == 0.1


def test_several_kinds_of_settings(tmp_path: Path) -> None:
    kinds = set[tuple[type, ...]]()

    def typed(loss: str, settings: Mapping[str, Any], report: Report) -> float:
        kinds.add(tuple(type(value) for value in settings.values()))
        return 0.5 + 0.1 * (settings["head"] == "mlp")

    space = ["batch_size=64:512", "head=mlp,linear", "weight_decay=0:0.1"]
    found = run(tmp_path / "s", objective=typed, space=space, temperature=0.1, learning_rate=0.1)
    assert kinds == {(int, str, float)}
    assert found.best("sincere")["head"] == "mlp"


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


def test_the_trial_of_a_worker_that_was_killed_is_run_again(tmp_path: Path) -> None:
    """As a kill leaves it: running, with a worker whose lock nobody holds."""
    first = run(tmp_path / "s", trials=2, pruner="none")
    study = optuna.load_study(study_name="s/sincere", storage=f"sqlite:///{tmp_path / 's' / STUDY}")
    trial = study.ask()
    trial.suggest_float("temperature", 0.02, 0.5, log=True)
    trial.set_user_attr("worker", "dead")
    (tmp_path / "s" / "workers").mkdir(exist_ok=True)
    (tmp_path / "s" / "workers" / "dead").touch()
    found = run(tmp_path / "s", trials=3, pruner="none")
    assert len(found.trials) == len(first.trials) + 1
    again = found.trials[-1]
    assert (again.state, again.settings["temperature"]) == ("complete", trial.params["temperature"])
    states = Counter(trial.state for trial in study.trials)
    assert states == {TrialState.COMPLETE: 3, TrialState.FAIL: 1}


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
        ({"temperature": 0.1, "learning_rate": 0.1}, "search: nothing is left to be searched for sincere; see --space"),
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
    with pytest.raises(DataError, match="no such study; start `sincere search` without --worker first"):
        sincere.search(objective=bowl, worker=True, out=tmp_path / "s", quiet=True)
    run(tmp_path / "s", trials=2)
    with pytest.raises(DataError, match="holds no study 'other'"):
        sincere.search(objective=bowl, worker=True, out=tmp_path / "s", study="other", quiet=True)


def test_a_given_default_is_fixed_too(tmp_path: Path) -> None:
    found = run(tmp_path / "s", losses=["eps-supinfonce"], epsilon=0.25, trials=2)
    assert {tuple(trial.settings) for trial in found.trials} == {("temperature", "learning_rate")}


def test_a_worker_does_not_prune_a_grid(tmp_path: Path) -> None:
    """It takes everything from the study but where things are."""
    calls = list[str]()

    def stopped(loss: str, settings: Mapping[str, Any], report: Report) -> float:
        calls.append(loss)
        if len(calls) > 6:
            raise InterruptedRunError("stopped")
        return bowl(loss, settings, report)

    space = ["temperature=0.1,0.2,0.05,0.02", "learning_rate=0.3,0.1,1.0"]  # the best first, so that others are worse
    with pytest.raises(InterruptedRunError):
        run(tmp_path / "s", objective=stopped, grid="space", space=space)
    sincere.search(objective=bowl, worker=True, out=tmp_path / "s", quiet=True)
    found = run(tmp_path / "s", grid="space", space=space)
    assert [trial.state for trial in found.trials] == ["complete"] * 12


def test_workers_on_one_file_take_each_trial_once(tmp_path: Path) -> None:
    """SQLite has no row locks of its own."""
    (tmp_path / "log.go").touch()
    command = [sys.executable, "-m", "tests.tuning.analytic"]
    words = [f"sqlite:///{tmp_path / 'shared.db'}", str(tmp_path / "s"), str(tmp_path / "log")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    root = Path(__file__).parents[2]
    first = subprocess.Popen([*command, "search", *words], cwd=root, env=environment)
    while not (tmp_path / "log").exists():
        assert first.poll() is None
        time.sleep(0.05)
    others = [subprocess.Popen([*command, "worker", *words], cwd=root, env=environment) for _ in range(2)]
    assert [process.wait(120) for process in (first, *others)] == [0, 0, 0]
    started = Counter(line.split(" ", 2)[2] for line in (tmp_path / "log").read_text().splitlines() if "start" in line)
    assert len(started) == 12
    assert set(started.values()) == {1}


@pytest.mark.parametrize("n_processes", [4])
def test_taking_is_exclusive(tmp_path: Path, n_processes: int) -> None:
    """Many processes that only take: no trial twice."""
    space = [Dimension(name="temperature", low=0.02, high=0.5, log=True)]
    study = open_study(open_storage(tmp_path / "study.db"), "s/sincere", "sincere", space, {}, seed=0,
                       pruner=NopPruner())  # fmt: skip
    study.enqueue(40)
    with ProcessPoolExecutor(n_processes, mp_context=get_context("spawn")) as pool:
        taken = [number for numbers in pool.map(_take_all, [tmp_path / "study.db"] * n_processes) for number in numbers]
    assert sorted(taken) == list(range(40))


def _take_all(path: Path) -> list[int]:
    space = [Dimension(name="temperature", low=0.02, high=0.5, log=True)]
    study = open_study(open_storage(path), "s/sincere", "sincere", space, {}, seed=0, pruner=NopPruner())
    taken = []
    while (trial := study.take("worker")) is not None:
        taken.append(trial.number)
    return taken


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


def test_a_loss_that_was_searched_before_stays(tmp_path: Path) -> None:
    run(tmp_path / "s", trials=2)
    found = run(tmp_path / "s", trials=3, losses=["supcon"])
    assert {of_loss.loss for of_loss in found.losses} == {"sincere", "supcon"}
    assert "the losses had different numbers of trials: supcon 3, sincere 2" in found.notes


@pytest.mark.parametrize("name", ["a?b", "50%41", "a b#c"])
def test_odd_names_of_folders(tmp_path: Path, name: str) -> None:
    run(tmp_path / name, trials=2)
    assert (tmp_path / name / STUDY).exists()
    assert [path.name for path in tmp_path.iterdir()] == [name]
