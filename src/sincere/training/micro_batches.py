"""The exact gradient of a batch that does not fit into memory: the network sees it in pieces, the loss as a whole.

First pass: embeddings of all pieces, without a graph. The loss of all of them gives its gradient at the embeddings.
Second pass: each piece again, with a graph, and that gradient fed back through it. Memory grows with the piece; the
embeddings of the batch, and what the loss needs, are small beside it. It costs a second forward pass.

What depends on the batch inside the network depends on the piece: batch norms take their statistics from it (group
norms have none). Random numbers of the network, such as dropout's, are the same in both passes.
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


def backward_in_pieces(fabric: Fabric, model: _FabricModule, pieces: Pieces, loss: Loss) -> tuple[Tensor, Tensor]:
    """Put the gradient of the loss of all pieces into the parameters; return the loss and the embeddings, detached.

    Args:
        fabric: Precision, and the processes to average over.
        model: Images to embeddings, as Fabric wrapped it.
        pieces: Gives the batch's images piece by piece, the same each time it is called.
        loss: Embeddings of all pieces, one row for each image of the pieces, to a loss.
    """
    with torch.no_grad(), _random_numbers_kept(fabric.device), _running_statistics_kept(model):
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
def _random_numbers_kept(device: torch.device) -> Iterator[None]:
    """Give the second pass the random numbers of the first."""
    devices = [device.index or 0] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices, device_type=device.type if devices else "cuda"):
        yield


@contextmanager
def _running_statistics_kept(model: nn.Module) -> Iterator[None]:
    """Let batch norms count each piece once, in the second pass."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
