"""From a measured model to the results in its folder: what evaluation, transfer and comparison share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from lightning_fabric import Fabric

from sincere.data.dataset import Dataset
from sincere.errors import DataError
from sincere.loss_catalog import loss_title
from sincere.messages import Messages
from sincere.records.files import EVALUATION_LOCK, staged_folder
from sincere.records.manifest import make_manifest, now
from sincere.records.reference import Reference
from sincere.records.results import (
    CSV,
    FIGURES,
    REPORT,
    RESULTS,
    Baseline,
    DataAbout,
    MetricAbout,
    Results,
    Row,
    TrainLoss,
)
from sincere.report.page import remove_report, write_report
from sincere.report.tables import show, write_csv
from sincere.settings.evaluation import EvaluationSettings
from sincere.settings.requests import RunSettings
from sincere.statistics.bootstrap import interval
from sincere.statistics.comparison import compare_losses, few_note
from sincere.training.loggers import open_loggers
from sincere.workflows.advice import measure_baselines, no_gain_note, overfitting_note, small_classes_note
from sincere.workflows.embedded_data import EmbeddedData, embed_data, reference_of
from sincere.workflows.frozen_features import with_features
from sincere.workflows.label_list import list_label_issues
from sincere.workflows.measure import Measured, check_measurable, measure
from sincere.workflows.run_folder import MEASURED, RunFolder
from sincere.workflows.trained_model import Trained, check_input, load_trained

Kind = Literal["evaluation", "transfer"]
SEED = 0  # of a comparison's bootstrap and of its probes' splits


@dataclass(frozen=True)
class Trainee:
    """What a row of results says of its model.

    Attributes:
        loss: Loss that it was trained with.
        seed: Random seed of its training.
        temperature: Temperature of the loss, and of the divergence bounds.
        settings: Settings of the run, as stored.
    """

    loss: str
    seed: int
    temperature: float
    settings: dict[str, Any]

    @classmethod
    def of_run(cls, settings: RunSettings) -> Self:
        """Return what there is to say of the model of a run."""
        return cls(settings.loss.name, settings.seed, settings.loss.temperature, settings.stored())


def evaluate_run(
    folder: RunFolder,
    settings: RunSettings,
    data: Dataset,
    evaluation: EvaluationSettings,
    *,
    seed: int,
    fabric: Fabric,
    messages: Messages,
    embedded: EmbeddedData | None = None,
    baselines: tuple[Baseline, ...] = (),
    check_labels: bool = True,
) -> Results:
    """Measure a run on its data and write the arrays and results.json into it.

    With `check_labels`, the samples whose label may be wrong are listed, too, if that does not take long.

    Raises:
        DataError: The data have other classes than the run was trained on, are features in place of images or the other
            way round, or do not allow what is asked for.
    """
    trained = load_trained(folder)
    check_input(trained.model.spec, data, folder.path)
    if trained.model.spec.class_names != data.class_names:
        names = ", ".join(data.class_names[:3])
        remedy = "`sincere transfer` evaluates a run on other data"
        raise DataError(
            f"{folder.path}: was trained on other classes than those of {data.name} ({names}, ...); {remedy}"
        )
    return measure_and_store(
        folder,
        trained,
        Trainee.of_run(settings),
        data,
        evaluation,
        kind="evaluation",
        seed=seed,
        fabric=fabric,
        messages=messages,
        embedded=embedded,
        baselines=baselines,
        check_labels=check_labels,
    )


def measure_and_store(
    folder: RunFolder,
    trained: Trained,
    trainee: Trainee,
    data: Dataset,
    evaluation: EvaluationSettings,
    *,
    kind: Kind,
    seed: int,
    fabric: Fabric,
    messages: Messages,
    embedded: EmbeddedData | None = None,
    baselines: tuple[Baseline, ...] = (),
    check_labels: bool = False,
) -> Results:
    """Measure a trained model on a data set and store the results in a folder.

    What an earlier evaluation left there stays until all of the new results are written. Baselines of the data are
    measured unless they are given. Several processes share the images that are embedded; the first one measures and
    writes, the others wait and read the results.
    """
    started, device = now(), fabric.device
    if trained.model.spec.frozen:
        data = with_features(trained.model, data, device, messages, fabric=fabric)
    check_measurable(evaluation, data, caller="transfer" if kind == "transfer" else "evaluate")
    if embedded is None:
        messages.say(f"embedding {len(data.train):,} training and {len(data.test):,} test {data.noun}")
        embedded = embed_data(trained.model, data, device, fabric)
    if not fabric.is_global_zero:
        fabric.barrier()
        return Results.read(folder.path)
    measured = measure(
        trained.model,
        data,
        evaluation,
        seed=seed,
        device=device,
        temperature=trainee.temperature,
        messages=messages,
        embedded=embedded,
    )
    if not baselines:
        baselines = measure_baselines(data, device, n_resamples=evaluation.resamples, seed=seed)
    with staged_folder(folder.path, last=RESULTS) as work:
        manifest = make_manifest(seed=seed, device=str(device), started=started)
        notes = list(trained.notes)
        if kind == "evaluation" and trained.data != data.digest:
            notes.append(_other_data_note(folder, data))
        results = write_results(
            work,
            measured,
            trained,
            trainee,
            evaluation,
            baselines,
            kind=kind,
            seed=seed,
            manifest=manifest,
            notes=notes,
        )
        if kind == "evaluation" and trained.data == data.digest and trained.finished and folder.has_model:
            reference_of(measured.outputs.train, measured.outputs.test, data).write(work)
        if check_labels and not data.have_label_sets:
            embeddings = measured.outputs.train.embeddings, measured.outputs.test.embeddings
            list_label_issues(work, data, embeddings, epochs=trained.epochs, device=device, messages=messages)
        written = {path.name for path in work.iterdir()}
        remove_report(folder.path)
    folder.remove(MEASURED - written - {FIGURES, EVALUATION_LOCK})
    fabric.barrier()
    return results


def is_same_data(results: Results, data: Dataset) -> bool:
    """Return whether stored results are about these data, with the same texts and unknown classes."""
    names = ("digest", "texts_digest", "unknown_digest")
    return all(getattr(results.data, name) == getattr(data, name) for name in names)


def write_results(
    folder: Path,
    measured: Measured,
    trained: Trained,
    trainee: Trainee,
    evaluation: EvaluationSettings,
    baselines: tuple[Baseline, ...],
    *,
    kind: Kind,
    seed: int,
    manifest: dict[str, Any],
    notes: Sequence[str],
) -> Results:
    """Write what was measured of one run into a folder: arrays, results.json and results.csv.

    `notes` on the run come before advice.
    """
    per_image = measured.per_image()
    is_other = kind == "evaluation" and measured.data.digest != trained.data
    # By the probe of a run new images are classified: it must have learned from the run's own data.
    files = measured.save(folder, per_image, probes=not is_other)
    one = {(trainee.loss, trainee.seed): per_image}
    names = ("title", "share", "about", "better", "group")
    metrics = {
        name: MetricAbout(**{of: getattr(metric, of) for of in names}) for name, metric in measured.measures.items()
    }
    summaries, _ = compare_losses(one, metrics, n_resamples=evaluation.resamples, seed=seed)
    row = Row(
        loss=trainee.loss,
        seed=trainee.seed,
        metrics=summaries[0].metrics,
        train_loss=TrainLoss(**trained.train_loss) if trained.train_loss is not None else None,
        seconds=trained.seconds,
        epochs=trained.epochs,
        finished=trained.finished,
        folder=".",
        margin=measured.margin,
        classes=measured.classes,
        confusion=measured.confusion(),
        settings=trainee.settings,
        files=files,
        train_accuracy=measured.train_accuracy,
        labels=measured.labels,
    )
    data = measured.data
    advice = (
        few_note(len(data.test), f"test {data.noun}"),
        few_note(len(data.unknown), f"{data.noun} of unknown classes") if data.unknown is not None else None,
        small_classes_note(data),
        *(_about_training(measured, trained, trainee, evaluation, baselines, seed) if kind == "evaluation" else ()),
    )
    results = Results(
        kind=kind,
        data=_about(data),
        metrics=metrics,
        rows=(row,),
        summaries=tuple(summaries),
        baselines=baselines,
        notes=(*notes, *(note for note in advice if note is not None)),
        measuring=evaluation.identity(seed),
        manifest=manifest,
    )
    results.write(folder)
    write_csv(results, folder)
    return results


def _about(data: Dataset) -> DataAbout:
    return DataAbout(
        name=data.name,
        class_names=data.class_names,
        n_train=len(data.train),
        n_test=len(data.test),
        n_unlabelled=data.n_unlabelled,
        digest=data.digest,
        texts_digest=data.texts_digest,
        n_unknown=0 if data.unknown is None else len(data.unknown),
        unknown_digest=data.unknown_digest,
        noun=data.noun,
        label_sets=data.have_label_sets,
    )


def _other_data_note(folder: RunFolder, data: Dataset) -> str:
    """Return a note on data that a run was not trained on: how many test images it has learned from, by their files.

    Where a data set is split by the package, correcting a single label draws another split.
    """
    note = f"these are not the {data.noun} that the run was trained and tested on: same classes, other data"
    try:
        known = Reference.read(folder.path).digests
    except DataError:  # not there yet, or damaged
        return note
    if known is None or data.test.digests is None:
        return note
    files = {digest.tobytes() for digest in known}
    if not (n_seen := sum(digest.tobytes() in files for digest in data.test.digests)):
        return note
    learned = f"{n_seen:,} of the {len(data.test):,} test {data.noun} were training {data.noun} of the run"
    return f"{note}; {learned}, so that its metrics are too good: train again"


def _about_training(
    measured: Measured,
    trained: Trained,
    trainee: Trainee,
    evaluation: EvaluationSettings,
    baselines: Sequence[Baseline],
    seed: int,
) -> tuple[str | None, ...]:
    """Return advice if a model overfits or is no better than without training; none with label sets."""
    if not trained.epochs or measured.train_accuracy is None:
        return ()
    correct = (measured.outputs.neighbours.predictions[1] == measured.outputs.test.labels).double().cpu().numpy()
    test_accuracy = interval(correct, n_resamples=evaluation.resamples, seed=seed)
    title, frozen = loss_title(trainee.loss), trained.model.spec.frozen
    return (
        overfitting_note(title, measured.train_accuracy, test_accuracy, measured.data, frozen=frozen),
        no_gain_note(title, test_accuracy, baselines, measured.data.noun),
    )


def finish(results: Results, folder: Path, messages: Messages, *, report: bool) -> None:
    """Write the report, if it is asked for, and show the results; when quiet, print their notes as warnings."""
    page = write_report(folder) if report else None
    show(results, page, messages)
    if messages.quiet:
        messages.note(*results.notes)


def log_results(results: Results, folder: Path, names: Sequence[str], messages: Messages) -> None:
    """Log the estimates of an evaluation or a comparison, with its tables and its report as artefacts."""
    loggers = open_loggers(names, folder, messages)
    for row in results.rows:
        prefix = f"{row.loss}-{row.seed}/" if len(results.rows) > 1 else ""
        loggers.metrics({f"{prefix}{name}": found.estimate for name, found in row.metrics.items()}, row.epochs or 0)
    loggers.files(folder / name for name in (RESULTS, CSV, REPORT))
    loggers.finish()
