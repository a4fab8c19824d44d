"""Exact gradient of a batch that does not fit into memory: the network sees micro-batches, the loss the whole batch.

This is gradient caching (Gao et al. 2021, https://arxiv.org/abs/2101.06983). First pass: embeddings of all
micro-batches, without a graph; the loss of all of them gives its gradient with respect to the embeddings. Second pass:
each micro-batch again, with a graph, through which that gradient is backpropagated. Memory grows with the micro-batch;
the embeddings of the batch and the loss need little. The cost is a second forward pass.

What depends on the batch inside the network depends on the micro-batch instead: batch norm takes its statistics from
it; group norm has none. Random numbers inside the network, such as those of dropout, are the same in both passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import get_device_states, set_device_states

from sincere import checks
from sincere.errors import InputTypeError, InputValueError

Inputs: TypeAlias = Tensor | Mapping[str, Tensor]
Loss: TypeAlias = Callable[[Tensor], Tensor]


def cached_backward(
    model: nn.Module,
    inputs: Inputs,
    loss: Loss,
    *,
    micro_batch: int,
    scale: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Add the gradient of a whole batch to the parameters, in the memory of a micro-batch, and return its loss.

    It takes the place of `loss(model(inputs)).backward()`, with the same gradients for any model whose rows do not
    depend on each other: no batch norm, whose statistics are those of a micro-batch. Random numbers inside the model,
    such as those of dropout, are the same in both of its passes. Paper: https://arxiv.org/abs/2101.06983.

    Args:
        model: Maps rows of the inputs to embeddings, a row for each. With DistributedDataParallel the gradients are
            averaged once, after the last micro-batch.
        inputs: Tensor (n, ...), or tensors (n, ...) by the names of the model's keyword arguments.
        loss: Maps the embeddings of all n rows to a loss. They are float32 where autocast gives less.
        micro_batch: Number of rows that go through the model at once.
        scale: What the loss is scaled with before it is backpropagated: `scaler.scale` of a `torch.amp.GradScaler`.

    Returns:
        The loss, not scaled, without a graph.

    Raises:
        InputTypeError, InputValueError: An argument is wrong, or the model or the loss returns something else.

    Example:
        >>> from sincere import sincere_loss
        >>> model, labels = nn.Linear(3, 2), torch.arange(8) % 2
        >>> value = cached_backward(model, torch.randn(8, 3), lambda z: sincere_loss(z, labels), micro_batch=3)
        >>> value.shape, model.weight.grad.shape
        (torch.Size([]), torch.Size([2, 3]))
    """
    caller = "cached_backward"
    size = checks.count(caller, "micro_batch", micro_batch, least=1)
    n = _count_rows(caller, inputs)

    def pieces() -> Iterator[Inputs]:
        for start in range(0, n, size):
            rows = slice(start, start + size)
            if isinstance(inputs, Tensor):
                yield inputs[rows]
            else:
                yield {name: value[rows] for name, value in inputs.items()}

    def embed(piece: Inputs) -> Tensor:
        embeddings: Tensor = model(piece) if isinstance(piece, Tensor) else model(**piece)
        expected = len(piece) if isinstance(piece, Tensor) else len(next(iter(piece.values())))
        if checks.tensor(caller, "the output of the model", embeddings).ndim == 0 or len(embeddings) != expected:
            requirement = f"the output of the model must have a row for each of {expected} inputs"
            raise InputValueError(checks.wording(caller, requirement, f"shape {checks.shape(embeddings)}"))
        return embeddings

    def checked_loss(embeddings: Tensor) -> Tensor:
        value = checks.tensor(caller, "the output of the loss", loss(embeddings))
        if value.numel() != 1 or not value.requires_grad:
            got = f"shape {checks.shape(value)}" if value.numel() != 1 else "one without a gradient"
            requirement = "the output of the loss must be a number with a gradient"
            raise InputValueError(checks.wording(caller, requirement, got))
        return value.reshape(())

    def backward(value: Tensor) -> None:
        (value if scale is None else scale(value)).backward()

    without_sync = getattr(model, "no_sync", nullcontext)  # of DistributedDataParallel
    value, _ = backward_in_pieces(
        model, pieces, checked_loss, embed=embed, backward=backward, without_sync=without_sync
    )
    return value


