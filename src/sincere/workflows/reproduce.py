"""The paper's tables and figures with our values: from stored results, after training what is missing if asked for."""

from __future__ import annotations

from typing import Any, Unpack

from sincere.errors import DataError, SincereError
from sincere.loss_catalog import RAW_FEATURES
from sincere.messages import Messages
from sincere.models.embedding import WEIGHTS
from sincere.recipes import EXPERIMENTS, TRANSFER_RECIPES
from sincere.records.arrays import PER_IMAGE, PerImage
from sincere.records.comparison import stored_request
from sincere.records.files import file_sha256
from sincere.records.log import METRICS, MetricsLog
from sincere.records.reproduction import Costs, Curve, Experiment, curve_points, experiment_name
from sincere.records.results import RESULTS, Results, Row
from sincere.report.reproduction_contents import Missing, Reproduction
from sincere.report.reproduction_page import show_tables, write_reproduction
from sincere.settings.keywords import ReproduceKeywords
from sincere.settings.reproduce_request import ALL, ReproduceRequest
from sincere.settings.requests import EARLIER, PLACEMENT, RunSettings, run_name
from sincere.settings.search_request import SearchRequest
from sincere.settings.signatures import with_signature
from sincere.statistics.comparison import compare_losses, scope_of
from sincere.training.interruption import InterruptedRunError
from sincere.workflows.results import SEED

Key = tuple[str, int]  # loss and seed of a run


@with_signature(ReproduceRequest)
def reproduce(item: str = ALL, **settings: Unpack[ReproduceKeywords]) -> Reproduction:
    """Reproduce the paper's tables with the settings of `sincere reproduce`.

    Raises:
        InputValueError: A setting is wrong.
        DataError: A stored result is damaged, or data are missing.
    """
    return run_reproduction(ReproduceRequest.make(item=item, **settings))


def run_reproduction(request: ReproduceRequest, messages: Messages | None = None) -> Reproduction:
    """Train what is missing if asked for, then show the tables of an item and write its page.

    Raises:
        SincereError: An experiment could not be trained; the others were, and are shown.
    """
    messages = messages or Messages(quiet=request.quiet)
    failures = _train_missing(request, messages) if request.train and request.needs_models() else []
    reproduction = collect(request, messages)
    page = write_reproduction(reproduction, request.item, request.folder())
    show_tables(reproduction, request.item, page, messages)
    if failures:
        raise failures[0]
    return reproduction


def collect(request: ReproduceRequest, messages: Messages) -> Reproduction:
    """Return what is stored, brought up to date with the runs that are there, and what is missing.

    Results of other settings than the recipe's, and transfers of other models, are left out, with a note.
    """
    experiments: dict[str, Experiment] = {}
    missing: list[Missing] = []
    for name in request.experiments() if request.needs_models() else ():
        wanted = _runs(name)
        comparison = _best(request, [_compared(request, name), _read(request, name)], messages)
        if comparison is not None:
            experiments[comparison.name] = comparison
        if lacking := _lacking(comparison, wanted):
            label = experiment_name(name, searched=request.search)
            missing.append(Missing(label, tuple(lacking), request.command(name), len(wanted)))
        for transfer in request.wanted_transfers(name):
            found = [_transferred(request, name, transfer), _read(request, name, transfer)]
            transferred = _best(request, found, messages, models={} if comparison is None else comparison.models)
            if transferred is not None:
                experiments[transferred.name] = transferred
            if lacking := _lacking(transferred, wanted):
                label = experiment_name(name, transfer, searched=request.search)
                missing.append(Missing(label, tuple(lacking), request.transfer_command(name), len(wanted)))
    from sincere.workflows.loss_costs import coefficient_extremes, known_bounds

    return Reproduction(
        request.scale,
        experiments,
        costs=_costs(request, messages) if request.item in ("complexity", ALL) else None,
        bounds=known_bounds() if request.item in ("bound", ALL) else (),
        ranges=coefficient_extremes() if request.item in ("repulsion", ALL) else (),
        missing=tuple(missing),
    )


def _costs(request: ReproduceRequest, messages: Messages) -> Costs:
    """Return time and memory of the losses, measured once."""
    from sincere.workflows.loss_costs import measure_costs

    costs = Costs.read(request.stored())
    if costs is None:
        messages.say("measuring time and memory of the losses")
        costs = measure_costs()
        costs.write(request.stored())
    return costs


