"""What a model makes of a data set: embeddings and probe inputs of both parts."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sincere.data.dataset import Dataset, Samples
from sincere.data.loader import plain_batches
from sincere.errors import DataError
from sincere.evaluation.embed import EmbeddedImages, embed
from sincere.evaluation.model_outputs import PartOutputs
from sincere.models.embedding import EmbeddingModel
from sincere.records.reference import Reference
from sincere.workflows.arithmetic import Compute, choose_arithmetic


@dataclass(frozen=True, eq=False)
class EmbeddedData:
    """Both parts of a data set through a model.

    Attributes:
        train: Images that neighbours are searched among and probes are trained on.
        test: Images that metrics are about.
        unknown: Test images of classes that were left out of training; None without.
        compute: How the outputs were computed: pixels to embeddings and features, side by side.
        notes: What a reader should know.
    """

    train: PartOutputs
    test: PartOutputs
    unknown: PartOutputs | None
    compute: Compute
    notes: tuple[str, ...]


def embed_data(model: EmbeddingModel, data: Dataset, device: torch.device) -> EmbeddedData:
    """Embed the training and the test images, un-augmented and in order."""
    model.to(device)
    compute, notes = _arithmetic(model, data, device)
    train, test = (embed_part(compute, part, model, device) for part in (data.train, data.test))
    unknown = None if data.unknown is None else embed_part(compute, data.unknown, model, device)
    return EmbeddedData(train, test, unknown, compute, notes)


def reference_of(train: PartOutputs | EmbeddedImages, test: PartOutputs | EmbeddedImages, data: Dataset) -> Reference:
    """Return the embedded parts of a data set as the reference set of its run."""
    arrays = (train.embeddings, train.labels, train.ids, test.embeddings)
    embeddings, labels, ids, held_out = (x.cpu().numpy() for x in arrays)
    return Reference(embeddings, labels, ids, data.class_names, held_out, data.train.texts)


def embed_part(compute: Compute, images: Samples, model: EmbeddingModel, device: torch.device) -> PartOutputs:
    """Return embeddings and features of some images."""
    embedded = embed(compute, plain_batches(images, device=device))
    outputs, dim = embedded.embeddings, model.spec.dim
    return PartOutputs(outputs[:, :dim].contiguous(), outputs[:, dim:].contiguous(), embedded.labels, embedded.ids)


def check_finite(part: PartOutputs) -> None:
    """Raise if an output is not finite.

    Raises:
        DataError: With the first image that has one.
    """
    finite = torch.isfinite(part.embeddings).all(dim=1) & torch.isfinite(part.features).all(dim=1)
    if not bool(finite.all()):
        remedy = "its weights are damaged or its training diverged: train again with a lower --learning-rate"
        raise DataError(f"evaluate: the model's output for image {int(part.ids[~finite][0])} is not finite; {remedy}")


def _arithmetic(model: EmbeddingModel, data: Dataset, device: torch.device) -> tuple[Compute, tuple[str, ...]]:
    """Return how to compute outputs, and a note for the reader where there was a choice."""
    dim = model.spec.dim
    compute, chosen = choose_arithmetic(model.outputs, lambda outputs: outputs[:, :dim], data.test, device)
    notes = {
        None: (),
        "bfloat16": ("embeddings were computed in bfloat16, which left the metrics of a sample unchanged",),
        "float32": ("embeddings were computed in float32: bfloat16 changed the metrics of a sample",),
    }
    return compute, notes[chosen]
