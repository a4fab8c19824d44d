"""The gradient of a batch in micro-batches, as `sincere.cached_backward`, for a model that Fabric has wrapped."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from lightning_fabric import Fabric
from lightning_fabric.wrappers import _FabricModule
from torch import Tensor

from sincere.losses.gradient_cache import Loss, backward_in_pieces


def backward_in_micro_batches(
    fabric: Fabric, model: _FabricModule, pieces: Callable[[], Iterable[Tensor]], loss: Loss
) -> tuple[Tensor, Tensor]:
    """Add the gradient of a batch to the parameters; return its loss and its embeddings, detached.

    Args:
        fabric: Precision, and the processes to average over.
        model: Maps images to embeddings; wrapped by Fabric.
        pieces: Returns the images of the batch in micro-batches, the same ones on each call.
        loss: Maps the embeddings of all micro-batches, a row for each image, to a loss.
    """
    without_sync = partial(fabric.no_backward_sync, model)
    return backward_in_pieces(model, pieces, loss, embed=model, backward=fabric.backward, without_sync=without_sync)
