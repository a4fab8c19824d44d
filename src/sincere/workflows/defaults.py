"""What the settings leave open, chosen for the data and the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch

from sincere import checks
from sincere.catalog import OPTIMIZERS, PHOTO_ENCODER, PYTHON, READY_MADE
from sincere.data.catalog import DATASETS
from sincere.data.dataset import Dataset
from sincere.errors import InputValueError
from sincere.models.small import TINY_PIXELS
from sincere.records.files import check_sha256, file_sha256
from sincere.settings.machine import MOST_THREADS
from sincere.settings.model import ModelSettings
from sincere.settings.requests import RunSettings
from sincere.workflows.hardware import choose_precision

BATCH_SIZES, DEFAULT_BATCH_SIZE = {"digits": 256}, 512
DEFAULT_EPOCHS, PRETRAINED_EPOCHS = 100, 30
FEATURE_DROPOUT = 0.5
ENCODER_SHARE = 0.1  # of the learning rate, for pretrained weights


def resolve(settings: RunSettings, data: Dataset, device: torch.device) -> RunSettings:
    """Return the settings with every choice made, checked again because they are stored.

    Raises:
        DataError: The file of weights is missing or changed.
        InputValueError: Settings contradict the data, or each other.
    """
    if settings.data.size and not data.size:
        raise InputValueError(checks.wording("train", "size must not be set for features", settings.data.size))
    settings = settings.replaced(**_model(settings.model, data))
    source, batches, optimisation = settings.data.source, settings.batches, settings.optimisation
    is_small = settings.model.encoder == "small"
    has_weights = bool(settings.model.freeze or settings.model.pretrained or settings.model.weights)
    n_train = int(len(data.train) * (1 - settings.validation.fraction))
    batch_size = min(BATCH_SIZES.get(data.name, DEFAULT_BATCH_SIZE), max(2, n_train // 8 * 2))
    given = cast(str, settings.model.encoder).startswith(PYTHON)
    optimizer = optimisation.optimizer or ("adamw" if has_weights or given else "muon" if is_small else "sgd")
    learning_rate, decay = optimisation.learning_rate or OPTIMIZERS[optimizer].learning_rate, optimisation.weight_decay
    return settings.replaced(
        data=source if source in DATASETS else str(Path(source).resolve()),
        size=data.size or None,
        **_weights(settings),
        batch_size=batches.batch_size or batch_size,
        **_views(settings, data),
        epochs=optimisation.epochs or (PRETRAINED_EPOCHS if has_weights else DEFAULT_EPOCHS),
        optimizer=optimizer,
        learning_rate=learning_rate,
        encoder_lr=_encoder_lr(settings, learning_rate if not has_weights else ENCODER_SHARE * learning_rate),
        weight_decay=OPTIMIZERS[optimizer].weight_decay if decay is None else decay,
        device=device.type,
        threads=settings.machine.threads or _threads(settings, data, device),
        precision=choose_precision(settings.machine.precision, device),
    )


def _model(chosen: ModelSettings, data: Dataset) -> dict[str, Any]:
    """Return encoder and head, and whether the encoder starts from pretrained weights and stays frozen.

    Raises:
        InputValueError: The encoder is for features and these are images, or the other way round.
    """
    images = data.origin or data
    ready_made = images.train.are_features
    if ready_made and (chosen.encoder not in (None, READY_MADE) or chosen.weights or chosen.pretrained):
        requirement = f"encoder must be {READY_MADE}, without weights, for ready-made features"
        raise InputValueError(checks.wording("train", requirement, chosen.encoder or "weights"))
    if not ready_made and chosen.encoder == READY_MADE:
        raise InputValueError(checks.wording("train", "encoder must turn images into features", READY_MADE))
    if ready_made:
        return {"encoder": READY_MADE, "pretrained": False, "freeze": True}
    wanted = chosen.wants_frozen
    freeze = images.are_photos if wanted is None else wanted
    by_default = chosen.encoder is None and chosen.weights is None and images.are_photos
    pretrained, given = chosen.pretrained, (chosen.encoder or "").startswith(PYTHON)
    if pretrained is None:
        pretrained = chosen.weights is None and not given and (freeze or by_default)
    encoder = chosen.encoder or (PHOTO_ENCODER if pretrained else "small")
    return {"encoder": encoder, "pretrained": pretrained, "freeze": freeze}


def _views(settings: RunSettings, data: Dataset) -> dict[str, Any]:
    """Return how views are made: by augmentation, or from features.

    Raises:
        InputValueError: Features cannot be augmented so, or images have no features to cache.
    """
    batches, frozen = settings.batches, bool(settings.model.freeze)
    if not frozen:
        for name in ("cached_views", "feature_dropout"):
            if getattr(batches, name):
                requirement = f"{name} must be 0 unless the encoder is frozen"
                raise InputValueError(checks.wording("train", requirement, getattr(batches, name), "Add --freeze"))
        return {"augmentation": batches.augmentation or data.augmentation, "feature_dropout": None}
    dropout = FEATURE_DROPOUT if batches.feature_dropout is None else batches.feature_dropout
    ready_made, n_cached = settings.model.encoder == READY_MADE, batches.cached_views
    if n_cached and ready_made:
        raise InputValueError(checks.wording("train", "cached_views must be 0 for ready-made features", n_cached))
    augmentation = batches.augmentation or (data.augmentation if n_cached else "none")
    if not n_cached and augmentation != "none":
        remedy = "" if ready_made else "With --cached-views N, N augmented versions of each image are cached"
        raise InputValueError(checks.wording("train", "augmentation must be none for features", augmentation, remedy))
    return {"augmentation": augmentation, "feature_dropout": dropout}


def _encoder_lr(settings: RunSettings, default: float) -> float | None:
    """Return the learning rate of the encoder; None if it is frozen.

    Raises:
        InputValueError: It is frozen, and a learning rate was given.
    """
    given = settings.optimisation.encoder_lr
    if not settings.model.freeze:
        return given or default
    if given is not None:
        requirement = "encoder_lr must not be set for a frozen encoder"
        raise InputValueError(checks.wording("train", requirement, given, "Add --no-freeze to train all of it"))
    return None


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
