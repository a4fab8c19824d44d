"""What a model makes of the images of a data set: embeddings and features of both parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sincere.data.dataset import Dataset, ImageSet
from sincere.data.loader import plain_batches
from sincere.errors import DataError
from sincere.evaluation.embed import embed, half_precision_suffices
from sincere.evaluation.model_outputs import PartOutputs
from sincere.evaluation.projection import sample_positions
from sincere.models.embedding import EmbeddingModel
from sincere.workflows.hardware import bfloat16_gains

PRECISION_SAMPLE = 1000  # test images on which half precision is tried

Compute = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class EmbeddedData:
    """Both parts of a data set through a model.

    Attributes:
        train: Images that neighbours are searched among and probes are trained on.
        test: Images that metrics are about.
        compute: How the outputs were computed: pixels to embeddings and features, side by side.
        notes: What a reader should know.
    """

    train: PartOutputs
    test: PartOutputs
    compute: Compute
    notes: tuple[str, ...]


def embed_data(model: EmbeddingModel, data: Dataset, device: torch.device) -> EmbeddedData:
    """Embed the training and the test images, un-augmented and in order."""
    model.to(device)
    compute, notes = _precision(model, data, device)
    train, test = (embed_part(compute, part, model, device) for part in (data.train, data.test))
    return EmbeddedData(train, test, compute, notes)


def embed_part(compute: Compute, images: ImageSet, model: EmbeddingModel, device: torch.device) -> PartOutputs:
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


def _precision(model: EmbeddingModel, data: Dataset, device: torch.device) -> tuple[Compute, tuple[str, ...]]:
    """Return how to compute outputs: in bfloat16 where the hardware gains from it and the metrics stay the same."""
    if not bfloat16_gains(device) or len(data.test) < 2:
        return model.outputs, ()

    def half(images: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            return model.outputs(images)

    some = data.test.subset(sample_positions(len(data.test), most=PRECISION_SAMPLE))
    batch = next(plain_batches(some, batch_size=PRECISION_SAMPLE, device=device))
    dim = model.spec.dim

    def only_embeddings(compute: Compute) -> Compute:
        return lambda images: compute(images)[:, :dim]

    if half_precision_suffices(only_embeddings(model.outputs), only_embeddings(half), batch.images, batch.labels):
        return half, ("embeddings were computed in bfloat16, which left the metrics of a sample unchanged",)
    return model.outputs, ("embeddings were computed in float32: bfloat16 changed the metrics of a sample",)
