"""The paper's tables and figures with our values: from stored results, after training what is missing if asked for."""

from __future__ import annotations

from typing import Unpack

from sincere.catalog import RAW_FEATURES
from sincere.errors import DataError
from sincere.messages import Messages
from sincere.recipes import EXPERIMENTS
from sincere.records.arrays import PER_IMAGE, PerImage
from sincere.records.comparison import stored_request
from sincere.records.log import METRICS, MetricsLog
from sincere.records.reproduction import Curve, Experiment, Measurements, curve_points, experiment_name
from sincere.records.results import RESULTS, Results
from sincere.report.reproduction_page import show_tables, write_reproduction
from sincere.report.reproduction_tables import Missing, Reproduction
from sincere.settings.keywords import ReproduceKeywords
from sincere.settings.reproduce_request import ALL, ReproduceRequest
from sincere.settings.requests import PLACEMENT, run_name
from sincere.settings.search_request import SearchRequest
from sincere.settings.signatures import with_signature
from sincere.statistics.comparison import compare_losses, scope_of
from sincere.workflows.results import SEED

OF_THE_MACHINE = PLACEMENT - {"data"}  # settings; the data of recipes have names
MEASURED_ITEMS = ("complexity", "bound", ALL)


@with_signature(ReproduceRequest)
def reproduce(item: str = ALL, **settings: Unpack[ReproduceKeywords]) -> Reproduction:
    """Reproduce the paper's tables with the settings of `sincere reproduce`.

    Raises:
        InputValueError: A setting is wrong.
        DataError: A stored result is damaged, or data are missing.
    """
    return run_reproduction(ReproduceRequest.make(item=item, **settings))


def run_reproduction(request: ReproduceRequest, messages: Messages | None = None) -> Reproduction:
    """Train what is missing if asked for, then show the tables of an item and write its page."""
    messages = messages or Messages(quiet=request.quiet)
    if request.train:
        _train_missing(request, messages)
    if request.item in MEASURED_ITEMS and Measurements.read(request.stored()) is None:
        from sincere.workflows.loss_costs import measure_losses

        messages.say("measuring time, memory and bounds of the losses")
        measure_losses().write(request.stored())
    found = collect(request, messages)
    page = write_reproduction(found, request.item, request.folder())
    show_tables(found, request.item, page, messages)
    return found


def collect(request: ReproduceRequest, messages: Messages) -> Reproduction:
    """Return what is stored, brought up to date with the runs that are there, and what is missing.

    Results of other settings than the recipe's are left out, with a note.
    """
    experiments: dict[str, Experiment] = {}
    missing: list[Missing] = []
    for name, recipe in request.experiments().items():
        found = _of_recipe(request, _comparison(request, name), messages)
        wanted = [run_name(loss, seed) for seed in recipe.seeds for loss in recipe.losses]
        lacking = _lacking(found, wanted)
        if found is not None:
            experiments[name] = found
        if lacking:
            missing.append(Missing(name, tuple(lacking), request.command(name), len(wanted)))
        for transfer in recipe.transfers:
            moved = _of_recipe(request, _transfer(request, name, transfer), messages)
            if moved is not None:
                experiments[moved.name] = moved
            lacking = _lacking(moved, wanted)
            if lacking:
                loss, seed = next((x, s) for s in recipe.seeds for x in recipe.losses if run_name(x, s) == lacking[0])
                command = request.transfer_command(name, transfer, loss, seed)
                missing.append(Missing(experiment_name(name, transfer), tuple(lacking), command, len(wanted)))
    return Reproduction(request.scale, experiments, Measurements.read(request.stored()), tuple(missing))


def _of_recipe(request: ReproduceRequest, found: Experiment | None, messages: Messages) -> Experiment | None:
    """Return an experiment if its runs have the settings of the recipe; else None, with a note."""
    if found is None:
        return None
    for row in found.results.rows:
        if row.loss == RAW_FEATURES:
            continue
        expected = EXPERIMENTS[found.recipe].of_loss(row.loss)
        if request.batch_size is not None:
            expected["batch_size"] = request.batch_size
        for name, value in expected.items():
            if (stored := row.settings.get(name)) != value:
                what = f"{run_name(row.loss, row.seed)} has {name} = {stored!r}, not {value!r}"
                messages.note(f"{found.name}: its results are left out: {what}")
                return None
    return found


