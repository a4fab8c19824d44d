"""What a model makes of a data set: embeddings and probe inputs of both parts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from lightning_fabric import Fabric

from sincere.data.dataset import Dataset, Samples
from sincere.data.loader import plain_batches
from sincere.errors import DataError
from sincere.evaluation.embed import EmbeddedImages, embed
from sincere.evaluation.model_outputs import PartOutputs
from sincere.models.embedding import EmbeddingModel
from sincere.records.reference import Reference
from sincere.workflows.launch import embed_shared


@dataclass(frozen=True, eq=False)
class EmbeddedData:
    """Both parts of a data set through a model.

    Attributes:
        train: Images that neighbours are searched among and probes are trained on.
        test: Images that metrics are about.
        unknown: Test images of classes that were left out of training; None without.
    """

    train: PartOutputs
    test: PartOutputs
    unknown: PartOutputs | None


def embed_data(
    model: EmbeddingModel, data: Dataset, device: torch.device, fabric: Fabric | None = None
) -> EmbeddedData:
    """Embed the training and the test images, un-augmented, in order, and in float32, as new images are embedded later.

    Args:
        model: The model.
        data: The data set.
        device: Where to compute.
        fabric: Processes that share the images, if there are several; each gets all outputs.
    """
    model.to(device).to(memory_format=torch.channels_last)  # convolutions take half the time of the contiguous layout
    train, test = (embed_part(model, part, device, fabric) for part in (data.train, data.test))
    unknown = None if data.unknown is None else embed_part(model, data.unknown, device, fabric)
    return EmbeddedData(train, test, unknown)


def reference_of(train: PartOutputs | EmbeddedImages, test: PartOutputs | EmbeddedImages, data: Dataset) -> Reference:
    """Return the embedded parts of a data set as the reference set of its run."""
    arrays = (train.embeddings, train.labels, train.ids, test.embeddings)
    embeddings, labels, ids, held_out = (x.cpu().numpy() for x in arrays)
    return Reference(embeddings, labels, ids, data.class_names, held_out, data.train.texts, data.train.digests)


def embed_part(
    model: EmbeddingModel, images: Samples, device: torch.device, fabric: Fabric | None = None
) -> PartOutputs:
    """Return embeddings and features of some images; see `embed_data`."""
    dim = model.spec.dim
    if fabric is None or fabric.world_size == 1:
        embedded = embed(model.outputs, plain_batches(images, device=device))
    else:
        first = images.items.gather(images.positions[:1]).to(device)
        embedded = embed_shared(model.outputs, images, fabric, width=model.outputs(first).shape[1])
    outputs = embedded.embeddings
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
