"""From resolved settings to a training loop that is ready to run: its parts built and checked against each other."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from sincere import checks
from sincere.catalog import LOSSES
from sincere.data.dataset import Dataset, ImageSet
from sincere.data.loader import ViewLoader
from sincere.data.samplers import make_sampler
from sincere.data.views import named_augmentation
from sincere.device_memory import free_bytes
from sincere.errors import InputValueError
from sincere.evaluation.knn import accuracy_1nn
from sincere.losses.reference_levels import loss_levels
from sincere.messages import Messages
from sincere.models.embedding import EmbeddingModel, build_model
from sincere.models.weights import read_weights
from sincere.records.model import ModelSpec
from sincere.settings.requests import PLACEMENT, RunSettings
from sincere.theory.coefficients import repulsion_meter
from sincere.training.fit import Fit
from sincere.training.memory import TRIAL_VIEWS, check_memory, step_bytes
from sincere.training.optimizers import OptimizerSettings, make_optimizer
from sincere.training.plan import LoopFunctions, Plan
from sincere.training.progress import make_reporter
from sincere.training.schedules import warmup_steps
from sincere.workflows.launch import embed_shared, whole_batch
from sincere.workflows.run_folder import RunFolder

LIVE_REFERENCES, LIVE_QUERIES = 5000, 2000  # images of a live 1-NN check: enough to see, cheap enough to repeat


def prepare(
    folder: RunFolder,
    settings: RunSettings,
    data: Dataset,
    fabric: Fabric,
    messages: Messages,
    *,
    checkpoint_seconds: float,
) -> Fit:
    """Build the loop of resolved settings and check that its parts fit together; nothing is written.

    Raises:
        InputValueError: The batch is larger than the data, or a step larger than the memory.
    """
    device = fabric.device
    train, held_out = data.train, None
    if settings.validation.fraction:
        train, held_out = data.validation_split(settings.validation.fraction, seed=settings.seed)
    loader = _loader(settings, data, train, fabric)
    sampler = loader.sampler
    if LOSSES[settings.loss.name].needs_labels:  # else the positives are always the other views of the image
        line, warning = sampler.describe(settings.batches.n_views)
        messages.say(line)
        if warning is not None:
            messages.note(warning)
    model = initial_model(settings, data)
    messages.say(f"{model.describe()}; {settings.machine.precision} arithmetic on {device.type}")
    torch.manual_seed(settings.seed)
    model.to(device)
    with fabric.autocast():
        _check_memory(settings, model, train, device)
    if settings.machine.channels_last:
        model.to(memory_format=torch.channels_last)
    norms = {type(module) for module in model.modules() if isinstance(module, nn.BatchNorm2d)}
    if fabric.world_size > 1 and device.type == "cuda" and norms == {nn.BatchNorm2d}:  # others would lose what they add
        model = cast(EmbeddingModel, nn.SyncBatchNorm.convert_sync_batchnorm(model))
    if settings.machine.compile:
        model.compile()
    network, optimizer = fabric.setup(model, make_optimizer(model, _optimizer_settings(settings)))
    epochs = cast(int, settings.optimisation.epochs)
    plan = Plan(
        n_epochs=epochs,
        steps_per_epoch=sampler.n_batches,
        n_warmup=warmup_steps(epochs * sampler.n_batches, sampler.n_batches, settings.optimisation.warmup_epochs),
        clip_norm=settings.optimisation.clip_norm,
        validate_every=settings.validation.every,
        score="knn1_validation" if held_out is not None else None,
        early_stop=settings.validation.early_stop,
        checkpoint_seconds=checkpoint_seconds,
        uses_micro_batches=settings.batches.micro_batch is not None,
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
        reporter=make_reporter(messages),
        messages=messages,
        identity=_identity(settings, data),
    )


def _identity(settings: RunSettings, data: Dataset) -> dict[str, Any]:
    """Return what a checkpoint must agree in to be resumed from: settings and data, not where things are."""
    values = {name: value for name, value in settings.flat().items() if name not in PLACEMENT}
    return {**values, "data (contents)": data.digest}


def _loader(settings: RunSettings, data: Dataset, train: ImageSet, fabric: Fabric) -> ViewLoader:
    batch_size, augmentation = cast(int, settings.batches.batch_size), cast(str, settings.batches.augmentation)
    if batch_size < fabric.world_size:
        requirement = f"batch_size must be at least {fabric.world_size}, the processes that share a batch"
        raise InputValueError(checks.wording("train", requirement, batch_size))
    try:
        sampler = make_sampler(settings.batches.sampler, train.labels, batch_size, seed=settings.seed)
    except InputValueError as error:
        raise InputValueError(f"train: {str(error).partition(': ')[2]}") from error
    return ViewLoader(
        train,
        sampler,
        named_augmentation(augmentation, mirror_is_same_class=data.mirror_is_same_class),
        data.size,
        seed=settings.seed,
        n_views=settings.batches.n_views,
        device=fabric.device,
        share=slice(fabric.global_rank, None, fabric.world_size),
    )


def initial_model(settings: RunSettings, data: Dataset) -> EmbeddingModel:
    """Return the model that the settings ask for, before training.

    Raises:
        InputValueError: The weights that it should start from do not fit it.
        DataError: They cannot be read.
    """
    chosen, weights = settings.model, None
    if chosen.weights is not None:
        weights = read_weights(chosen.weights, chosen.encoder, sha256=chosen.weights_sha256)
    spec = ModelSpec(
        encoder=chosen.encoder,
        head=chosen.head,
        dim=chosen.dim,
        channels=data.train.images.shape[1],
        size=data.size,
        mean=data.mean,
        std=data.std,
        class_names=data.class_names,
        norm=chosen.norm,
    )
    return build_model(spec, seed=settings.seed, pretrained=chosen.pretrained, weights=weights)


def _check_memory(settings: RunSettings, model: EmbeddingModel, train: ImageSet, device: torch.device) -> None:
    n_processes = settings.machine.devices * settings.machine.nodes
    batch_size = min(
        -(-cast(int, settings.batches.batch_size) // n_processes), settings.batches.micro_batch or sys.maxsize
    )
    trial = train.images.gather(train.positions[: max(TRIAL_VIEWS)]).to(device)
    needed = step_bytes(model, trial, batch_size * settings.batches.n_views)
    options = {"batch_size": batch_size, "n_views": settings.batches.n_views}
    check_memory(needed, free_bytes(device), encoder=settings.model.encoder, **options)


def _optimizer_settings(settings: RunSettings) -> OptimizerSettings:
    chosen = settings.optimisation
    return OptimizerSettings(
        name=cast(str, chosen.optimizer),
        learning_rate=cast(float, chosen.learning_rate),
        momentum=chosen.momentum,
        nesterov=chosen.nesterov,
        weight_decay=cast(float, chosen.weight_decay),
        decay_norms_and_biases=chosen.decay_norms,
    )


def _calls(
    settings: RunSettings,
    loader: ViewLoader,
    model: EmbeddingModel,
    held_out: ImageSet | None,
    fabric: Fabric,
) -> LoopFunctions:
    name = settings.loss.name
    hyper_parameters: dict[str, Any] = settings.hyper_parameters()
    needs_labels = LOSSES[name].needs_labels
    across = {"group": "world"} if fabric.world_size > 1 else {}
    criterion = LOSSES[name].load()(settings.loss.temperature, **hyper_parameters, **across)

    def loss(embeddings: Tensor, labels: Tensor) -> Tensor:
        value: Tensor = criterion(embeddings, labels) if needs_labels else criterion(embeddings)
        return value

    def inspect(embeddings: Tensor, labels: Tensor) -> dict[str, float]:
        if LOSSES[name].formula() is None:
            return {}
        n_views = embeddings.shape[1]
        levels = loss_levels(name, labels, n_views=n_views, **hyper_parameters)
        values = {"chance": levels.chance, "floor": levels.floor}
        if not needs_labels:
            return values
        rows, repeated = embeddings.flatten(0, 1), labels.repeat_interleave(n_views)
        meter = repulsion_meter(
            rows, repeated, loss=name, temperature=settings.loss.temperature, **hyper_parameters
        ).overall
        return {**values, "repulsion_share": meter.share, "repulsion_strength": meter.strength}

    chosen = np.random.default_rng(settings.seed).permutation(len(loader.images))[:LIVE_REFERENCES]
    references = loader.images.subset(chosen)  # in random order: the first few are a fair sample, too

    def validate() -> dict[str, float]:
        reference = embed_shared(model, references, fabric)
        if held_out is not None:
            query = embed_shared(model, held_out, fabric)
            accuracy = accuracy_1nn(query.embeddings, query.labels, reference.embeddings, reference.labels)
            return {"knn1_validation": accuracy}
        own = torch.arange(min(LIVE_QUERIES, len(references)), device=loader.device)
        queries = reference.embeddings[own], reference.labels[own]
        return {"knn1_train": accuracy_1nn(*queries, reference.embeddings, reference.labels, leave_out=own)}

    batches: Any = loader.batches
    if settings.batches.micro_batch is not None:
        batches = partial(loader.micro_batched_batches, size=settings.batches.micro_batch)
    return LoopFunctions(batches, loss, inspect, validate, partial(whole_batch, fabric=fabric))