def _lacking(found: Experiment | None, wanted: list[str]) -> list[str]:
    """Return the runs of an experiment that have no results."""
    there = {run_name(row.loss, row.seed) for row in found.results.rows} if found is not None else set()
    return [run for run in wanted if run not in there]


def _comparison(request: ReproduceRequest, name: str) -> Experiment | None:
    """Return the comparison of a recipe, from its folder if it is finished, else as it is stored."""
    folder = request.comparison(name).folder()
    if not (folder / RESULTS).exists() or not stored_request(folder).get("done"):
        return Experiment.read(request.stored(), name)
    results = Results.read(folder)
    curves = tuple(
        Curve(loss=row.loss, seed=row.seed, points=curve_points(MetricsLog(folder / row.folder / METRICS).rows()))
        for row in results.rows
        if (folder / row.folder / METRICS).exists()
    )
    return _stored(request, Experiment(recipe=name, results=_portable(results), curves=curves))


def _transfer(request: ReproduceRequest, name: str, transfer: str) -> Experiment | None:
    """Return a transfer of the models of a recipe, from their folders if there are any, else as it is stored."""
    folders = {key: moved.folder() for key, moved in request.transfers(name, transfer).items()}
    done = {key: folder for key, folder in folders.items() if (folder / RESULTS).exists()}
    if not done:
        return Experiment.read(request.stored(), experiment_name(name, transfer))
    parts = {key: Results.read(folder) for key, folder in done.items()}
    images = {key: PerImage.read(done[key], results.rows[0].files.get(PER_IMAGE)) for key, results in parts.items()}
    first = next(iter(parts.values()))
    if any(results.data.digest != first.data.digest for results in parts.values()):
        raise DataError(f"{experiment_name(name, transfer)}: its runs were transferred to different data")
    summaries, differences = compare_losses(
        images, first.metrics, n_resamples=int(first.measuring["resamples"]), seed=SEED
    )
    results = first.model_copy(
        update={
            "rows": tuple(part.rows[0].model_copy(update={"folder": run_name(*key)}) for key, part in parts.items()),
            "summaries": tuple(summaries),
            "differences": tuple(differences),
            "scope": scope_of(summaries),
            "notes": tuple(dict.fromkeys(note for part in parts.values() for note in part.notes)),
        }
    )
    checked = Results.model_validate(results.model_dump(by_alias=True))
    return _stored(request, Experiment(recipe=name, transfer=transfer, results=_portable(checked)))


def _portable(results: Results) -> Results:
    """Return results without what is true on this machine only: paths, and the command, which may have some."""
    rows = tuple(
        row.model_copy(update={"settings": {k: v for k, v in row.settings.items() if k not in OF_THE_MACHINE}})
        for row in results.rows
    )
    manifest = {name: value for name, value in results.manifest.items() if name != "command"}
    return results.model_copy(update={"rows": rows, "manifest": manifest})


def _stored(request: ReproduceRequest, experiment: Experiment) -> Experiment:
    """Store an experiment if it is not stored as it is."""
    try:
        same = Experiment.read(request.stored(), experiment.name) == experiment
    except DataError:  # damaged, or of another version: written again
        same = False
    if not same:
        experiment.write(request.stored())
    return experiment


def _train_missing(request: ReproduceRequest, messages: Messages) -> None:
    """Train, evaluate and transfer what is missing; each command resumes what was interrupted."""
    from sincere.workflows.compare import run_comparison
    from sincere.workflows.estimate import estimate_comparison
    from sincere.workflows.finished import finished_comparison
    from sincere.workflows.search import run_search
    from sincere.workflows.transfer import run_transfer

    missing = {item.name for item in collect(request, messages).missing}
    for name in request.experiments():
        if name not in missing:
            continue
        messages.say("")
        messages.say(request.command(name))
        comparison = request.comparison(name)
        if request.search:
            searched = SearchRequest.make(**request.search_settings(name), quiet=request.quiet)
            run_search(searched, messages)
            comparison = request.comparison(name, tuned=searched.folder())
        if finished_comparison(comparison, messages) is None:
            messages.say(estimate_comparison(comparison, messages))
            run_comparison(comparison, messages)
    for name, recipe in request.experiments().items():
        for transfer in recipe.transfers:
            for (loss, seed), moved in request.transfers(name, transfer).items():
                if not (moved.folder() / RESULTS).exists() and moved.run.exists():
                    messages.say("")
                    messages.say(request.transfer_command(name, transfer, loss, seed))
                    run_transfer(moved, messages)
