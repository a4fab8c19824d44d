"""Keywords of the Python functions, for type checkers and editors.

Generated from the records by `python -m sincere.settings.signatures`: change those.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypedDict


class DataKeywords(TypedDict, total=False):
    """The labelled images or features, and how they are read."""

    data: str | object
    classes: Sequence[str] | None
    unknown_classes: Sequence[str] | None
    imbalance: float | None
    data_dir: str | Path | None
    size: int | None
    skip_bad_images: bool


class NamedLossKeywords(TypedDict, total=False):
    """One loss and its hyper-parameters."""

    temperature: float
    positives_in_denominator: bool | None
    loss: str | object
    epsilon: float
    n_positives: int
    target_weight: float
    nearest_positives: int
    nearest_negatives: int
    prior: float


class ModelKeywords(TypedDict, total=False):
    """Encoder and projection head."""

    encoder: str | object | None
    head: str | None
    dim: int
    pretrained: bool | None
    freeze: bool | None
    weights: str | Path | None
    weights_sha256: str | None
    norm: Literal["batch", "group"]


class BatchKeywords(TypedDict, total=False):
    """How batches and their augmented views are made."""

    batch_size: int | None
    micro_batch: int | None
    n_views: int | None
    augmentation: str | object | None
    unaugmented: float | None
    cached_views: int
    feature_dropout: float | None
    queue: int
    sampler: str


class OptimisationKeywords(TypedDict, total=False):
    """Optimiser and learning rate schedule."""

    epochs: int | None
    minutes: float | None
    optimizer: str | None
    learning_rate: float | None
    encoder_lr: float | None
    schedule: str | None
    warmup_epochs: float | None
    momentum: float
    nesterov: bool
    weight_decay: float | None
    decay_norms: bool
    clip_norm: float | None


class ValidationKeywords(TypedDict, total=False):
    """Checks while training."""

    validation: float
    validate_every: int
    early_stop: int | None


class ClusterKeywords(TypedDict, total=False):
    """Several devices or machines that share every batch, and how they compute."""

    device: str
    devices: int
    nodes: int
    threads: int | None
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed"]
    channels_last: bool
    compile: bool


class TrainKeywords(
    DataKeywords,
    NamedLossKeywords,
    ModelKeywords,
    BatchKeywords,
    OptimisationKeywords,
    ValidationKeywords,
    ClusterKeywords,
    total=False,
):
    """Learn an embedding from labelled images."""

    seed: int
    recipe: str | None
    out: str | Path | None
    resume: bool
    overwrite: bool
    checkpoint_minutes: float
    log: Sequence[str]
    quiet: bool


class LossKeywords(TypedDict, total=False):
    """Hyper-parameters of the losses: the temperature, and what the catalog lists for each loss."""

    temperature: float
    positives_in_denominator: bool | None
    epsilon: float
    n_positives: int
    target_weight: float
    nearest_positives: int
    nearest_negatives: int
    prior: float


class EvaluationKeywords(TypedDict, total=False):
    """What is measured of a model."""

    metrics: Sequence[str]
    ks: Sequence[int]
    probe: Literal["fast", "paper", "both"]
    probe_epochs: int
    probe_rates: Sequence[float]
    probe_weight_decay: float
    resamples: int
    unknown_data: str | object | None


class CompareKeywords(
    DataKeywords,
    LossKeywords,
    ModelKeywords,
    BatchKeywords,
    OptimisationKeywords,
    ValidationKeywords,
    EvaluationKeywords,
    ClusterKeywords,
    total=False,
):
    """Train several losses on the same data under the same conditions, evaluate them, and write a report."""

    losses: Sequence[str | object]
    seeds: Sequence[int]
    out: str | Path | None
    recipe: str | None
    tuned: str | Path | None
    overwrite: bool
    checkpoint_minutes: float
    log: Sequence[str]
    quiet: bool


class MachineKeywords(TypedDict, total=False):
    """How a device computes."""

    device: str
    threads: int | None
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed"]
    channels_last: bool
    compile: bool


class SearchKeywords(
    DataKeywords,
    LossKeywords,
    ModelKeywords,
    BatchKeywords,
    OptimisationKeywords,
    MachineKeywords,
    total=False,
):
    """Find the best hyper-parameters of each loss: the highest 1-NN accuracy on held-out training images."""

    losses: Sequence[str | object]
    trials: int
    grid: Literal["paper", "space"] | None
    space: Sequence[str] | None
    pruner: Literal["median", "halving", "none"] | None
    validation: float
    validate_every: int | None
    seeds: Sequence[int]
    storage: str | None
    study: str | None
    worker: bool
    final: bool
    out: str | Path | None
    overwrite: bool
    checkpoint_minutes: float
    quiet: bool


class DevicesKeywords(TypedDict, total=False):
    """Several devices or machines that share the work."""

    device: str
    devices: int
    nodes: int


class EvaluateKeywords(EvaluationKeywords, DevicesKeywords, total=False):
    """Evaluate the model of a run on the test part of its data: every metric with its confidence interval."""

    data_dir: str | Path | None
    seed: int
    report: bool
    quiet: bool
    data: str | object | None
    skip_bad_images: bool
    log: Sequence[str]


class TransferKeywords(EvaluationKeywords, DevicesKeywords, total=False):
    """Evaluate the model of a run on another data set, with probes and neighbours from its training part."""

    data_dir: str | Path | None
    seed: int
    report: bool
    quiet: bool
    classes: Sequence[str] | None
    skip_bad_images: bool
    size: int | None
    recipe: str | None
    out: str | Path | None


class DeviceKeywords(TypedDict, total=False):
    """The device that computes."""

    device: str


class ReproduceKeywords(DeviceKeywords, total=False):
    """Show our values of the paper's tables and figures beside the paper's."""

    scale: Literal["paper", "cpu"]
    recipes: Sequence[str] | None
    train: bool
    search: bool
    batch_size: int | None
    data_dir: str | Path | None
    threads: int | None
    out: str | Path | None
    quiet: bool