def _best(
    request: ReproduceRequest,
    candidates: list[Experiment | None],
    messages: Messages,
    models: dict[str, str] | None = None,
) -> Experiment | None:
    """Return the candidate with the most runs among those of the recipe's settings, the first of equals, and store it.

    Args:
        request: What is to be shown.
        candidates: An experiment as its folder has it, and as it is stored.
        messages: Receives a note on each that is left out.
        models: Weights that a transfer must be of, by run; None for a comparison.
    """
    accepted = []
    for candidate in candidates:
        if candidate is None:
            continue
        if problem := _deviation(request, candidate, models):
            messages.note(f"{candidate.name}: its results are left out: {problem}")
        else:
            accepted.append(candidate)
    if not accepted:
        return None
    best = max(accepted, key=lambda candidate: len(candidate.results.rows))
    if best != candidates[-1]:
        best.write(request.stored())
    return best


def _deviation(request: ReproduceRequest, experiment: Experiment, models: dict[str, str] | None) -> str | None:
    """Return in what the runs of an experiment differ from what is asked for; None if they do not."""
    recipe = EXPERIMENTS[experiment.recipe]
    for row in experiment.results.rows:
        if row.loss == RAW_FEATURES:
            continue
        run = run_name(row.loss, row.seed)
        if not row.finished:
            return f"{run} is not finished"
        own = {} if experiment.searched else recipe.losses.get(row.loss, {})
        batch = {} if request.batch_size is None else {"batch_size": request.batch_size}
        expected = RunSettings.make(**recipe.settings | own | batch, loss=row.loss, seed=row.seed).stored()
        searched = recipe.own_settings() if experiment.searched else set()
        for name, value in expected.items():
            stored = {**EARLIER, **row.settings}.get(name)
            is_free = value == "auto" or name in searched or name in PLACEMENT - {"data"}
            if not is_free and stored != value:
                return f"{run} has {name} = {stored!r}, not {value!r}"
        if models and models.get(run) not in (None, experiment.models.get(run)):
            return f"{run} has been trained again since"
    for name, value in _evaluation(experiment).items():
        if name in experiment.results.measuring and experiment.results.measuring[name] != value:
            return f"it was evaluated with {name} = {experiment.results.measuring[name]!r}, not {value!r}"
    return None


def _evaluation(experiment: Experiment) -> dict[str, Any]:
    """Return the settings of the evaluation or transfer that an experiment should have, except those of a loss."""
    recipe = EXPERIMENTS[experiment.recipe]
    if experiment.transfer is None:
        return recipe.evaluation
    settings = recipe.transfers[experiment.transfer]
    return {**TRANSFER_RECIPES[settings["recipe"]].settings, **settings} if "recipe" in settings else settings


def _runs(name: str) -> list[str]:
    """Return the names of the runs of a recipe."""
    recipe = EXPERIMENTS[name]
    return [run_name(loss, seed) for seed in recipe.seeds for loss in recipe.losses]


def _lacking(experiment: Experiment | None, wanted: list[str]) -> list[str]:
    """Return the runs of an experiment that have no results."""
    present = set() if experiment is None else {run_name(row.loss, row.seed) for row in experiment.results.rows}
    return [run for run in wanted if run not in present]


def _read(request: ReproduceRequest, name: str, transfer: str | None = None) -> Experiment | None:
    """Return an experiment as it is stored; damage is an error only where its runs are gone, too."""
    label = experiment_name(name, transfer, searched=request.search)
    try:
        return Experiment.read(request.stored(), label)
    except DataError:
        if (request.run_folder(name) / RESULTS).exists():
            return None
        raise


def _compared(request: ReproduceRequest, name: str) -> Experiment | None:
    """Return the comparison of a recipe as its folder has it; None if it is not finished."""
    folder = request.run_folder(name)
    if not (folder / RESULTS).exists() or not stored_request(folder).get("done"):
        return None
    results = Results.read(folder)
    trained = [row for row in results.rows if row.loss != RAW_FEATURES]
    return Experiment(
        recipe=name,
        searched=request.search,
        results=_portable(results),
        models={run_name(row.loss, row.seed): file_sha256(folder / row.folder / WEIGHTS) for row in trained},
        curves=tuple(
            Curve(loss=row.loss, seed=row.seed, points=curve_points(MetricsLog(folder / row.folder / METRICS).rows()))
            for row in trained
        ),
    )


