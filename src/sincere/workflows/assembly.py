"""From resolved settings to a training loop that is ready to run: its parts built and checked against each other."""

from __future__ import annotations

import math
import sys
from functools import partial
from typing import Any, cast

import torch
from lightning_fabric import Fabric
from torch import nn

from sincere import checks
from sincere.catalog import PYTHON, Augmentation, CustomAugmentation
from sincere.data.dataset import CHUNK_BYTES, Dataset, Samples
from sincere.data.feature_views import make_feature_views, plain_feature_views
from sincere.data.load_options import SMALLEST_PRETRAINED
from sincere.data.loader import ViewLoader
from sincere.data.samplers import make_sampler
from sincere.data.views import ViewMaker, named_augmentation, view_maker
from sincere.device_memory import free_bytes
from sincere.errors import InputValueError
from sincere.loss_catalog import LOSSES
from sincere.messages import Messages
from sincere.models.embedding import EmbeddingModel, build_model
from sincere.models.small import SmallEncoder
from sincere.models.weights import has_running_statistics, read_weights
from sincere.records.model import ModelSpec
from sincere.settings.requests import PLACEMENT, RunSettings
from sincere.training.fit import Fit
from sincere.training.memory import TRIAL_VIEWS, check_memory, step_bytes
from sincere.training.optimizers import OptimizerSettings, make_optimizer
from sincere.training.plan import LoopFunctions, Plan
from sincere.training.progress import make_reporter
from sincere.training.schedules import warmup_steps
from sincere.workflows.frozen_features import with_features
from sincere.workflows.launch import whole_batch
from sincere.workflows.live_metrics import batch_metrics, live_accuracy, live_name, live_references
from sincere.workflows.run_folder import RunFolder
from sincere.workflows.training_loss import TrainingLoss, training_loss

TRIAL_IMAGES = 8  # on which a caller's own objects are tried
STEM_IMAGES = 1000  # at most, whose patches decide the stem of `small`


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
    train, held_out = _parts(settings, data, messages)
    loader = _loader(settings, data, train, fabric)
    if LOSSES[settings.loss.name].needs_labels:  # else the positives are always the other views of the image
        line, warning = loader.sampler.describe(cast(int, settings.batches.n_views), noun=data.noun)
        messages.say(line)
        if warning is not None:
            messages.note(warning)
    model = _model(settings, data, train, fabric, messages)
    network, optimizer = fabric.setup(model, make_optimizer(model, _optimizer_settings(settings)))
    plan = _plan(
        settings,
        loader.sampler.n_batches,
        score=f"{live_name(data.train)}_validation" if held_out is not None else None,
        dim=None if model.classifier is None else model.spec.dim,
        checkpoint_seconds=checkpoint_seconds,
    )
    sizes = {"dim": model.spec.dim, "n_classes": len(data.class_names)}
    loss = training_loss(settings, n_processes=fabric.world_size, **sizes)
    calls = _calls(settings, loss, loader, model, held_out, fabric)
    if fabric.world_size == 1:
        _try_objects(settings, loader, model)
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


def _parts(settings: RunSettings, data: Dataset, messages: Messages) -> tuple[Samples, Samples | None]:
    """Return what is trained on, and what is held out of the training part, if anything is."""
    train, held_out = data.train, None
    if settings.validation.fraction:
        train, held_out = data.validation_split(settings.validation.fraction, seed=settings.seed)
    if not settings.loss.name.startswith(PYTHON):
        train = data.with_unlabelled(train)
    elif data.n_unlabelled:  # it might take -1 for a class
        left_out = f"the {data.n_unlabelled:,} unlabelled {data.noun} are left out"
        messages.note(f"{left_out}: a loss that was given in Python gets labelled ones only")
    return train, held_out


def _model(settings: RunSettings, data: Dataset, train: Samples, fabric: Fabric, messages: Messages) -> EmbeddingModel:
    """Return the model on its device, after a step was found to fit into the memory there."""
    device, model = fabric.device, initial_model(settings, data)
    if LOSSES[settings.loss.name].needs_classifier:
        sample = model.features(train.items.gather(train.positions[:1]).cpu())
        model.add_classifier(sample.shape[1], len(data.class_names), seed=settings.seed)
    messages.say(f"{model.describe()}; {settings.machine.precision} arithmetic on {device.type}")
    if settings.model.pretrained and 0 < data.size < SMALLEST_PRETRAINED:
        remedy = f"--size {SMALLEST_PRETRAINED} enlarges these"
        messages.note(f"ImageNet weights suit images of {SMALLEST_PRETRAINED} px and more; {remedy}")
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
    return model


