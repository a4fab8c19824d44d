"""Value and gradient on a GPU, with nothing n x m in its memory: for classes and the plain formulas.

With anchors and keys sorted by class on the device:
1. Denominators: for each block of anchors an online log-sum-exp over all tiles of keys (1 GEMM).
2. Positives: only the tiles that hold pairs of one class; sums of softplus and of sigmoids.
3. Gradient rows: each tile again, times what the anchors' statistics make of it (2 GEMMs). In a batch against itself a
   row is anchor and key at once; for separate keys that take a gradient the same kernel runs a second time with the
   sides swapped (2 GEMMs more).
Three GEMMs for a batch with d <= 256. Above that a program has room for 256 dimensions of the gradient and computes
the similarities again for each part: 2 + ceil(d / 256) GEMMs.

Nothing waits for the device and nothing is added atomically, so results are the same each time, bit by bit.

No GPU was at hand: docs/reference/gpu.md says what was run, what was compiled and what was estimated.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sincere.losses.kernels.normalize import ScaledRows
from sincere.losses.kernels.pair_terms import mean_losses
from sincere.losses.kernels.result import LossAndGradient
from sincere.losses.kernels.triton_ops import Blocks, gradient_rows, log_denominators, positive_sums
from sincere.losses.pairs import Contrast
from sincere.shapes import PerAnchor

_EMPTY = -1e30  # for the logarithm of an empty denominator in the gradient: finite, and below every similarity


def triton_losses(
    z: ScaledRows,
    keys: ScaledRows | None,
    temperature: Tensor,
    contrast: Contrast,
    weights: PerAnchor | None,
    *,
    with_key_gradient: bool = False,
    blocks: Blocks | None = None,
) -> LossAndGradient:
    """Return the losses of anchors against keys (None: the anchors) and, with `weights`, the gradient of their sum.

    Args:
        z: The anchors, in float32, bfloat16 or float16.
        keys: The keys, in the same type.
        temperature: Divides the similarities.
        contrast: Classes and a plain formula.
        weights: Weight of each anchor's loss.
        with_key_gradient: Whether separate keys take a gradient.
        blocks: Block sizes in place of the chosen ones.
    """
    formula = contrast.formula
    anchors = _Sorted(z, contrast.ids)
    others = anchors if keys is None else _Sorted(keys, contrast.key_ids)
    key_bias = (
        others.scales.new_zeros(len(others.ids)) if contrast.key_bias is None else contrast.key_bias[others.order]
    )
    self_index = others.positions(contrast.self_index[anchors.order])
    inverse_temperature = z.scales.new_ones(1) * temperature.reciprocal()  # on the device, wherever it was
    options: dict[str, Any] = {
        "with_positives": formula.positives_in_denominator,
        "tf32": allows_tf32(),
        "blocks": list(blocks or ()),
    }
    ranges = anchors.class_ranges(others)
    problem = (anchors.values, anchors.scales, ranges, self_index, others.values, others.scales, key_bias)
    log_sums = log_denominators(*problem, inverse_temperature, keyed=keys is not None, **options)
    sums, pulls = positive_sums(*problem, inverse_temperature, log_sums, epsilon=formula.epsilon, **options)
    counts = contrast.positive_counts[anchors.order]
    losses = anchors.back(mean_losses(sums, counts, log_sums, formula))
    if weights is None:
        return LossAndGradient(losses, anchors.back(log_sums))

    pull = torch.where(counts > 0, weights[anchors.order] / counts, 0.0)
    push = pull * (counts if formula.positives_in_denominator else pulls)
    statistics = torch.stack([log_sums.clamp_min(_EMPTY), push, pull])  # (3, n)
    of_anchors = (anchors.values, anchors.scales, key_bias, ranges, self_index, statistics)
    to_keys = (others.values, others.scales, key_bias, self_index, statistics, inverse_temperature)
    options["epsilon"] = formula.epsilon
    d_z = gradient_rows(*of_anchors, *to_keys, as_anchors=True, as_keys=keys is None, **options)
    d_k = None
    if keys is not None and with_key_gradient:
        of_keys = (others.values, others.scales, key_bias, others.class_ranges(anchors), self_index, statistics)
        to_anchors = (anchors.values, anchors.scales, key_bias, self_index, statistics, inverse_temperature)
        d_k = others.back(gradient_rows(*of_keys, *to_anchors, as_anchors=False, as_keys=True, **options))
    d_z = anchors.back(d_z)
    total = torch.dot((d_z * z.scales[:, None]).flatten(), z.values.to(d_z.dtype).flatten())
    # In a batch against itself the gradient counts each pair twice.
    similarity_gradient = total * inverse_temperature[0] * (0.5 if keys is None else 1.0)
    return LossAndGradient(losses, anchors.back(log_sums), d_z, d_k, similarity_gradient)


def allows_tf32() -> bool:
    """Tell whether torch may compute products of float32 matrices in tf32."""
    matmul = torch.backends.cuda.matmul
    precision = getattr(matmul, "fp32_precision", None)  # since torch 2.9, which refuses to mix both settings
    return bool(matmul.allow_tf32) if precision is None else precision == "tf32"


class _Sorted:
    """Rows in class order, and the way back."""

    def __init__(self, rows: ScaledRows, ids: Tensor) -> None:
        self.ids, self.order = ids.sort(stable=True)
        self.values, self.scales = rows.values.index_select(0, self.order), rows.scales[self.order]

    def class_ranges(self, others: _Sorted) -> Tensor:
        """Return for each row the first of the others with its class, and the one after the last: (2, n)."""
        ends = [torch.searchsorted(others.ids, self.ids, right=right, out_int32=True) for right in (False, True)]
        return torch.stack(ends)

    def positions(self, index: Tensor) -> Tensor:
        """Return where rows of the caller's order are in this one; -1 stays -1."""
        places = torch.empty_like(self.order).index_copy_(
            0, self.order, torch.arange(len(self.order), device=self.order.device)
        )
        return torch.where(index < 0, index, places[index.clamp_min(0)]).to(torch.int32)

    def back(self, values: Tensor) -> Tensor:
        """Return values in the caller's order."""
        return torch.empty_like(values).index_copy_(0, self.order, values)
