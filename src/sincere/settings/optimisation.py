"""Settings of the training: batches, optimiser, learning rate schedule, validation."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from sincere.catalog import AUGMENTATIONS, OPTIMIZERS, SAMPLERS, SCHEDULES
from sincere.settings.record import MANY, Choices, Settings


class BatchSettings(Settings):
    """How batches and their augmented views are made."""

    title: ClassVar[str] = "Batches and augmentation"

    batch_size: int | None = Field(default=None, ge=2, le=MANY)
    """Images in a batch; each gives n-views embeddings. Default: 512, digits 256, less for small data sets and
    for small with several views."""
    micro_batch: int | None = Field(default=None, ge=1, le=MANY)
    """Images that go through the network at once, if a batch does not fit into memory. The gradient stays exact, except
    for batch norm, whose statistics are those of a micro-batch. Default: the whole batch."""
    n_views: int | None = Field(default=None, ge=1, le=1024)
    """Augmented views of each image. Default: 2; 1 for small above 16 px, if there are few enough classes."""
    augmentation: Annotated[str | None, Choices(AUGMENTATIONS)] = None
    """Set of augmentations. Default: shifts for small above 16 px, else what suits the data set."""
    unaugmented: float | None = Field(default=None, ge=0, lt=1)
    """Fraction of the training, at its end, with images or features as they are: the network then fits the training
    images themselves, which widens the margin. Default: 0.15 for small above 16 px with one view, else 0."""
    cached_views: int = Field(default=0, ge=0, le=1024)
    """With a frozen encoder: augmented versions of each image whose features are cached; a view is one of them or the
    image itself."""
    feature_dropout: float | None = Field(default=None, ge=0, le=0.9)
    """With a frozen encoder or ready-made features: fraction of the features that each view sets to 0. Default: 0.5."""
    queue: int = Field(default=0, ge=0, le=MANY)
    """Embeddings of earlier batches that are contrasted with as well, for more positives and negatives than a batch
    has; 0 for none. They are out of date, the more so the larger the learning rate."""
    sampler: Annotated[str, Choices(SAMPLERS)] = "auto"
    """How batches are filled; p-by-k takes K images of each of P classes. auto: p-by-k for many classes, else
    shuffle."""


class OptimisationSettings(Settings):
    """Optimiser and learning rate schedule."""

    title: ClassVar[str] = "Optimisation"

    epochs: int | None = Field(default=None, ge=1, le=MANY)
    """Passes over the training images. Default: 100; 30 if the encoder has pretrained weights or is frozen."""
    minutes: float | None = Field(default=None, gt=0, le=MANY)
    """Minutes of training, in place of epochs: the first steps are timed, and as many epochs are trained as fit. In a
    comparison: of each run."""
    optimizer: Annotated[str | None, Choices(OPTIMIZERS)] = None
    """sgd, the paper's; muon, which needs fewer epochs; or adamw. Default: muon for the encoder small, adamw for
    pretrained weights and for features, else sgd."""
    learning_rate: float | None = Field(default=None, gt=0)
    """Peak of the learning rate schedule. Default: 0.5 for sgd, 0.06 for muon, 0.001 for adamw."""
    encoder_lr: float | None = Field(default=None, gt=0)
    """Peak learning rate of the encoder, which is then not frozen. Default: learning-rate; a tenth of it for pretrained
    weights."""
    schedule: Annotated[str | None, Choices(SCHEDULES)] = None
    """Decay of the learning rate after its warm-up. Default: linear for small above 16 px, else cosine, the paper's."""
    warmup_epochs: float | None = Field(default=None, ge=0, le=MANY)
    """Epochs in which the learning rate rises. Default: 10, at most a tenth of all."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Momentum of the optimiser; the first beta of adamw."""
    nesterov: bool = False
    """Nesterov momentum for sgd; muon always has it."""
    weight_decay: float | None = Field(default=None, ge=0)
    """Weight decay. Default: 1e-4 for sgd; times the learning rate, 0.17 for muon and 0.01 for adamw."""
    decay_norms: bool = True
    """Apply the weight decay to norms and biases too, as in the paper; muon never does."""
    clip_norm: float | None = Field(default=None, gt=0)
    """Clip the gradient to this norm. Default: no clipping."""

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if self.epochs is not None and self.minutes is not None:
            raise ValueError("epochs and minutes both say how long to train; give one of them")
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs momentum above 0")
        return self


class ValidationSettings(Settings):
    """Checks while training."""

    title: ClassVar[str] = "Validation"

    fraction: float = Field(default=0.0, ge=0, lt=1, alias="validation")
    """Fraction of the training images held out, stratified, to choose the best checkpoint. The paper's: 0.1."""
    every: int = Field(default=10, ge=1, le=MANY, alias="validate_every")
    """Epochs between 1-NN checks."""
    early_stop: int | None = Field(default=None, ge=1, le=MANY)
    """Stop after this many checks without a better 1-NN accuracy. Needs validation. Default: never."""

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if self.early_stop is not None and not self.fraction:
            raise ValueError("early_stop needs images to check on: set validation, for example to 0.1")
        return self
