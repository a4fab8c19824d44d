"""Checks of the arguments of the metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from sincere import checks
from sincere.errors import DataError, InputValueError


def check_search(caller: str, queries: Tensor, references: Tensor, ks: Sequence[int], leave_out: Tensor | None) -> None:
    """Check that embeddings are finite and that there are enough references for every k.

    Raises:
        DataError: An embedding is not finite.
        InputValueError: A k is larger than the number of references.
    """
    for name, embeddings in (("queries", queries), ("references", references)):
        if not math.isfinite(float(embeddings.sum())):
            row = int((~torch.isfinite(embeddings).all(dim=1)).nonzero()[0, 0])
            raise DataError(f"{caller}: {name} must be finite; row {row} is not")
    available = len(references) - (leave_out is not None)
    for k in ks:
        if not 1 <= k <= available:
            raise InputValueError(checks.wording(caller, f"k must be 1 to {available}, the number of references", k))
