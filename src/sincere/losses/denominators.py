"""The denominators of a batch and its same-class pairs, for instruments that look inside a loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sincere.loss_entry import Formula
from sincere.losses.inputs import check_inputs
from sincere.losses.kernels.block_sizes import tile_side
from sincere.losses.kernels.class_blocks import ClassBlock, class_blocks
from sincere.losses.kernels.normalize import unit_rows
from sincere.losses.kernels.tiled import tiled_losses
from sincere.shapes import AnchorIds, PerAnchor, Rows, Scalar


@dataclass(frozen=True, eq=False)
class Denominators:
    """A batch as a loss sees it.

    Attributes:
        z: The rows that are compared, of unit length with `normalize`.
        ids: Class of each row, numbered from 0; an unlabelled row is a class of its own.
        log_denominators: L_i, log-sum-exp over the negatives of row i; D_i over all other rows where positives are part
            of the denominator.
        inverse_temperature: 1 / tau.
    """

    z: Rows
    ids: AnchorIds
    log_denominators: PerAnchor
    inverse_temperature: Scalar

    def class_blocks(self) -> Iterator[ClassBlock]:
        """Yield the rows of each class in pairs of blocks; see `kernels.class_blocks`."""
        ids, order = self.ids.sort(stable=True)
        side = tile_side(len(ids), self.z.element_size()) // 2  # an instrument holds a few matrices of a block's size
        for block in class_blocks(ids, max(1, side)):
            anchors = order[block.anchors]
            yield replace(block, anchors=anchors, members=anchors if block.on_diagonal else order[block.members])


@torch.no_grad()
def log_denominators(
    caller: str, formula: Formula, embeddings: Tensor, labels: Tensor, *, temperature: float, normalize: bool
) -> Denominators:
    """Check a batch and compute its denominators, with nothing n x n stored."""
    inputs = check_inputs(caller, formula, embeddings, labels, temperature)
    with torch.autocast(inputs.rows.device.type, enabled=False):
        z = unit_rows(inputs.rows)[0] if normalize else inputs.rows
        result = tiled_losses(z, None, inputs.temperature, inputs.contrast, None)
    return Denominators(z, inputs.contrast.ids, result.log_denominators, inputs.temperature.reciprocal())
