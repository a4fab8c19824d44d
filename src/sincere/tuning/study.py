"""The study of one loss: its trials in the database, taken one by one by any number of workers.

All trials are enqueued when the study is made: the points of a grid, or empty places that the sampler fills when a
worker takes them. Nothing else is ever run, so that the number of trials is exact, and no point is run twice, whatever
the number of workers.
"""

from __future__ import annotations

import hashlib
import itertools
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import optuna
from optuna.exceptions import DuplicatedStudyError, ExperimentalWarning, UpdateFinishedTrialError
from optuna.pruners import BasePruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import TPESampler
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback, fail_stale_trials
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from sincere.errors import DataError, SincereError
from sincere.records.search import Dimension, State, TrialRow, Value
from sincere.tuning.storage import heartbeat

IDENTITY, SPACE, WORKER, ERROR, SECONDS = "identity", "space", "worker", "error", "seconds"  # names of attributes
Report = Callable[[int, float], None]  # an epoch and its live accuracy
Objective = Callable[[str, Mapping[str, Value], Report], float]  # a loss, its settings, Report
STATES: dict[TrialState, State] = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}
ENDED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


class PrunedError(Exception):
    """The trial is not worth its time: others were better by then."""


class LostTrialError(Exception):
    """Another worker has taken over the trial, because this one was silent for too long."""


@dataclass(frozen=True, eq=False)
class TakenTrial:
    """A trial that this process is to run.

    Attributes:
        number: Its number, that of the first attempt.
        trial_id: Its number in the database.
        trial: Optuna's trial.
    """

    number: int
    trial_id: int
    trial: optuna.Trial


@dataclass(eq=False)
class LossStudy:
    """The trials of one loss.

    Attributes:
        loss: Name of the loss.
        space: What is searched.
        study: Optuna's study.
        storage: Its database.
        seed: Random seed of the suggestions.
    """

    loss: str
    space: tuple[Dimension, ...]
    study: optuna.Study
    storage: RDBStorage
    seed: int

    @property
    def study_id(self) -> int:
        """Its number in the database."""
        return self.storage.get_study_id_from_name(self.study.study_name)

    def trials(self, *states: TrialState) -> list[FrozenTrial]:
        """Return its trials in some states."""
        return self.study.get_trials(deepcopy=False, states=states or None)

    def enqueue(self, n_trials: int) -> None:
        """Add empty places, up to this number; the sampler fills them. Trials that are run again do not count."""
        n_there = sum(first_number(trial) == trial.number for trial in self.trials())
        for _ in range(n_there, n_trials):
            self.study.enqueue_trial({})

    def enqueue_grid(self) -> None:
        """Add every combination of values that is not there yet."""
        names = [dimension.name for dimension in self.space]
        there = {frozenset(trial.system_attrs.get("fixed_params", {}).items()) for trial in self.trials()}
        for values in itertools.product(*(dimension.values for dimension in self.space)):
            point = dict(zip(names, values, strict=True))
            if frozenset(point.items()) not in there:
                self.study.enqueue_trial(point)

    def retry_abandoned(self, is_dead: Callable[[str], bool]) -> None:
        """Enqueue the trials again whose workers have died: those that are known to be dead, or silent for long."""
        with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):
            fail_stale_trials(self.study)
        for trial in self.trials(TrialState.RUNNING):
            if WORKER in trial.user_attrs and is_dead(trial.user_attrs[WORKER]):
                self._put_back(trial)

    def _put_back(self, trial: FrozenTrial) -> None:
        """Enqueue a trial again with the same settings."""
        trial_id = self.storage.get_trial_id_from_study_id_trial_number(self.study_id, trial.number)
        try:
            if not self.storage.set_trial_state_values(trial_id, state=TrialState.FAIL):
                return
        except UpdateFinishedTrialError:  # another worker has done it
            return
        with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):
            RetryHeartbeatStaleTrialCallback()(self.study, self.study.trials[trial.number])

    def take(self, worker: str) -> TakenTrial | None:
        """Take a waiting trial; None if there is none."""
        for waiting in sorted(self.trials(TrialState.WAITING), key=first_number):  # what was stopped comes first
            trial_id = self.storage.get_trial_id_from_study_id_trial_number(self.study_id, waiting.number)
            try:
                # Before it runs: a kill in between must not leave a running trial that nobody answers for.
                self.storage.record_heartbeat(trial_id)
                self.storage.set_trial_user_attr(trial_id, WORKER, worker)
                if not self.storage.set_trial_state_values(trial_id, state=TrialState.RUNNING):
                    continue
            except UpdateFinishedTrialError:
                continue
            self.study.sampler = _sampler(self.seed, first_number(waiting))
            trial = optuna.Trial(self.study, trial_id)
            trial.set_user_attr(WORKER, worker)
            return TakenTrial(first_number(waiting), trial_id, trial)
        return None

    def run(self, taken: TakenTrial, objective: Objective) -> None:
        """Run a trial that was taken, and store how it ended.

        An error of this package is a failed trial, and the search goes on; anything else puts it back and is raised.
        """
        trial = taken.trial
        settings = {dimension.name: _suggested(trial, dimension) for dimension in self.space}

        def report(epoch: int, accuracy: float) -> None:
            trial.report(accuracy, epoch)
            if trial.should_prune():
                raise PrunedError

        started = time.monotonic()
        try:
            with heartbeat(self.storage, taken.trial_id):
                value = objective(self.loss, settings, report)
            trial.set_user_attr(SECONDS, time.monotonic() - started)
            self.study.tell(trial, value, skip_if_finished=True)
        except PrunedError:
            trial.set_user_attr(SECONDS, time.monotonic() - started)
            self.study.tell(trial, state=TrialState.PRUNED, skip_if_finished=True)
        except UpdateFinishedTrialError as error:
            raise LostTrialError(f"trial {taken.number} of {self.loss} was taken over by another worker") from error
        except SincereError as error:
            if error.exit_code != SincereError.exit_code:  # interrupted
                self._put_back(self.study.trials[trial.number])
                raise
            trial.set_user_attr(ERROR, str(error))
            trial.set_user_attr(SECONDS, time.monotonic() - started)
            self.study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
        except BaseException:
            self._put_back(self.study.trials[trial.number])
            raise

    def rows(self) -> list[TrialRow]:
        """Return its trials that have ended, but for those that were run again."""
        ended = self.trials(*ENDED)
        again = {number for trial in self.trials() for number in trial.system_attrs.get("retry_history", ())}
        return [
            TrialRow(
                loss=self.loss,
                number=first_number(trial),
                state=STATES[trial.state],
                value=trial.value,
                settings=trial.params,
                curve=tuple(sorted(trial.intermediate_values.items())),
                seconds=trial.user_attrs.get(SECONDS, 0.0),
                error=trial.user_attrs.get(ERROR),
            )
            for trial in sorted(ended, key=first_number)
            if trial.number not in again
        ]

    def importance(self) -> dict[str, float]:
        """Return the share of each setting in the differences between trials; empty if there are too few trials."""
        chosen = [dimension.name for dimension in self.space if not dimension.is_fixed]
        complete = self.trials(TrialState.COMPLETE)
        if len(chosen) < 2 or len({trial.value for trial in complete}) < 2:
            return {}
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=self.seed)
        try:
            return optuna.importance.get_param_importances(self.study, evaluator=evaluator, params=chosen)
        except (RuntimeError, ValueError):  # too few trials, or all of the same value
            return {}


