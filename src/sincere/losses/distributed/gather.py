"""The loss of a global batch with the rows of all processes gathered in each: one exchange, then a kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from sincere.losses.distributed.collectives import GatherRows
from sincere.losses.distributed.global_batch import GlobalBatch
from sincere.losses.kernels.select import weighted_losses


def gathered_losses(
    rows: Tensor,
    temperature: Tensor,
    batch: GlobalBatch,
    normalize: bool,
    weights: Tensor | None,
    kernel: str,
    operand_dtype: torch.dtype | None = None,
) -> Tensor:
    """Return this process's share of weights . losses, or without weights the losses of its anchors.

    `weights` are those of every row of every process. Backward sums what all processes contribute to each row.
    """
    own = batch.own
    keys: Tensor = GatherRows.apply(rows, batch.sizes, batch.group)
    own_weights = None if weights is None else weights[own]
    contrast = batch.contrast.of_anchors(own)
    return weighted_losses(rows, keys, temperature, contrast, normalize, own_weights, kernel, operand_dtype)
