"""Raw features: frozen or ready-made features as they are, the baseline of what an adapter learns from them."""

from __future__ import annotations

from pathlib import Path

from lightning_fabric import Fabric

from sincere.data.dataset import Dataset
from sincere.errors import DataError
from sincere.loss_catalog import RAW_FEATURES
from sincere.messages import Messages
from sincere.records.arrays import PER_IMAGE, PerImage
from sincere.records.files import EVALUATION_LOCK
from sincere.records.results import Baseline, Results
from sincere.settings.evaluation import EvaluationSettings
from sincere.settings.requests import RunSettings
from sincere.workflows.assembly import initial_model
from sincere.workflows.launch import locked_by_first
from sincere.workflows.results import SEED, Trainee, is_same_data, measure_and_store
from sincere.workflows.run_folder import RunFolder
from sincere.workflows.trained_model import Trained

# Settings that decide the features.
ABOUT = (
    "data",
    "classes",
    "unknown_classes",
    "imbalance",
    "size",
    "skip_bad_images",
    "encoder",
    "pretrained",
    "weights_sha256",
    "norm",
)


def evaluate_raw_features(
    runs: Path,
    settings: RunSettings,
    data: Dataset,
    evaluation: EvaluationSettings,
    fabric: Fabric,
    messages: Messages,
    baselines: tuple[Baseline, ...],
) -> Results:
    """Return the results of the features without training; those that are stored already if they are what is asked for.

    Args:
        runs: Folder of the runs of a comparison.
        settings: Resolved settings of one of its runs.
        data: The features of its data.
        evaluation: What to measure.
        fabric: The processes that share the work.
        messages: Receives the progress.
        baselines: Of the data.
    """
    folder = RunFolder(runs / RAW_FEATURES)
    about = {name: value for name, value in settings.stored().items() if name in ABOUT}
    stored = fabric.broadcast(_stored(folder, about, data, evaluation) if fabric.is_global_zero else None)
    if stored is not None:
        return stored
    messages.say("")
    messages.say("raw features, without training")
    model = initial_model(settings.replaced(head="none", freeze=False), data)  # probes take features, not embeddings
    trained = Trained(model.eval(), epochs=0, seconds=0.0, train_loss=None, data=data.digest, notes=())
    trainee = Trainee(RAW_FEATURES, settings.seed, settings.loss.temperature, about)
    with locked_by_first(fabric, folder.path, EVALUATION_LOCK):
        return measure_and_store(
            folder,
            trained,
            trainee,
            data,
            evaluation,
            kind="evaluation",
            seed=SEED,
            fabric=fabric,
            messages=messages,
            baselines=baselines,
            check_labels=True,
        )


def _stored(
    folder: RunFolder, about: dict[str, object], data: Dataset, evaluation: EvaluationSettings
) -> Results | None:
    """Return the results in a folder if they are intact and of these features."""
    try:
        results = Results.read(folder.path)
        images = PerImage.read(folder.path, results.rows[0].files.get(PER_IMAGE))
    except DataError:  # missing, damaged or of another version
        return None
    row = results.rows[0]
    same = results.measuring == evaluation.identity(SEED) and is_same_data(results, data)
    same = same and row.loss == RAW_FEATURES and row.settings == about
    return results if same and images.values.keys() == results.metrics.keys() else None