def open_study(
    storage: RDBStorage,
    name: str,
    loss: str,
    space: Sequence[Dimension],
    identity: Mapping[str, Any],
    *,
    seed: int,
    pruner: BasePruner,
) -> LossStudy:
    """Return the study of a loss, which is made if it is missing.

    Raises:
        DataError: There is a study of this name for other data, another loss or other settings; says which.
    """
    stored_space = [dimension.model_dump(mode="json") for dimension in space]
    try:
        study = optuna.create_study(storage=storage, study_name=name, direction=StudyDirection.MAXIMIZE, pruner=pruner)
    except DuplicatedStudyError:
        study = optuna.load_study(storage=storage, study_name=name, pruner=pruner)
        _check_same(study, {**identity, SPACE: stored_space})
    if SPACE not in study.user_attrs:
        study.set_user_attr(IDENTITY, dict(identity))
        study.set_user_attr(SPACE, stored_space)  # last: a study with it is complete
    return LossStudy(loss, tuple(space), study, storage, seed)


def stored_study(storage: RDBStorage, name: str, loss: str, *, seed: int, pruner: BasePruner) -> LossStudy | None:
    """Return the study of a loss that another process has made; None if there is none."""
    try:
        study = optuna.load_study(storage=storage, study_name=name, pruner=pruner)
        space = tuple(Dimension.model_validate(dimension) for dimension in study.user_attrs[SPACE])
    except KeyError:
        return None
    return LossStudy(loss, space, study, storage, seed)


def _check_same(study: optuna.Study, wanted: Mapping[str, Any]) -> None:
    if SPACE not in study.user_attrs:  # whoever made it was stopped there
        return
    stored = {**study.user_attrs.get(IDENTITY, {}), SPACE: study.user_attrs[SPACE]}
    for name in (*wanted, *(stored.keys() - wanted.keys())):
        was, now = stored.get(name), wanted.get(name)
        if was == now:
            continue
        what = "another space" if name == SPACE else f"{name} = {was!r}, not {now!r}"
        remedy = "choose another --out or --study, or start over with --overwrite"
        raise DataError(f"search: the study {study.study_name!r} is for {what}; {remedy}")


def first_number(trial: FrozenTrial) -> int:
    """Return the number of a trial; one that is run again has that of its first attempt."""
    number: int = trial.system_attrs.get("failed_trial", trial.number)
    return number


def make_pruner(name: str, *, n_trials: int) -> BasePruner:
    """Return what decides by the live accuracy whether a trial is stopped early."""
    if name == "median":
        return MedianPruner(n_startup_trials=min(5, max(2, n_trials // 4)))
    return SuccessiveHalvingPruner() if name == "halving" else NopPruner()


def _sampler(seed: int, number: int) -> TPESampler:
    """Return the sampler of a trial: it depends on the seed and the trial's number, and is the same for all losses."""
    digest = hashlib.sha256(f"{seed} {number}".encode()).digest()
    with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):
        return TPESampler(seed=int.from_bytes(digest[:4], "little"), n_startup_trials=5, constant_liar=True)


def _suggested(trial: optuna.Trial, dimension: Dimension) -> Value:
    """Return the value of a setting in a trial."""
    if dimension.values:
        return cast(Value, trial.suggest_categorical(dimension.name, dimension.values))
    low, high = dimension.low or 0.0, dimension.high or 0.0
    if dimension.integer:
        return trial.suggest_int(dimension.name, int(low), int(high), log=dimension.log)
    return trial.suggest_float(dimension.name, low, high, log=dimension.log)
