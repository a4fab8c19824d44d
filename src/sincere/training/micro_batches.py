"""Exact gradient of a batch that does not fit into memory: the network sees micro-batches, the loss the whole batch.

This is gradient caching (Gao et al. 2021, https://arxiv.org/abs/2101.06983). First pass: embeddings of all
micro-batches, without a graph; the loss of all of them gives its gradient with respect to the embeddings. Second pass:
each micro-batch again, with a graph, through which that gradient is backpropagated. Memory grows with the micro-batch;
the embeddings of the batch and the loss need little. The cost is a second forward pass.

What depends on the batch inside the network depends on the micro-batch instead: batch norm takes its statistics from
it; group norm has none. Random numbers inside the network, such as those of dropout, are the same in both passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from lightning_fabric import Fabric
from lightning_fabric.wrappers import _FabricModule
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

Pieces = Callable[[], Iterable[Tensor]]
Loss = Callable[[Tensor], Tensor]


def backward_in_micro_batches(
    fabric: Fabric, model: _FabricModule, pieces: Pieces, loss: Loss
) -> tuple[Tensor, Tensor]:
    """Add the gradient of a batch to the parameters; return its loss and its embeddings, detached.

    Args:
        fabric: Precision, and the processes to average over.
        model: Maps images to embeddings; wrapped by Fabric.
        pieces: Returns the images of the batch in micro-batches, the same ones on each call.
        loss: Maps the embeddings of all micro-batches, a row for each image, to a loss.
    """
    with torch.no_grad(), _preserved_rng(fabric.device), _frozen_running_statistics(model):
        embeddings = torch.cat([model(images) for images in pieces()])
    embeddings.requires_grad_(True)
    with torch.enable_grad():
        value = loss(embeddings)
    (gradient,) = torch.autograd.grad(value, embeddings)
    start = 0
    for images, is_last in _with_last(pieces()):
        rows = slice(start, start + len(images))
        start = rows.stop
        with fabric.no_backward_sync(model, enabled=not is_last):
            fabric.backward((model(images) * gradient[rows]).sum())
    return value.detach(), embeddings.detach()


def _with_last(items: Iterable[Tensor]) -> Iterator[tuple[Tensor, bool]]:
    """Yield each item and whether it is the last one."""
    iterator = iter(items)
    current = next(iterator)
    for following in iterator:
        yield current, False
        current = following
    yield current, True


@contextmanager
def _preserved_rng(device: torch.device) -> Iterator[None]:
    """Restore the state of the random generators, so that the second pass has the random numbers of the first."""
    devices = [device.index or 0] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices, device_type=device.type if devices else "cuda"):
        yield


@contextmanager
def _frozen_running_statistics(model: nn.Module) -> Iterator[None]:
    """Keep running statistics of batch norms unchanged: each micro-batch counts once, in the second pass."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
