"""What the settings leave open, chosen for the data and the machine."""

from __future__ import annotations

from pathlib import Path

import torch

from sincere.catalog import OPTIMIZERS
from sincere.data.catalog import DATASETS
from sincere.data.dataset import Dataset
from sincere.models.small import TINY_PIXELS
from sincere.records.files import check_sha256, file_sha256
from sincere.settings.machine import MOST_THREADS
from sincere.settings.requests import RunSettings
from sincere.workflows.hardware import choose_precision

DEFAULT_OPTIMIZER = {"small": "muon"}
BATCH_SIZES, DEFAULT_BATCH_SIZE, DEFAULT_EPOCHS = {"digits": 256}, 512, 100


def resolve(settings: RunSettings, data: Dataset, device: torch.device) -> RunSettings:
    """Return the settings with every choice made, checked again because they are stored.

    Raises:
        DataError: The file of weights is missing or changed.
    """
    source, batches, optimisation = settings.data.source, settings.batches, settings.optimisation
    n_train = int(len(data.train) * (1 - settings.validation.fraction))
    batch_size = min(BATCH_SIZES.get(data.name, DEFAULT_BATCH_SIZE), max(2, n_train // 8 * 2))
    optimizer = optimisation.optimizer or DEFAULT_OPTIMIZER.get(settings.model.encoder, "sgd")
    decay = optimisation.weight_decay
    return settings.replaced(
        data=source if source in DATASETS else str(Path(source).resolve()),
        size=data.size,
        **_weights(settings),
        batch_size=batches.batch_size or batch_size,
        augmentation=batches.augmentation or data.augmentation,
        epochs=optimisation.epochs or DEFAULT_EPOCHS,
        optimizer=optimizer,
        learning_rate=optimisation.learning_rate or OPTIMIZERS[optimizer].learning_rate,
        weight_decay=OPTIMIZERS[optimizer].weight_decay if decay is None else decay,
        device=device.type,
        threads=settings.machine.threads or _threads(settings, data, device),
        precision=choose_precision(settings.machine.precision, device),
    )


def _weights(settings: RunSettings) -> dict[str, str]:
    """Return where the file of weights is, and its content hash.

    Raises:
        DataError: There is none, or another one than when the run began.
    """
    path, expected = settings.model.weights, settings.model.weights_sha256
    if path is None:
        return {}
    if expected is not None and not path.exists():  # a finished run does not need it any more
        return {"weights": str(path)}
    digest = file_sha256(path)
    check_sha256(path, digest, expected)
    return {"weights": str(path.resolve()), "weights_sha256": digest}


def _threads(settings: RunSettings, data: Dataset, device: torch.device) -> int:
    """Return the fastest number of threads: on digits, 100 epochs took 35 s with one and 55 s with two."""
    tiny = device.type == "cpu" and settings.model.encoder == "small" and data.size <= TINY_PIXELS
    return 1 if tiny else min(torch.get_num_threads(), MOST_THREADS)
