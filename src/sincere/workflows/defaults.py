"""What the settings leave open, chosen for the data and the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from sincere import checks
from sincere.catalog import OPTIMIZERS, PHOTO_ENCODER, PYTHON, READY_MADE
from sincere.data.catalog import DATASETS
from sincere.data.dataset import Dataset
from sincere.errors import InputValueError
from sincere.loss_catalog import LOSSES
from sincere.models.small import TINY_PIXELS
from sincere.models.weights import run_description
from sincere.records.files import check_sha256, file_sha256
from sincere.settings.machine import MOST_THREADS
from sincere.settings.requests import RunSettings, is_self_supervised, wants_frozen
from sincere.workflows.hardware import choose_precision

BATCH_SIZES, DEFAULT_BATCH_SIZE = {"digits": 256}, 512
DEFAULT_EPOCHS, PRETRAINED_EPOCHS = 100, 30
CLASS_SHARE = 8  # images of each class in a batch, from which on one view of each will do
SMALLEST_BATCH = 4  # two images of each of two classes
FEATURE_DROPOUT = 0.5
UNAUGMENTED = 0.15  # of the training of `small`, at its end
ENCODER_SHARE = 0.1  # of the learning rate, for pretrained weights


def resolve(settings: RunSettings, data: Dataset, device: torch.device) -> RunSettings:
    """Return the settings with every choice made except for the epochs that fit into given minutes; checked again.

    Raises:
        DataError: The file of weights is missing or changed.
        InputValueError: Settings contradict the data, or each other.
    """
    check_takes_labels(settings.loss.name, data)
    if settings.batches.queue and data.have_label_sets:
        requirement = "queue must be 0 for label sets, because it keeps one label of each embedding"
        raise InputValueError(checks.wording("train", requirement, settings.batches.queue))
    if data.n_unlabelled and settings.batches.n_views == 1 and not settings.loss.name.startswith(PYTHON):
        requirement = f"n_views must be at least 2 for unlabelled {data.noun}, whose only positives are other views"
        raise InputValueError(checks.wording("train", requirement, 1))
    if settings.data.size and not data.size:
        raise InputValueError(checks.wording("train", "size must not be set for features", settings.data.size))
    settings = settings.replaced(**_model(settings, data))
    source, optimisation = settings.data.source, settings.optimisation
    is_small = settings.model.encoder == "small"
    has_weights = bool(settings.model.freeze or settings.model.pretrained or settings.model.weights)
    # The recipe of docs/reference/encoders.md; below that size, that of the digits.
    is_recipe = is_small and not has_weights and data.size > TINY_PIXELS
    adamw = has_weights or settings.model.is_python
    optimizer = optimisation.optimizer or ("adamw" if adamw else "muon" if is_small else "sgd")
    learning_rate, decay = optimisation.learning_rate or OPTIMIZERS[optimizer].learning_rate, optimisation.weight_decay
    batch = _batch(settings, data, is_recipe=is_recipe)
    default_epochs = PRETRAINED_EPOCHS if has_weights else DEFAULT_EPOCHS
    return settings.replaced(
        data=source if source in DATASETS else str(Path(source).resolve()),
        size=data.size or None,
        **_weights(settings),
        head=settings.model.head or ("linear" if is_recipe else "mlp"),
        **batch,
        **_views(settings, "shifts" if is_recipe else data.augmentation),
        unaugmented=_unaugmented(settings, one_view=is_recipe and batch["n_views"] == 1),
        epochs=None if optimisation.minutes else optimisation.epochs or default_epochs,
        optimizer=optimizer,
        learning_rate=learning_rate,
        encoder_lr=_encoder_lr(settings, learning_rate if not has_weights else ENCODER_SHARE * learning_rate),
        schedule=optimisation.schedule or ("linear" if is_recipe else "cosine"),
        weight_decay=OPTIMIZERS[optimizer].weight_decay if decay is None else decay,
        device=device.type,
        threads=settings.machine.threads or _threads(settings, data, device),
        precision=choose_precision(settings.machine.precision, device),
    )


def check_takes_labels(loss: str, data: Dataset, *, caller: str = "train") -> None:
    """Raise if samples may have several labels, and the loss needs one class of each.

    Raises:
        InputValueError: It does. A loss that was given in Python gets the label sets.
    """
    if not data.have_label_sets or loss.startswith(PYTHON) or not LOSSES[loss].needs_labels:
        return
    if not LOSSES[loss].takes_label_sets:
        takers = [name for name, entry in LOSSES.items() if entry.takes_label_sets and entry.needs_labels]
        requirement = f"loss must be one that takes label sets ({', '.join(takers)})"
        raise InputValueError(checks.wording(caller, requirement, loss))


def _model(settings: RunSettings, data: Dataset) -> dict[str, Any]:
    """Return the encoder, and whether it starts from ImageNet weights and stays frozen.

    Raises:
        InputValueError: The encoder is for features and these are images, or the other way round; or nothing is left
            to be trained.
    """
    chosen, images = settings.model, data.origin or data
    ready_made = images.train.are_features
    if ready_made and (chosen.encoder not in (None, READY_MADE) or chosen.weights or chosen.pretrained):
        requirement = f"encoder must be {READY_MADE}, without weights, for ready-made features"
        raise InputValueError(checks.wording("train", requirement, chosen.encoder or "weights"))
    if not ready_made and chosen.encoder == READY_MADE:
        raise InputValueError(checks.wording("train", "encoder must turn images into features", READY_MADE))
    if ready_made and chosen.freeze is False:
        raise InputValueError(checks.wording("train", "freeze must be on for ready-made features", "off"))
    wanted = True if ready_made else wants_frozen(settings)
    freeze = images.are_photos if wanted is None else wanted
    if freeze and chosen.head == "none":
        requirement = "head must be mlp or linear for a frozen encoder or features, because nothing else is trained"
        raise InputValueError(checks.wording("train", requirement, chosen.head))
    if ready_made:
        return {"encoder": READY_MADE, "pretrained": False, "freeze": True}
    pretrained = chosen.pretrained
    if pretrained is None:
        for_photos = chosen.may_be_default and (images.are_photos or chosen.encoder == PHOTO_ENCODER)
        pretrained = chosen.weights is None and not chosen.is_python and (freeze or for_photos)
    about = None if chosen.weights is None else run_description(chosen.weights)
    left_open = PHOTO_ENCODER if pretrained else about.encoder if about is not None else "small"
    return {"encoder": chosen.encoder or left_open, "pretrained": pretrained, "freeze": freeze}


def _batch(settings: RunSettings, data: Dataset, *, is_recipe: bool) -> dict[str, int]:
    """Return the number of images in a batch, and of the views of each."""
    n_train = int(len(data.train) * (1 - settings.validation.fraction)) + data.n_unlabelled
    size = min(BATCH_SIZES.get(data.name, DEFAULT_BATCH_SIZE), max(SMALLEST_BATCH, n_train // 8 * 2), n_train)
    n_views = settings.batches.n_views
    if n_views is None:
        has_positives = not is_self_supervised(settings.loss.name) and size >= CLASS_SHARE * len(data.class_names)
        n_views = 1 if is_recipe and has_positives and not data.n_unlabelled else 2
    if is_recipe:
        size = max(SMALLEST_BATCH, size // n_views)
    return {"batch_size": settings.batches.batch_size or size, "n_views": n_views}


def _views(settings: RunSettings, suited: str) -> dict[str, Any]:
    """Return how views are made: by augmentation, or from features.

    Args:
        settings: The settings so far.
        suited: Name of the augmentation that suits the data and the encoder.

    Raises:
        InputValueError: Features cannot be augmented so, or images have no features to cache.
    """
    batches, frozen = settings.batches, bool(settings.model.freeze)
    if not frozen:
        for name in ("cached_views", "feature_dropout"):
            if getattr(batches, name):
                requirement = f"{name} must be 0 unless the encoder is frozen (--freeze)"
                raise InputValueError(checks.wording("train", requirement, getattr(batches, name)))
        return {"augmentation": batches.augmentation or suited, "feature_dropout": None}
    dropout = FEATURE_DROPOUT if batches.feature_dropout is None else batches.feature_dropout
    ready_made, n_cached = settings.model.encoder == READY_MADE, batches.cached_views
    if n_cached and ready_made:
        raise InputValueError(checks.wording("train", "cached_views must be 0 for ready-made features", n_cached))
    augmentation = batches.augmentation or (suited if n_cached else "none")
    if n_cached and augmentation == "none":
        requirement = "augmentation must not be none with cached_views, which would all be the same"
        raise InputValueError(checks.wording("train", requirement, augmentation))
    if not n_cached and augmentation != "none":
        remedy = "" if ready_made else "With --cached-views N, N augmented versions of each image are cached"
        raise InputValueError(checks.wording("train", "augmentation must be none for features", augmentation, remedy))
    return {"augmentation": augmentation, "feature_dropout": dropout}


def _unaugmented(settings: RunSettings, *, one_view: bool) -> float:
    """Return the fraction of the training, at its end, without augmentation.

    Args:
        settings: The settings so far.
        one_view: Whether this is a run of `small` with one view of each image.
    """
    given = settings.batches.unaugmented
    return (UNAUGMENTED if one_view else 0.0) if given is None else given


def _encoder_lr(settings: RunSettings, default: float) -> float | None:
    """Return the learning rate of the encoder; None if it is frozen.

    Raises:
        InputValueError: It is frozen, and a learning rate was given.
    """
    given = settings.optimisation.encoder_lr
    if not settings.model.freeze:
        return given or default
    if given is not None:
        ready_made = settings.model.encoder == READY_MADE
        frozen = "ready-made features, which have no encoder" if ready_made else "a frozen encoder"
        remedy = "" if ready_made else "Leave out --freeze to train all of it"
        raise InputValueError(checks.wording("train", f"encoder_lr must not be set for {frozen}", given, remedy))
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
