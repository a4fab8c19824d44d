"""The results of a search, from its studies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from sincere.errors import DataError
from sincere.records.manifest import make_manifest
from sincere.records.search import SEARCH, LossSearch, SearchResults, TrialRow
from sincere.settings.search_request import SearchRequest
from sincere.tuning.study import LossStudy, Objective
from sincere.tuning.winner import edge_note, find_winner
from sincere.workflows.search_studies import resolved_source
from sincere.workflows.trial import TrainingObjective


def check_stored(folder: Path, studies: Sequence[LossStudy]) -> None:
    """Raise if the database lacks trials that search.json has, or has them with other values: it has no checksums.

    Raises:
        DataError: It is damaged, or another one.
    """
    try:
        stored = SearchResults.read(folder)
    except DataError:  # none yet, or damaged: it is written again
        return
    there = {(row.loss, row.number): row for study in studies for row in study.rows()}
    losses = {study.loss for study in studies}
    for trial in stored.trials:
        if trial.loss in losses and there.get((trial.loss, trial.number)) != trial:
            problem = (
                f"trial {trial.number} of {trial.loss} is not what {SEARCH} says: the study was damaged or replaced"
            )
            raise DataError(f"{folder}: {problem}; start over with --overwrite")


def search_results(
    request: SearchRequest, studies: Sequence[LossStudy], objective: Objective, started: str
) -> SearchResults:
    """Return the results of all trials."""
    n_train = n_validation = 0
    device, noun, digest, name = "cpu", "images", "", request.data.source
    if isinstance(objective, TrainingObjective):
        data = objective.data
        n_train, n_validation = map(len, data.validation_split(request.validation, seed=request.seeds[0]))
        device, noun, digest, name = str(objective.fabric.device), data.noun, data.digest, data.name
    found = [
        find_winner(
            study.loss,
            study.space,
            study.rows(),
            n_validation=n_validation,
            importance=study.importance(),
        )
        for study in studies
    ]
    trials = tuple(row for study in studies for row in study.rows())
    searched = {dimension.name for study in studies for dimension in study.space}
    settings = {name: value for name, value in request.shared_settings().items() if name not in searched}
    return SearchResults(
        data=name,
        digest=digest,
        n_train=n_train,
        n_validation=n_validation,
        noun=cast(Any, noun),
        grid=request.grid is not None,
        seeds=request.seeds,
        settings={**settings, "data": resolved_source(request.data.source)},
        losses=tuple(found),
        trials=trials,
        notes=tuple(_notes(found, trials)),
        manifest=make_manifest(seed=request.seeds[0], device=device, started=started),
    )


def _notes(found: Sequence[LossSearch], trials: Sequence[TrialRow]) -> list[str]:
    """Return what a reader should know: edges, failed trials, unequal numbers of trials."""
    notes = [edge_note(of_loss, edge) for of_loss in found for edge in of_loss.edges]
    counts = {of_loss.loss: [trial for trial in trials if trial.loss == of_loss.loss] for of_loss in found}
    for loss, own in counts.items():
        failed = [trial for trial in own if trial.state == "failed"]
        if failed:
            notes.append(f"{len(failed)} of {len(own)} trials of {loss} failed, the first because: {failed[0].error}")
    if len({len(own) for own in counts.values()}) > 1:
        listed = ", ".join(f"{loss} {len(own)}" for loss, own in counts.items())
        notes.append(f"the losses had different numbers of trials: {listed}")
    return notes
