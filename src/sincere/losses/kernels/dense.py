"""The plain vectorised form: every n x m matrix in memory, gradients by autograd, of any order.

Time O(n m d), memory O(n m). The right choice for small batches and for second derivatives.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sincere.losses.kernels.normalize import unit_rows
from sincere.losses.kernels.pair_terms import pair_losses
from sincere.losses.pairs import Contrast
from sincere.shapes import KeyRows, PerAnchor, Rows


def dense_losses(
    embeddings: Rows,
    keys: KeyRows | None,
    temperature: Tensor,
    contrast: Contrast,
    *,
    normalize: bool,
) -> PerAnchor:
    """Return the loss of each anchor, 0 where it has no positive."""
    formula = contrast.formula
    z = unit_rows(embeddings)[0] if normalize else embeddings
    k = z if keys is None else unit_rows(keys)[0] if normalize else keys
    s = z @ k.T / temperature  # (n, m)
    same = contrast.ids[:, None] == contrast.key_ids
    itself = contrast.self_index[:, None] == torch.arange(len(k), device=k.device)
    positives = same & ~itself
    left_out = itself if formula.positives_in_denominator else same | itself
    # A finite floor instead of -inf: an empty denominator then has zero, not undefined, derivatives of any order.
    floor = torch.finfo(s.dtype).min / 4
    log_denominator = s.masked_fill(left_out, floor).logsumexp(dim=1, keepdim=True)
    pairs = pair_losses(s, log_denominator, formula)
    return pairs.masked_fill(~positives, 0.0).sum(dim=1) / contrast.positive_counts.clamp_min(1.0)
