"""Searches with objectives whose best settings are known: budgets, resuming, pruning, edges, workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.pruners import NopPruner
from optuna.trial import TrialState

import sincere
from sincere.errors import DataError
from sincere.records.search import STUDY, Dimension, SearchResults
from sincere.settings.search_space import paper_space
from sincere.training.interruption import InterruptedRunError
from sincere.tuning.storage import open_storage
from sincere.tuning.study import FailedTrialError, Report, open_study
from tests.tuning.analytic import BEST, GRID, bowl, run


def test_finds_the_best_point_of_a_grid(tmp_path: Path) -> None:
    found = run(tmp_path / "s", grid="space", space=GRID)
    assert found.best("sincere") == BEST
    assert len(found.trials) == 12
    assert found.losses[0].edges == ()
    assert {trial.state for trial in found.trials} == {"complete"}  # a grid is not pruned
    assert SearchResults.read(tmp_path / "s") == found


def test_suggestions_approach_the_best(tmp_path: Path) -> None:
    found = run(tmp_path / "s", trials=24)
    first = max(trial.value or 0 for trial in found.trials[:5])
    assert found.losses[0].value > max(first, 0.9)
    assert set(found.losses[0].importance) == {"temperature", "learning_rate"}
    assert sum(found.losses[0].importance.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("losses", [["sincere", "supcon"], ["sincere", "eps-supinfonce", "infonce", "k-positives"]])
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


def test_the_papers_grid_depends_on_the_data() -> None:
    sizes = {data: [len(dimension.values) for dimension in paper_space("eps-supinfonce", data)]
             for data in ("data/cifar10.npz", "cifar100")}  # fmt: skip
    assert sizes == {"data/cifar10.npz": [6, 9, 3], "cifar100": [2, 3, 3]}


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
    found = run(tmp_path / "s", trials=12)
    pruned = [trial for trial in found.trials if trial.state == "pruned"]
    complete = [trial for trial in found.trials if trial.state == "complete"]
    assert pruned
    assert complete
    assert all(len(trial.curve) < 8 for trial in pruned)
    assert found.losses[0].trial in {trial.number for trial in complete}
    without = run(tmp_path / "t", trials=12, pruner="none")
    assert {trial.state for trial in without.trials} == {"complete"}


def test_successive_halving_prunes_too(tmp_path: Path) -> None:
    found = run(tmp_path / "s", trials=12, pruner="halving")
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


def test_processes_on_one_file_take_each_trial_once(tmp_path: Path) -> None:
    """SQLite has no row locks of its own."""
    n_processes = 3
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


def test_a_loss_that_was_searched_before_stays(tmp_path: Path) -> None:
    run(tmp_path / "s", trials=2)
    found = run(tmp_path / "s", trials=3, losses=["supcon"])
    assert {of_loss.loss for of_loss in found.losses} == {"sincere", "supcon"}
    assert "the losses had different numbers of trials: supcon 3, sincere 2" in found.notes