def _transferred(request: ReproduceRequest, name: str, transfer: str) -> Experiment | None:
    """Return a transfer of the models of a recipe as their folders have it: the seeds that all losses have."""
    requests = request.transfers(name, transfer)
    done = {key: moved for key, moved in requests.items() if (moved.folder() / RESULTS).exists()}
    losses = {loss for loss, _ in done}
    done = {key: moved for key, moved in done.items() if all((loss, key[1]) in done for loss in losses)}
    if not done:
        return None
    parts = {key: Results.read(moved.folder()) for key, moved in done.items()}
    first = next(iter(parts.values()))
    if any(part.data.digest != first.data.digest or part.measuring != first.measuring for part in parts.values()):
        problem = "its runs were transferred to different data, or with different settings"
        raise DataError(f"{experiment_name(name, transfer)}: {problem}")
    images = {key: PerImage.read(done[key].folder(), part.rows[0].files.get(PER_IMAGE)) for key, part in parts.items()}
    resamples = int(first.measuring["resamples"])
    summaries, differences = compare_losses(images, first.metrics, n_resamples=resamples, seed=SEED)
    joined = first.model_copy(
        update={
            "rows": tuple(_named(part.rows[0], key) for key, part in parts.items()),
            "summaries": tuple(summaries),
            "differences": tuple(differences),
            "scope": scope_of(summaries),
            "notes": tuple(dict.fromkeys(note for part in parts.values() for note in part.notes)),
        }
    )
    return Experiment(
        recipe=name,
        transfer=transfer,
        searched=request.search,
        results=_portable(Results.model_validate(joined.model_dump(by_alias=True))),
        models={run_name(*key): file_sha256(moved.run / WEIGHTS) for key, moved in done.items()},
    )


def _named(row: Row, key: Key) -> Row:
    return row.model_copy(update={"folder": run_name(*key)})


def _portable(results: Results) -> Results:
    """Return results without what is true on this machine only: paths, and commands, which may have some."""
    rows = tuple(
        row.model_copy(update={"settings": {k: v for k, v in row.settings.items() if k not in PLACEMENT - {"data"}}})
        for row in results.rows
    )
    manifest = {name: value for name, value in results.manifest.items() if name != "command"}
    notes = tuple(note for note in results.notes if "sincere compare" not in note)
    return results.model_copy(update={"rows": rows, "manifest": manifest, "notes": notes})


def _train_missing(request: ReproduceRequest, messages: Messages) -> list[SincereError]:
    """Train, evaluate and transfer what is missing; return what went wrong, after all others have been tried.

    Raises:
        InterruptedRunError: SIGTERM or Ctrl-C; the same command resumes.
    """
    failures: list[SincereError] = []
    for name in request.experiments():
        try:
            _train_experiment(request, name, messages)
        except InterruptedRunError:
            raise
        except SincereError as error:
            messages.note(f"{name}: {error}")
            failures.append(error)
    return failures


def _train_experiment(request: ReproduceRequest, name: str, messages: Messages) -> None:
    from sincere.workflows.compare import run_comparison
    from sincere.workflows.estimate import estimate_comparison
    from sincere.workflows.finished import finished_comparison
    from sincere.workflows.search import run_search
    from sincere.workflows.transfer import run_transfer

    silent = Messages(silent=True)
    wanted = _runs(name)
    comparison = _best(request, [_compared(request, name), _read(request, name)], silent)
    if _lacking(comparison, wanted):
        messages.say("")
        messages.say(request.command(name))
        if request.search:
            search = SearchRequest.make(**request.search_settings(name), quiet=request.quiet)
            run_search(search, messages)
        asked = request.comparison(name)
        if finished_comparison(asked, messages) is None:
            messages.say(estimate_comparison(asked, messages))
            run_comparison(asked, messages)
        comparison = _compared(request, name)
    models = {} if comparison is None else comparison.models
    for transfer in request.wanted_transfers(name):
        found = [_transferred(request, name, transfer), _read(request, name, transfer)]
        if not _lacking(_best(request, found, silent, models=models), wanted):
            continue
        for (loss, seed), moved in request.transfers(name, transfer).items():
            # Those that are stored but have no folder are made again: intervals need the values of each image of all.
            if (moved.folder() / RESULTS).exists():
                continue
            if not (moved.run / WEIGHTS).exists():
                raise DataError(f"{moved.run}: its model is gone; train it again with: {request.command(name)}")
            messages.say("")
            messages.say(f"{experiment_name(name, transfer)}: {loss}, seed {seed}")
            run_transfer(moved, messages)
