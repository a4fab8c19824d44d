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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from typing import Any, cast

import optuna
from optuna.exceptions import DuplicatedStudyError, ExperimentalWarning, UpdateFinishedTrialError
from optuna.pruners import BasePruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import TPESampler
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback, fail_stale_trials
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from sincere.checks import wording
from sincere.errors import DataError, InputTypeError, InputValueError
from sincere.records.search import Dimension, State, TrialRow, Value
from sincere.tuning.storage import exclusive, heartbeat

# Names of attributes. Of a study: what decides its values, what is searched, and what else workers need. Of a trial.
IDENTITY, SPACE, ABOUT = "identity", "space", "about"
WORKER, ERROR, SECONDS = "worker", "error", "seconds"
FIRST_CHECKS = 2  # live accuracies that stop no trial: early on, they say little
STATES: dict[TrialState, State] = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}


class PrunedError(Exception):
    """The trial is not worth its time: others were better by then."""


class FailedTrialError(Exception):
    """These settings cannot be trained; an objective raises it, and the search continues with others."""


class LostTrialError(Exception):
    """Another worker has taken over the trial, because this one was silent for too long."""


class Watcher:
    """Is told of the trials that this process runs; this one ignores it all."""

    def started(self, loss: str, settings: Mapping[str, Value]) -> None:
        """Handle the start of a trial."""

    def live(self, epoch: int, value: float) -> None:
        """Handle a live accuracy."""

    def ended(self, study: LossStudy, number: int) -> None:
        """Handle the end of a trial."""

    def waiting(self, n_running: int) -> None:
        """Handle that others run the last trials."""


@dataclass(eq=False)
class Report:
    """Takes the live accuracies of a trial, by which it may be pruned.

    Attributes:
        name: Name of the trial, the same when it is run again.
        trial: Optuna's trial.
        watcher: Is told, too.
        n_stored: Number of accuracies so far.
    """

    name: str
    trial: optuna.Trial
    watcher: Watcher
    n_stored: int = 0

    def __call__(self, epoch: int, value: float) -> None:
        """Store the accuracy after an epoch.

        Raises:
            PrunedError: The trial is to be stopped.
        """
        self.store(epoch, value)
        if self.n_stored > FIRST_CHECKS and self.trial.should_prune():
            raise PrunedError

    def store(self, epoch: int, value: float) -> None:
        """Store an accuracy that cannot stop the trial, as that of the last epoch."""
        self.trial.report(_checked(value, "report"), epoch)
        self.n_stored += 1
        self.watcher.live(epoch, value)


Objective = Callable[[str, Mapping[str, Value], Report], float]  # of a loss and its settings


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
        with exclusive(self.storage):
            with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):
                fail_stale_trials(self.study)
            for trial in self.trials(TrialState.RUNNING):
                if WORKER in trial.user_attrs and is_dead(trial.user_attrs[WORKER]):
                    self._put_back(trial.number)

    def _put_back(self, number: int) -> None:
        """Enqueue a trial again with the same settings."""
        try:
            if not self.storage.set_trial_state_values(self._trial_id(number), state=TrialState.FAIL):
                return
        except UpdateFinishedTrialError:  # another worker has done it
            return
        with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):
            RetryHeartbeatStaleTrialCallback()(self.study, self.study.trials[number])

    def _trial_id(self, number: int) -> int:
        study_id = self.storage.get_study_id_from_name(self.study.study_name)
        return self.storage.get_trial_id_from_study_id_trial_number(study_id, number)

    def take(self, worker: str) -> TakenTrial | None:
        """Take a waiting trial, what was stopped before first; None if there is none."""
        with exclusive(self.storage):
            for waiting in sorted(self.trials(TrialState.WAITING), key=first_number):
                trial_id = self._trial_id(waiting.number)
                try:
                    # Before it runs: a kill in between must not leave a running trial that nobody answers for.
                    self.storage.record_heartbeat(trial_id)
                    self.storage.set_trial_user_attr(trial_id, WORKER, worker)
                    if not self.storage.set_trial_state_values(trial_id, state=TrialState.RUNNING):
                        continue
                except UpdateFinishedTrialError:
                    continue
                self.study.sampler = _sampler(self.seed, first_number(waiting))
                return TakenTrial(first_number(waiting), trial_id, optuna.Trial(self.study, trial_id))
        return None

    def run(self, taken: TakenTrial, objective: Objective, watcher: Watcher) -> None:
        """Run a trial that was taken, and store how it ended. Any error but `FailedTrialError` puts it back.

        Raises:
            LostTrialError: Another worker has taken it over.
        """
        trial, started = taken.trial, time.monotonic()
        try:
            with heartbeat(self.storage, taken.trial_id), self._put_back_on_error(trial.number):
                settings = {dimension.name: _suggested(trial, dimension) for dimension in self.space}
                watcher.started(self.loss, settings)
                report = Report(f"{self.study.study_name}-{taken.number}", trial, watcher)
                value: float | None = None
                state, error = TrialState.COMPLETE, None
                try:
                    value = _checked(objective(self.loss, settings, report), "objective")
                except PrunedError:
                    state = TrialState.PRUNED
                except FailedTrialError as failure:
                    state, error = TrialState.FAIL, str(failure)
                trial.set_user_attr(SECONDS, time.monotonic() - started)
                if error is not None:
                    trial.set_user_attr(ERROR, error)
                self.study.tell(trial, value, state=state)
        except UpdateFinishedTrialError as error_of_storage:
            raise LostTrialError(f"trial {taken.number} of {self.loss}") from error_of_storage
        except ValueError as refused:  # what `tell` says of a trial that has ended elsewhere
            if self.study.trials[trial.number].state == TrialState.RUNNING or "Cannot tell" not in str(refused):
                raise
            raise LostTrialError(f"trial {taken.number} of {self.loss}") from refused

    @contextmanager
    def _put_back_on_error(self, number: int) -> Iterator[None]:
        try:
            yield
        except UpdateFinishedTrialError:
            raise
        except BaseException:
            with exclusive(self.storage):
                self._put_back(number)
            raise

    def rows(self) -> list[TrialRow]:
        """Return its trials that have ended, except those that were run again."""
        trials = self.trials()
        again = {number for trial in trials for number in trial.system_attrs.get("retry_history", ())}
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
            for trial in sorted(trials, key=first_number)
            if trial.state in STATES and trial.number not in again
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
        study.set_user_attr(SPACE, stored_space)
    return LossStudy(loss, tuple(space), study, storage, seed)