def _plan(
    settings: RunSettings, steps_per_epoch: int, *, score: str | None, dim: int | None, checkpoint_seconds: float
) -> Plan:
    """Return the length of the run and its intervals."""
    epochs = cast(int, settings.optimisation.epochs)
    return Plan(
        n_epochs=epochs,
        steps_per_epoch=steps_per_epoch,
        n_warmup=warmup_steps(epochs * steps_per_epoch, steps_per_epoch, settings.optimisation.warmup_epochs),
        schedule=cast(str, settings.optimisation.schedule),
        clip_norm=settings.optimisation.clip_norm,
        validate_every=settings.validation.every,
        score=score,
        early_stop=settings.validation.early_stop,
        checkpoint_seconds=checkpoint_seconds,
        uses_micro_batches=settings.batches.micro_batch is not None,
        dim=dim,
    )


def _identity(settings: RunSettings, data: Dataset) -> dict[str, Any]:
    """Return what a checkpoint must agree in to be resumed from: settings and data, not where things are."""
    values = {name: value for name, value in settings.flat().items() if name not in PLACEMENT}
    return {**values, "data (contents)": data.digest}


def _loader(settings: RunSettings, data: Dataset, train: Samples, fabric: Fabric) -> ViewLoader:
    batch_size = cast(int, settings.batches.batch_size)
    if batch_size < fabric.world_size:
        requirement = f"batch_size must be at least {fabric.world_size}, the processes that share a batch"
        raise InputValueError(checks.wording("train", requirement, batch_size))
    try:
        sampler = make_sampler(settings.batches.sampler, train.labels, batch_size, seed=settings.seed)
    except InputValueError as error:
        raise InputValueError(f"train: {str(error).partition(': ')[2]}") from error
    batches, seed, n_views = settings.batches, settings.seed, cast(int, settings.batches.n_views)
    unaugmented = batches.unaugmented or 0.0
    late_from = round((1 - unaugmented) * cast(int, settings.optimisation.epochs) * sampler.n_batches)
    make_views: ViewMaker
    late_views: ViewMaker
    in_threads = True
    if data.train.are_features:
        make_views = partial(make_feature_views, dropout=batches.feature_dropout or 0.0, seed=seed, n_views=n_views)
        late_views = partial(plain_feature_views, n_views=n_views)
    else:
        name = cast(str, batches.augmentation)
        augmentation = named_augmentation(name, mirror_is_same_class=data.mirror_is_same_class)
        of_images = partial(view_maker, size=data.size, seed=seed, n_views=n_views)
        make_views, late_views = of_images(augmentation), of_images(Augmentation())
        in_threads = not isinstance(augmentation, CustomAugmentation) or augmentation.in_threads
    return ViewLoader(
        samples=train,
        sampler=sampler,
        make_views=make_views,
        device=fabric.device,
        share=slice(fabric.global_rank, None, fabric.world_size),
        in_threads=in_threads,
        late_views=late_views if unaugmented else None,
        late_from=late_from,
    )


