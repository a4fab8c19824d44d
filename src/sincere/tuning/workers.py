"""The processes that run trials: each takes waiting trials until none is left."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from optuna.trial import TrialState

from sincere.records.files import is_unlocked, locked
from sincere.tuning.study import LossStudy, LostTrialError, Objective, TakenTrial, Watcher

POLL_SECONDS = 1.0  # between two looks at the trials of others


@contextmanager
def registered(folder: Path) -> Iterator[str]:
    """Give this process a name, and hold a lock of that name until the block ends: a kill releases it at once.

    So other processes on this machine need not wait until it has been silent for long.
    """
    name = uuid4().hex[:12]
    try:
        with locked(folder, name):
            yield name
    finally:
        (folder / name).unlink(missing_ok=True)


def run_trials(studies: Sequence[LossStudy], objective: Objective, folder: Path, watcher: Watcher) -> None:
    """Run trials until all have ended, also those of other workers, whose trials are taken over if they die.

    Args:
        studies: The study of each loss; the one with the fewest trials taken is next.
        objective: Returns the accuracy of a loss with some settings.
        folder: Where the processes of this machine leave their locks.
        watcher: Is told of the trials.
    """
    with registered(folder) as name:
        while True:
            for study in studies:
                study.retry_abandoned(lambda other: other != name and is_unlocked(folder, other))
            taken = _take(studies, name)
            if taken is not None:
                study, trial = taken
                try:
                    study.run(trial, objective, watcher)
                except LostTrialError:
                    continue
                watcher.ended(study, trial.number)
                continue
            n_running = sum(len(study.trials(TrialState.RUNNING)) for study in studies)
            if not n_running and not any(study.trials(TrialState.WAITING) for study in studies):
                return
            watcher.waiting(n_running)
            time.sleep(POLL_SECONDS)


def _take(studies: Sequence[LossStudy], name: str) -> tuple[LossStudy, TakenTrial] | None:
    """Take a trial of the study that has the fewest so far."""
    order = sorted(studies, key=lambda study: len(study.rows()) + len(study.trials(TrialState.RUNNING)))
    for study in order:
        trial = study.take(name)
        if trial is not None:
            return study, trial
    return None