def stored_study(storage: RDBStorage, name: str, *, seed: int, pruner: BasePruner) -> LossStudy:
    """Return a study that has been made, with all its trials."""
    study = optuna.load_study(storage=storage, study_name=name, pruner=pruner)
    space = tuple(Dimension.model_validate(dimension) for dimension in study.user_attrs[SPACE])
    return LossStudy(study.user_attrs[IDENTITY]["loss"], space, study, storage, seed)


def studies_called(storage: RDBStorage, name: str) -> dict[str, dict[str, Any]]:
    """Return the attributes of the studies of all losses that have this name, by their own name."""
    found = [own for own in optuna.get_all_study_names(storage) if own.rpartition("/")[0] == name]
    return {own: optuna.load_study(storage=storage, study_name=own).user_attrs for own in found}


def _check_same(study: optuna.Study, wanted: Mapping[str, Any]) -> None:
    if SPACE not in study.user_attrs:  # whoever made it was stopped there
        return
    stored = {**study.user_attrs.get(IDENTITY, {}), SPACE: study.user_attrs[SPACE]}
    for name in (*wanted, *(stored.keys() - wanted.keys())):
        was, now = stored.get(name), wanted.get(name)
        if was == now:
            continue
        what = f"{name} = {was!r}, not {now!r}"
        if name == SPACE:
            what = "another space"
        elif name == "digest":
            what = f"other data ({study.user_attrs.get(ABOUT, {}).get('data', 'unknown')})"
        remedy = "choose another --out or --study, or start over with --overwrite"
        raise DataError(f"search: the study {study.study_name!r} is for {what}; {remedy}")


def first_number(trial: FrozenTrial) -> int:
    """Return the number of a trial; one that is run again has that of its first attempt."""
    number: int = trial.system_attrs.get("failed_trial", trial.number)
    return number


def make_pruner(name: str, *, n_trials: int) -> BasePruner:
    """Return what decides by the live accuracy whether a trial is stopped early."""
    if name == "median":
        return MedianPruner(n_startup_trials=min(5, max(2, n_trials // 2)))
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


def _checked(value: object, argument: str) -> float:
    """Return an accuracy.

    Raises:
        InputTypeError: It is no number.
        InputValueError: It is not between 0 and 1.
    """
    requirement = f"the values of {'`report`' if argument == 'report' else 'an objective'} must be numbers from 0 to 1"
    if not isinstance(value, Real):
        raise InputTypeError(wording("search", requirement, type(value).__name__))
    if not 0 <= float(value) <= 1:
        raise InputValueError(wording("search", requirement, value))
    return float(value)
