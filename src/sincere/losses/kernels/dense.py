"""The plain vectorised form: every n x m matrix in memory, gradients by autograd, of any order.

Time O(n m d), memory O(n m). The right choice for small batches and for second derivatives.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sincere.catalog import Formula
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
    s = similarities(embeddings, keys, temperature, normalize=normalize)
    same = contrast.ids[:, None] == contrast.key_ids
    itself = contrast.self_index[:, None] == torch.arange(s.shape[1], device=s.device)
    left_out = itself if formula.positives_in_denominator else same | itself
    return masked_losses(s, same & ~itself, left_out, contrast.positive_counts, formula)


def similarities(embeddings: Rows, keys: KeyRows | None, temperature: Tensor, *, normalize: bool) -> Tensor:
    """Return the similarity of each anchor and each key, divided by the temperature: (n, m)."""
    z = unit_rows(embeddings)[0] if normalize else embeddings
    k = z if keys is None else unit_rows(keys)[0] if normalize else keys
    return z @ k.T / temperature


def masked_losses(s: Tensor, positives: Tensor, left_out: Tensor, counts: PerAnchor, formula: Formula) -> PerAnchor:
    """Return the loss of each anchor, 0 where it has no positive, for any choice of pairs.

    Args:
        s: Similarities divided by the temperature (n, m).
        positives: Which pairs are positive (n, m).
        left_out: Which pairs are not in the denominator that the positives of an anchor share (n, m).
        counts: Number of positives of each anchor (n,).
        formula: The loss.
    """
    # A finite floor instead of -inf: an empty denominator then has zero, not undefined, derivatives of any order.
    floor = torch.finfo(s.dtype).min / 4
    log_denominator = s.masked_fill(left_out, floor).logsumexp(dim=1, keepdim=True)
    pairs = pair_losses(s, log_denominator, formula)
    return pairs.masked_fill(~positives, 0.0).sum(dim=1) / counts.clamp_min(1.0)