def backward_in_pieces(
    model: nn.Module,
    pieces: Callable[[], Iterable[Any]],
    loss: Loss,
    *,
    embed: Callable[[Any], Tensor],
    backward: Callable[[Tensor], None],
    without_sync: Callable[[], AbstractContextManager[Any]],
) -> tuple[Tensor, Tensor]:
    """Add the gradient of a batch to the parameters; return its loss and its embeddings, detached.

    Args:
        model: The network.
        pieces: Returns the inputs in micro-batches, the same ones on each call.
        loss: Maps the embeddings of all micro-batches to a loss.
        embed: Maps a micro-batch to its embeddings.
        backward: Backpropagates a number.
        without_sync: Returns a context in which processes do not average their gradients.
    """
    rows: list[Tensor] = []
    replays: list[Callable[[], None]] = []
    with torch.no_grad(), _frozen_running_statistics(model):
        for piece in pieces():
            replays.append(_random_state(piece))
            rows.append(embed(piece))
    torch.clear_autocast_cache()  # weights converted without a graph, which older versions of torch would take again
    lengths = [len(part) for part in rows]
    embeddings = torch.cat(rows)
    embeddings = embeddings.to(torch.promote_types(embeddings.dtype, torch.float32)).requires_grad_()
    del rows
    with torch.enable_grad():
        value = loss(embeddings)
    # Autocast is for forward passes: the caller's would compute the gradient of a loss in float32 in half precision.
    without_autocast = partial(torch.autocast, embeddings.device.type, enabled=False)
    with without_autocast():
        own = [leaf for leaf in _leaves(value) if leaf is not embeddings]  # such as a learned temperature
        gradient, *own_gradients = torch.autograd.grad(value, [embeddings, *own], materialize_grads=True)
    after = _random_state(embeddings)
    for number, (piece, part, replay) in enumerate(zip(pieces(), gradient.split(lengths), replays, strict=True), 1):
        replay()
        with nullcontext() if number == len(lengths) else without_sync():
            output = embed(piece)
            with without_autocast():
                total = (output * part).sum()
                if number == len(lengths):  # with the last rows, so that processes average all gradients once
                    total = total + sum((leaf * slope).sum() for leaf, slope in zip(own, own_gradients, strict=True))
                backward(total)
    after()
    return value.detach(), embeddings.detach()


def _leaves(value: Tensor) -> list[Tensor]:
    """Return the tensors that a value was computed from and that collect gradients."""
    found, seen, rest = list[Tensor](), set[Any](), [value.grad_fn]
    while rest:
        node = rest.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        rest += [before for before, _ in node.next_functions]
    return found


def _count_rows(caller: str, inputs: Inputs) -> int:
    """Return the number of rows of all inputs, which must be the same."""
    if not isinstance(inputs, Tensor | Mapping):
        requirement = "inputs must be a torch.Tensor, or tensors by name"
        raise InputTypeError(checks.wording(caller, requirement, type(inputs).__name__))
    parts = [inputs] if isinstance(inputs, Tensor) else [checks.tensor(caller, "inputs", x) for x in inputs.values()]
    lengths = {len(part) if part.ndim else 0 for part in parts}
    if len(lengths) != 1 or 0 in lengths:
        shapes = ", ".join(str(checks.shape(part)) for part in parts) or "none"
        raise InputValueError(checks.wording(caller, "inputs must have the same number of rows, at least 1", shapes))
    return lengths.pop()


def _random_state(piece: Inputs) -> Callable[[], None]:
    """Return a function that sets the random generators of the CPU and of the piece's device as they are now."""
    tensors = (piece,) if isinstance(piece, Tensor) else tuple(piece.values())
    state, (devices, states) = torch.get_rng_state(), get_device_states(*tensors)
    devices_type = next((tensor.device.type for tensor in tensors if tensor.device.type != "cpu"), "cuda")

    def restore() -> None:
        torch.set_rng_state(state)
        set_device_states(devices, states, device_type=devices_type)

    return restore


@contextmanager
def _frozen_running_statistics(model: nn.Module) -> Iterator[None]:
    """Keep running statistics of batch norms unchanged: each micro-batch counts once, in the second pass."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and module.training]
    tracked = [norm.track_running_stats for norm in norms]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm, tracks in zip(norms, tracked, strict=True):
            norm.track_running_stats = tracks