def initial_model(settings: RunSettings, data: Dataset) -> EmbeddingModel:
    """Return the model that the settings ask for, before training.

    Raises:
        InputValueError: The weights that it should start from do not fit it.
        DataError: They cannot be read.
    """
    chosen, weights = settings.model, None
    encoder = cast(str, chosen.encoder)
    if chosen.weights is not None:
        weights = read_weights(chosen.weights, encoder, sha256=chosen.weights_sha256)
    if chosen.freeze and chosen.norm == "group" and (weights is None or has_running_statistics(weights)):
        requirement = "norm must be batch for a frozen encoder: without their statistics its weights would be useless"
        raise InputValueError(checks.wording("train", requirement, chosen.norm))
    spec = ModelSpec(
        encoder=encoder,
        head=cast(str, chosen.head),
        dim=chosen.dim,
        class_names=data.class_names,
        norm=chosen.norm,
        feature_scale=_feature_scale(data.train) if data.train.are_features else 1.0,
        frozen=bool(chosen.freeze),
        **_input(data.origin or data),
    )
    model = build_model(spec, seed=settings.seed, pretrained=bool(chosen.pretrained), weights=weights)
    if isinstance(model.encoder, SmallEncoder) and weights is None:
        sample = data.train.items.gather(data.train.positions[:: -(-len(data.train) // STEM_IMAGES)])
        model.encoder.whiten_stem(model.preparation(sample.cpu()))
    if chosen.freeze:  # else layers that a caller has frozen stay so
        model.encoder.requires_grad_(False)
    return model


def frozen_data(settings: RunSettings, data: Dataset, fabric: Fabric, messages: Messages) -> Dataset:
    """Return the features of the data where the settings freeze the encoder, else the data as they are.

    Raises:
        InputValueError: The weights of the encoder do not fit it.
        DataError: They cannot be read, or the cache cannot be written.
    """
    if not settings.model.freeze or data.train.are_features:
        return data
    model, batches = initial_model(settings, data), settings.batches
    about = f"frozen encoder {settings.model.encoder} at {data.size} px"
    messages.say(f"{about}; --encoder, --no-freeze and --size change that")
    augmentation = cast(str, batches.augmentation)
    return with_features(
        model,
        data,
        fabric.device,
        messages,
        fabric=fabric,
        cached_views=batches.cached_views,
        augmentation=augmentation,
    )


def _input(data: Dataset) -> dict[str, Any]:
    """Return what a spec says of the input: images or ready-made features."""
    if data.train.are_features:
        return {"n_features": data.train.items.shape[1]}
    shape = data.train.items.shape[1:]
    return {"channels": shape[0], "size": data.size, "mean": data.mean, "std": data.std, "image_shape": shape}


def _feature_scale(train: Samples) -> float:
    """Return the root mean square of the training features."""
    squares = sum(float(features.double().square().sum()) for features in train.batches(CHUNK_BYTES))
    return math.sqrt(squares / (len(train) * train.items.shape[1])) or 1.0


def step_memory(settings: RunSettings, model: EmbeddingModel, train: Samples, device: torch.device) -> int:
    """Return the approximate memory of a training step on each device, in bytes."""
    trial = train.items.gather(train.positions[: max(TRIAL_VIEWS)]).to(device)
    return step_bytes(model, trial, _images_at_once(settings) * cast(int, settings.batches.n_views))


def _images_at_once(settings: RunSettings) -> int:
    """Return how many images go through the network of each process at once."""
    n_processes = settings.machine.devices * settings.machine.nodes
    share = -(-cast(int, settings.batches.batch_size) // n_processes)
    return min(share, settings.batches.micro_batch or sys.maxsize)


def _check_memory(settings: RunSettings, model: EmbeddingModel, train: Samples, device: torch.device) -> None:
    needed = step_memory(settings, model, train, device)
    options = {"batch_size": _images_at_once(settings), "n_views": cast(int, settings.batches.n_views)}
    check_memory(needed, free_bytes(device), encoder=cast(str, settings.model.encoder), **options)


def _try_objects(settings: RunSettings, loader: ViewLoader, model: EmbeddingModel) -> None:
    """Try what a caller has given in Python on a few images, so that mistakes show before anything is written.

    Raises:
        InputValueError, InputTypeError: An object returns something else than it should.
    """
    loss, augmentation = settings.loss.name, cast(str, settings.batches.augmentation)
    if not any(name.startswith(PYTHON) for name in (loss, augmentation, cast(str, settings.model.encoder))):
        return
    batch, was_training = loader.batch(0, slice(TRIAL_IMAGES)), model.training
    low, high = batch.inputs.min().item(), batch.inputs.max().item()
    if augmentation.startswith(PYTHON) and not (low > -0.5 and high < 1.5):  # a little noise may be added to [0, 1]
        requirement = f"augmentation {augmentation} must return uint8, or floating-point values in [0, 1]"
        raise InputValueError(checks.wording("train", requirement, f"values from {low:.4g} to {high:.4g}"))
    with torch.random.fork_rng():
        embeddings = model.eval()(batch.inputs.flatten(0, 1)).view(*batch.inputs.shape[:2], -1)
        if loss.startswith(PYTHON):
            LOSSES[loss].load()(settings.loss.temperature)(embeddings, batch.labels)
    model.train(was_training)


def _optimizer_settings(settings: RunSettings) -> OptimizerSettings:
    chosen = settings.optimisation
    return OptimizerSettings(
        name=cast(str, chosen.optimizer),
        learning_rate=cast(float, chosen.learning_rate),
        encoder_lr=chosen.encoder_lr,
        momentum=chosen.momentum,
        nesterov=chosen.nesterov,
        weight_decay=cast(float, chosen.weight_decay),
        decay_norms_and_biases=chosen.decay_norms,
    )


def _calls(
    settings: RunSettings,
    loss: TrainingLoss,
    loader: ViewLoader,
    model: EmbeddingModel,
    held_out: Samples | None,
    fabric: Fabric,
) -> LoopFunctions:
    for kept in (loss.queue, loss.state):
        if kept is not None:
            kept.to(fabric.device)
    references = live_references(loader.samples, seed=settings.seed)
    batches: Any = loader.batches
    if settings.batches.micro_batch is not None:
        batches = partial(loader.micro_batched_batches, size=settings.batches.micro_batch)
    return LoopFunctions(
        batches,
        loss.function,
        partial(batch_metrics, settings, loss, model),
        partial(live_accuracy, model, references, held_out, fabric),
        partial(whole_batch, fabric=fabric),
        loss.queue,
        loss.state,
    )
