"""From a measured model to the results in its folder: what evaluation, transfer and comparison share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import torch

from sincere.data.dataset import Dataset
from sincere.errors import DataError
from sincere.messages import Messages
from sincere.records.files import EVALUATION_LOCK, staged_folder
from sincere.records.manifest import make_manifest, now
from sincere.records.results import FIGURES, RESULTS, DataAbout, MetricAbout, Results, Row, TrainLoss
from sincere.report.page import remove_report, write_report
from sincere.report.tables import show, write_csv
from sincere.settings.evaluation import EvaluationSettings
from sincere.settings.requests import RunSettings
from sincere.statistics.comparison import compare_losses, few_note
from sincere.workflows.embedded_data import EmbeddedData, reference_of
from sincere.workflows.frozen_features import with_features
from sincere.workflows.measure import Measured, measure
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
    device: torch.device,
    messages: Messages,
    embedded: EmbeddedData | None = None,
) -> Results:
    """Measure a run on its data and write the arrays and results.json into it.

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
        device=device,
        messages=messages,
        embedded=embedded,
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
    device: torch.device,
    messages: Messages,
    embedded: EmbeddedData | None = None,
) -> Results:
    """Measure a trained model on a data set and store the results in a folder.

    What an earlier evaluation left there stays until all of the new results are written.
    """
    started = now()
    if trained.model.spec.frozen:
        data = with_features(trained.model, data, device, messages)
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
    with staged_folder(folder.path, last=RESULTS) as work:
        manifest = make_manifest(seed=seed, device=str(device), started=started)
        results = write_results(work, measured, trained, trainee, evaluation, kind=kind, seed=seed, manifest=manifest)
        if kind == "evaluation" and trained.data == data.digest and trained.finished and folder.has_model:
            reference_of(measured.outputs.train, measured.outputs.test, data).write(work)
        written = {path.name for path in work.iterdir()}
        remove_report(folder.path)
    folder.remove(MEASURED - written - {FIGURES, EVALUATION_LOCK})
    return results


def is_same_data(results: Results, data: Dataset) -> bool:
    """Return whether stored results are about these data, with the same texts."""
    return (results.data.digest, results.data.texts_digest) == (data.digest, data.texts_digest)


def write_results(
    folder: Path,
    measured: Measured,
    trained: Trained,
    trainee: Trainee,
    evaluation: EvaluationSettings,
    *,
    kind: Kind,
    seed: int,
    manifest: dict[str, Any],
) -> Results:
    """Write what was measured of one run into a folder: arrays, results.json and results.csv."""
    per_image = measured.per_image()
    files = measured.save(folder, per_image)
    one = {(trainee.loss, trainee.seed): per_image}
    summaries, _ = compare_losses(one, list(measured.measures), n_resamples=evaluation.resamples, seed=seed)
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
        fpr95=measured.fpr95,
    )
    data = measured.data
    metrics = {name: MetricAbout(title=m.title, share=m.share) for name, m in measured.measures.items()}
    about = DataAbout(
        name=data.name,
        class_names=data.class_names,
        n_train=len(data.train),
        n_test=len(data.test),
        digest=data.digest,
        texts_digest=data.texts_digest,
        noun=data.noun,
    )
    notes = [*trained.notes, *measured.notes]
    if kind == "evaluation" and about.digest != trained.data:
        notes.append(f"these are not the {data.noun} that the run was trained and tested on: same classes, other data")
    if (few := few_note(len(data.test), data.noun)) is not None:
        notes.append(few)
    results = Results(
        kind=kind,
        data=about,
        metrics=metrics,
        rows=(row,),
        summaries=tuple(summaries),
        notes=tuple(notes),
        measuring=evaluation.identity(seed),
        manifest=manifest,
    )
    results.write(folder)
    write_csv(results, folder)
    return results


def finish(results: Results, folder: Path, messages: Messages, *, report: bool) -> None:
    """Write the report, if it is asked for, and show the results; when quiet, print their notes as warnings."""
    page = write_report(folder) if report else None
    show(results, page, messages)
    if messages.quiet:
        messages.note(*results.notes)
