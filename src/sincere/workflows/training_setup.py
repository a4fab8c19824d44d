"""From settings to a loop that is ready to run: choices made, parts built and checked against each other."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from sincere import checks
from sincere.catalog import AUGMENTATIONS, HEADS, LOSSES, OPTIMIZERS, SAMPLERS
from sincere.data.catalog import DATASETS
from sincere.data.dataset import Dataset, ImageSet
from sincere.data.loader import ViewLoader
from sincere.data.samplers import make_sampler
from sincere.data.views import named_augmentation
from sincere.device_memory import free_bytes
from sincere.errors import InputValueError
from sincere.evaluation.knn import accuracy_1nn
from sincere.losses.distributed.global_batch import global_batch_loss
from sincere.losses.reference_levels import loss_levels
from sincere.models.embedding import EmbeddingModel, build_model, check_encoder
from sincere.models.small import TINY_PIXELS
from sincere.records.config import MOST_THREADS, WHERE, TrainSettings
from sincere.records.model import ModelSpec
from sincere.theory.coefficients import FORMULAS, LossName, repulsion_meter
from sincere.training.fit import Fit
from sincere.training.memory import TRIAL_VIEWS, check_memory, step_bytes
from sincere.training.optimizers import (
    OptimizerSettings,
    make_optimizer,
)
from sincere.training.plan import Calls, Plan
from sincere.training.progress import Reporter
from sincere.training.schedules import warmup_steps
from sincere.workflows.hardware import choose_precision
from sincere.workflows.launch import embed_shared, whole_batch
from sincere.workflows.run_folder import RunFolder

LIVE_REFERENCES, LIVE_QUERIES = 5000, 2000  # images of a live 1-NN check: enough to see, cheap enough to repeat
DEFAULT_OPTIMIZER = {"small": "muon"}
BATCH_SIZES, DEFAULT_BATCH_SIZE, DEFAULT_EPOCHS = {"digits": 256}, 512, 100


def check_names(settings: TrainSettings) -> None:
    """Raise for a name that does not exist, before anything is loaded.

    Raises:
        InputValueError: With the names there are and the nearest one.
    """
    checks.choice("train", "loss", settings.loss, LOSSES)
    checks.choice("train", "head", settings.head, HEADS)
    checks.choice("train", "sampler", settings.sampler, SAMPLERS)
    if settings.optimizer is not None:
        checks.choice("train", "optimizer", settings.optimizer, OPTIMIZERS)
    if settings.augmentation is not None:
        checks.choice("train", "augmentation", settings.augmentation, AUGMENTATIONS)
    check_encoder(settings.encoder)
    if settings.early_stop is not None and not settings.validation:
        raise InputValueError("train: early_stop needs images to check on: set validation, for example to 0.1")
    if settings.loss == "infonce" and settings.n_views < 2:
        requirement = "n_views must be at least 2 for infonce, whose only partners are views of the same image"
        raise InputValueError(checks.wording("train", requirement, settings.n_views))


def resolve(settings: TrainSettings, data: Dataset, device: torch.device) -> TrainSettings:
    """Return the settings with every choice made."""
    n_learned = int(len(data.train) * (1 - settings.validation))
    batch_size = min(BATCH_SIZES.get(data.name, DEFAULT_BATCH_SIZE), max(2, n_learned // 8 * 2))
    optimizer = settings.optimizer or DEFAULT_OPTIMIZER.get(settings.encoder, "sgd")
    decay = OPTIMIZERS[optimizer].weight_decay if settings.weight_decay is None else settings.weight_decay
    changes: dict[str, Any] = {
        "size": data.size,
        "epochs": settings.epochs or DEFAULT_EPOCHS,
        "batch_size": settings.batch_size or batch_size,
        "augmentation": settings.augmentation or data.augmentation,
        "optimizer": optimizer,
        "learning_rate": settings.learning_rate or OPTIMIZERS[optimizer].learning_rate,
        "weight_decay": decay,
        "device": device.type,
        "threads": settings.threads or _threads(settings, data, device),
        "data": settings.data if settings.data in DATASETS else str(Path(settings.data).resolve()),
    }
    changes["precision"] = choose_precision(settings.precision, device)
    return TrainSettings.make(**{**settings.model_dump(), **changes})  # checked: what is stored is read again


def _threads(settings: TrainSettings, data: Dataset, device: torch.device) -> int:
    """Return how many threads gain: on digits, 100 epochs took 35 s with one and 55 s with two."""
    tiny = device.type == "cpu" and settings.encoder == "small" and data.size <= TINY_PIXELS
    return 1 if tiny else min(torch.get_num_threads(), MOST_THREADS)


def prepare(
    folder: RunFolder,
    settings: TrainSettings,
    data: Dataset,
    fabric: Fabric,
    reporter: Reporter,
    *,
    say: Callable[[str], None],
    checkpoint_seconds: float,
) -> Fit:
    """Build the loop of resolved settings and check that its parts fit together; nothing is written.

    Raises:
        InputValueError: The batch is larger than the data, or a step larger than the memory.
    """
    device = fabric.device
    learn, held_out = data.train, None
    if settings.validation:
        learn, held_out = data.validation_split(settings.validation, seed=settings.seed)
    loader = _loader(settings, data, learn, fabric)
    sampler = loader.sampler
    if settings.loss != "infonce":  # whose partners are views of the same image, always
        line = sampler.describe(settings.n_views)
        (reporter.say if "warning" in line else say)(line)
    model = build_model(model_spec(settings, data), seed=settings.seed, pretrained=settings.pretrained)
    say(f"{model.describe()}; {settings.precision} arithmetic on {device.type}")
    torch.manual_seed(settings.seed)
    model.to(device)
    with fabric.autocast():
        _check_memory(settings, model, learn, device)
    if settings.channels_last:
        model.to(memory_format=torch.channels_last)
    norms = {type(module) for module in model.modules() if isinstance(module, nn.BatchNorm2d)}
    if fabric.world_size > 1 and device.type == "cuda" and norms == {nn.BatchNorm2d}:  # others would lose what they add
        model = cast(EmbeddingModel, nn.SyncBatchNorm.convert_sync_batchnorm(model))
    if settings.compile:
        model.compile()
    network, optimizer = fabric.setup(model, make_optimizer(model, _optimizer_settings(settings)))
    epochs = cast(int, settings.epochs)
    plan = Plan(
        n_epochs=epochs,
        steps_per_epoch=sampler.n_batches,
        n_warmup=warmup_steps(epochs * sampler.n_batches, sampler.n_batches, settings.warmup_epochs),
        clip_norm=settings.clip_norm,
        validate_every=settings.validate_every,
        score="knn1_validation" if held_out is not None else None,
        early_stop=settings.early_stop,
        checkpoint_seconds=checkpoint_seconds,
        in_pieces=settings.micro_batch is not None,
    )
    calls = _calls(settings, loader, model, held_out, fabric)
    return Fit(
        fabric=fabric,
        model=network,
        optimizer=cast(torch.optim.Optimizer, optimizer),
        plan=plan,
        calls=calls,
        checkpoints=folder.checkpoints,
        log=folder.log,
        reporter=reporter,
        identity=_identity(settings, data),
    )


def _identity(settings: TrainSettings, data: Dataset) -> dict[str, Any]:
    """Return what a checkpoint must have been made with to be gone on from: settings and data, not where things are."""
    return {**settings.model_dump(mode="json", exclude=WHERE), "data (contents)": data.digest}


def _loader(settings: TrainSettings, data: Dataset, learn: ImageSet, fabric: Fabric) -> ViewLoader:
    batch_size, augmentation = cast(int, settings.batch_size), cast(str, settings.augmentation)
    if batch_size < fabric.world_size:
        requirement = f"batch_size must be at least {fabric.world_size}, the processes that share a batch"
        raise InputValueError(checks.wording("train", requirement, batch_size))
    return ViewLoader(
        learn,
        make_sampler(settings.sampler, learn.labels, batch_size, seed=settings.seed),
        named_augmentation(augmentation, mirror_is_same_class=data.mirror_is_same_class),
        data.size,
        seed=settings.seed,
        n_views=settings.n_views,
        device=fabric.device,
        share=slice(fabric.global_rank, None, fabric.world_size),
    )


def model_spec(settings: TrainSettings, data: Dataset) -> ModelSpec:
    """Return what model the settings ask for."""
    return ModelSpec(
        encoder=settings.encoder,
        head=settings.head,
        dim=settings.dim,
        channels=data.train.images.shape[1],
        size=data.size,
        mean=data.mean,
        std=data.std,
        class_names=data.class_names,
        norm=settings.norm,
    )


def _check_memory(settings: TrainSettings, model: EmbeddingModel, learn: ImageSet, device: torch.device) -> None:
    n_processes = settings.devices * settings.nodes
    batch_size = min(-(-cast(int, settings.batch_size) // n_processes), settings.micro_batch or sys.maxsize)
    trial = learn.images.gather(learn.positions[: max(TRIAL_VIEWS)]).to(device)
    needed = step_bytes(model, trial, batch_size * settings.n_views)
    options = {"batch_size": batch_size, "n_views": settings.n_views}
    check_memory(needed, free_bytes(device), encoder=settings.encoder, **options)


def _optimizer_settings(settings: TrainSettings) -> OptimizerSettings:
    return OptimizerSettings(
        name=cast(str, settings.optimizer),
        learning_rate=cast(float, settings.learning_rate),
        momentum=settings.momentum,
        nesterov=settings.nesterov,
        weight_decay=cast(float, settings.weight_decay),
        decay_norms_and_biases=settings.decay_norms_and_biases,
    )


def _calls(
    settings: TrainSettings,
    loader: ViewLoader,
    model: EmbeddingModel,
    held_out: ImageSet | None,
    fabric: Fabric,
) -> Calls:
    options = {"epsilon": settings.epsilon} if settings.loss == "eps-supinfonce" else {}
    criterion = LOSSES[settings.loss].load()(settings.temperature, **options)

    def loss(embeddings: Tensor, labels: Tensor) -> Tensor:
        if fabric.world_size > 1:
            named = {"loss": settings.loss, "temperature": settings.temperature, "epsilon": settings.epsilon}
            return global_batch_loss(embeddings, labels, **cast(Any, named))
        value: Tensor = criterion(embeddings) if settings.loss == "infonce" else criterion(embeddings, labels)
        return value

    def inspect(embeddings: Tensor, labels: Tensor) -> dict[str, float]:
        n_views = embeddings.shape[1]
        levels = loss_levels(settings.loss, labels, n_views=n_views, epsilon=settings.epsilon)
        figures = {"chance": levels.chance, "floor": levels.floor}
        if settings.loss not in FORMULAS:
            return figures
        name = cast(LossName, settings.loss)
        rows, repeated = embeddings.flatten(0, 1), labels.repeat_interleave(n_views)
        meter = repulsion_meter(rows, repeated, loss=name, temperature=settings.temperature)
        return {**figures, "repulsion_share": meter.overall.share, "repulsion_strength": meter.overall.strength}

    chosen = np.random.default_rng(settings.seed).permutation(len(loader.images))[:LIVE_REFERENCES]
    references = loader.images.subset(chosen)  # in random order: the first few are a fair sample, too

    def validate() -> dict[str, float]:
        known = embed_shared(model, references, fabric)
        if held_out is not None:
            asked = embed_shared(model, held_out, fabric)
            return {"knn1_validation": accuracy_1nn(asked.embeddings, asked.labels, known.embeddings, known.labels)}
        own = torch.arange(min(LIVE_QUERIES, len(references)), device=loader.device)
        queries = known.embeddings[own], known.labels[own]
        return {"knn1_train": accuracy_1nn(*queries, known.embeddings, known.labels, leave_out=own)}

    batches: Any = loader.batches
    if settings.micro_batch is not None:
        batches = partial(loader.pieced_batches, size=settings.micro_batch)
    return Calls(batches, loss, inspect, validate, partial(whole_batch, fabric=fabric))
