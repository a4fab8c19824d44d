"""The exact loss of a batch that is spread over processes: the same value and gradients as of one process on all of it.

Each process holds its own rows; the rows of all processes, in order of rank, are the keys.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from sincere.errors import UnsupportedError
from sincere.loss_entry import Formula
from sincere.losses.distributed.collectives import ScaledGradient, TotalLoss
from sincere.losses.distributed.gather import gathered_losses
from sincere.losses.distributed.global_batch import LabelledRows, share_batch
from sincere.losses.distributed.groups import default_as_none
from sincere.losses.distributed.ring import RingLosses
from sincere.losses.inputs import check_temperature, statistics_dtype
from sincere.losses.label_sets import LabelOptions
from sincere.losses.pairs import PLAIN_LABELS

GATHERED_BYTES = 2**30  # of keys and their gradient in each process, up to which "auto" gathers


def global_loss(
    caller: str,
    formula: Formula,
    embeddings: Tensor,
    labels: Tensor,
    temperature: float | Tensor,
    *,
    group: dist.ProcessGroup,
    exchange: str,
    normalize: bool,
    reduction: str,
    kernel: str,
    key_weights: Tensor | None = None,
    label_options: LabelOptions = PLAIN_LABELS,
    draw: int = 0,
) -> Tensor:
    """Return the loss of the batch of a group; the arguments are those of the public losses.

    Raises:
        InputTypeError, InputValueError: An argument is wrong, or processes disagree on d, views or type.
    """
    processes = default_as_none(group)
    labelled = LabelledRows(embeddings, labels, key_weights, label_options, draw)
    rows, batch = share_batch(caller, formula, labelled, processes)
    t = check_temperature(caller, temperature, statistics_dtype(embeddings.dtype)).to(rows.device)
    weights = batch.contrast.weights(reduction)
    if exchange == "auto":
        keys_bytes = 2 * sum(batch.sizes) * rows.shape[1] * rows.element_size()
        gathers = keys_bytes <= GATHERED_BYTES or kernel != "auto" or not formula.is_plain
        exchange = "gather" if gathers else "ring"
    if exchange == "ring" and not formula.is_plain:
        raise UnsupportedError(f'{caller}: exchange="ring" has no form of this loss; use exchange="gather"')
    with torch.autocast(rows.device.type, enabled=False):
        if exchange == "ring":
            wants_gradient = torch.is_grad_enabled() and (rows.requires_grad or t.requires_grad)
            result: Tensor = RingLosses.apply(rows, t, batch, normalize, weights, wants_gradient)
        else:
            result = gathered_losses(rows, t, batch, normalize, weights, kernel, embeddings.dtype)
        if reduction == "none":
            each: Tensor = ScaledGradient.apply(result, dist.get_world_size(processes))
            return each.view(embeddings.shape[:-1])
        total: Tensor = TotalLoss.apply(result, processes)
    return total
