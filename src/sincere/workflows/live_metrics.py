"""What a run measures while it trains: reference levels of the loss, the repulsion meter, and 1-NN accuracy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from sincere.data.dataset import UNLABELLED, Samples
from sincere.evaluation.knn import accuracy_1nn
from sincere.loss_catalog import LOSSES
from sincere.losses.pairs import class_ids
from sincere.losses.reference_levels import loss_levels
from sincere.models.embedding import EmbeddingModel
from sincere.settings.requests import RunSettings
from sincere.theory.coefficients import repulsion_meter
from sincere.workflows.launch import embed_shared, share_statistics
from sincere.workflows.training_loss import TrainingLoss, terms_of_sum

LIVE_REFERENCES, LIVE_QUERIES = 5000, 2000  # images of a live 1-NN check: enough to see, cheap enough to repeat


def live_name(samples: Samples) -> str:
    """Return what live accuracies are called in the log: 1-NN accuracy, or how often the nearest shares a label."""
    return "knn1_shares_label" if samples.have_label_sets else "knn1"


def live_references(samples: Samples, *, seed: int) -> Samples:
    """Return the training images of a live 1-NN check, in random order: the first few are a fair sample, too."""
    if not samples.have_label_sets:  # those without a label are no neighbours
        samples = samples.subset(np.flatnonzero(samples.labels != UNLABELLED))
    return samples.subset(np.random.default_rng(seed).permutation(len(samples))[:LIVE_REFERENCES])


def batch_metrics(
    settings: RunSettings, loss: TrainingLoss, model: EmbeddingModel, outputs: Tensor, labels: Tensor
) -> dict[str, float]:
    """Return what a batch tells about the loss, for the log: terms, or reference levels and the repulsion meter."""
    name = settings.loss.name
    if not LOSSES[name].has_levels or labels.ndim == 2:  # of label sets, no levels are known
        sizes = {"dim": model.spec.dim, "n_classes": len(model.spec.class_names)}
        return terms_of_sum(settings, loss, outputs, labels, **sizes)
    hyper_parameters: dict[str, Any] = settings.hyper_parameters()
    n_views = outputs.shape[1]
    key_labels = None if loss.queue is None else loss.queue.filled()[1]
    levels = loss_levels(name, labels, n_views=n_views, key_labels=key_labels, **hyper_parameters)
    values = {"chance": levels.chance, "floor": levels.floor}
    if not LOSSES[name].needs_labels or not LOSSES[name].is_plain:
        return values
    rows, repeated = outputs.flatten(0, 1), class_ids(labels).repeat_interleave(n_views)
    meter = repulsion_meter(
        rows, repeated, loss=name, temperature=settings.loss.temperature, **hyper_parameters
    ).overall
    return {**values, "repulsion_share": meter.share, "repulsion_strength": meter.strength}


def live_accuracy(
    model: EmbeddingModel, references: Samples, held_out: Samples | None, fabric: Fabric
) -> dict[str, float]:
    """Return the 1-NN accuracy, by its name in the log: of what is held out, or of training images, each left out."""
    share_statistics(model, fabric)
    reference = embed_shared(model.embed, references, fabric, width=model.spec.dim)
    if held_out is not None:
        query = embed_shared(model.embed, held_out, fabric, width=model.spec.dim)
        accuracy = accuracy_1nn(query.embeddings, query.labels, reference.embeddings, reference.labels)
        return {f"{live_name(references)}_validation": accuracy}
    own = torch.arange(min(LIVE_QUERIES, len(references)), device=reference.labels.device)
    queries = reference.embeddings[own], reference.labels[own]
    accuracy = accuracy_1nn(*queries, reference.embeddings, reference.labels, leave_out=own)
    return {f"{live_name(references)}_train": accuracy}
