"""Value and gradient in one pass over blocks of rows: the form for separate keys and for any temperature.

For each block of anchors: similarities to all keys (one GEMM), row statistics with the row's own maximum, the block of
dLoss/ds, and its products with keys and anchors (two GEMMs). Only one block of similarities exists at a time.

Each row of dLoss/ds is k_i (E_ij - total_i r_ij): E_ij = e^{s_ij - max_i} over the denominator, total_i its row sum,
r_ip the share of positive p in the attraction (its sigmoid over their sum; 1/|P| for SupCon), and k_i a factor per
row, which is applied to the small (rows, d) side of the products instead of the block.

That is for classes and the plain formulas; label sets and all other formulas go by `row_terms`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sincere import host
from sincere.losses.kernels.block_sizes import block_rows
from sincere.losses.kernels.pair_terms import excess_threshold, mean_losses, sum_softplus, to_pulls
from sincere.losses.kernels.result import LossAndGradient
from sincere.losses.kernels.row_terms import row_terms
from sincere.losses.kernels.set_rows import set_rows
from sincere.losses.label_sets import by_column
from sincere.losses.pairs import Contrast
from sincere.shapes import KeyRows, PerAnchor, Rows

WEIGHTED_ROWS = 64  # anchors in a block on the CPU: of 32, 64, 128 and 256 the fastest with label sets, m = 8,192


def row_block_losses(
    z: Rows,
    keys: KeyRows | None,
    inverse_temperature: Tensor,
    contrast: Contrast,
    weights: PerAnchor | None,
    *,
    with_key_gradient: bool = True,
    rows_per_block: int | None = None,
    is_small: bool = False,
) -> LossAndGradient:
    """Return the losses of anchors against keys (None: the anchors) and, with `weights`, the gradient of their sum.

    With classes, both sides are sorted by class first on the CPU, so that a block's positives are contiguous and the
    work on pairs of one class touches only them. On other devices that would need their positions read back, and the
    work runs under a mask instead.
    """
    if not contrast.has_classes:
        return _weighted_row_losses(
            z,
            keys,
            inverse_temperature,
            contrast,
            weights,
            with_key_gradient,
            rows_per_block=rows_per_block,
            is_small=is_small,
        )
    order = _Sorted(contrast, sort=host.reads_back(z.device))
    z = order.anchors(z)
    k = z if keys is None else order.keys(keys)
    losses, log_denominators = torch.empty_like(contrast.positive_counts), torch.empty_like(contrast.positive_counts)
    d_z = None if weights is None else torch.empty_like(z)
    d_k = None if weights is None or not (keys is None or with_key_gradient) else torch.zeros_like(k)
    step = rows_per_block or block_rows(len(z), len(k), z.element_size(), z.device)
    similarities = z.new_empty(step, len(k))
    for start in range(0, len(z), step):
        block = slice(start, min(start + step, len(z)))
        s = _similarities(z[block] * inverse_temperature, k, order.key_bias, similarities)
        statistics = _Block(s, order, block)
        losses[block], log_denominators[block] = statistics.losses, statistics.log_denominator[:, 0]
        if weights is None or d_z is None:
            continue
        pull = statistics.to_gradient(weights[order.rows[block]])  # (rows, 1)
        torch.mm(s, k, out=d_z[block])
        d_z[block].mul_(pull)
        if d_k is not None:
            d_k.addmm_(s.T, z[block] * pull)
        del statistics  # before the next one is made
    losses, log_denominators = order.anchors_back(losses), order.anchors_back(log_denominators)
    if d_z is None:
        return LossAndGradient(losses, log_denominators)
    del similarities
    similarity_gradient = torch.dot(d_z.flatten(), z.flatten()) * inverse_temperature
    if keys is None and d_k is not None:
        d_z, d_k = d_z.add_(d_k), None
    d_k = None if d_k is None else order.keys_back(d_k)
    return LossAndGradient(losses, log_denominators, order.anchors_back(d_z), d_k, similarity_gradient)


def _weighted_row_losses(
    z: Rows,
    keys: KeyRows | None,
    inverse_temperature: Tensor,
    contrast: Contrast,
    weights: PerAnchor | None,
    with_key_gradient: bool,
    *,
    rows_per_block: int | None,
    is_small: bool,
) -> LossAndGradient:
    """Return the same for label sets and for the other formulas, in the order in which rows were given."""
    sets = contrast.label_sets
    few_passes = is_small and contrast.formula.is_plain and sets is not None and not sets.soft
    few_passes = few_passes and contrast.key_bias is None
    k = z if keys is None else keys
    losses, log_denominators = torch.empty_like(contrast.positive_counts), torch.empty_like(contrast.positive_counts)
    d_z = None if weights is None else torch.empty_like(z)
    d_k = None if weights is None or not (keys is None or with_key_gradient) else torch.zeros_like(k)
    at_limit = z.new_zeros(())  # derivative at the denominators that depend on the temperature alone
    step = rows_per_block or block_rows(len(z), len(k), z.element_size(), z.device)
    if z.device.type == "cpu":
        step = min(step, WEIGHTED_ROWS)
    if few_passes:
        buffers = z.new_empty(3, step, len(k))
    similarities, columns = z.new_empty(step, len(k)), by_column(k)
    for start in range(0, len(z), step):
        block = slice(start, min(start + step, len(z)))
        s = _similarities(z[block] * inverse_temperature, columns, contrast.key_bias, similarities)
        if few_passes:
            rows = set_rows(s, contrast.of_anchors(block), buffers)
            losses[block], log_denominators[block] = rows.losses, rows.log_denominators
            if weights is not None and d_z is not None:
                factors = rows.factors * weights[block, None]
                torch.mm(rows.coefficients, k, out=d_z[block]).mul_(factors)
                if d_k is not None:
                    d_k.addmm_(rows.coefficients.T, z[block] * factors)
            continue
        terms = row_terms(s, contrast.of_anchors(block), inverse_temperature)
        losses[block], log_denominators[block] = terms.losses, terms.log_denominators
        if weights is None or d_z is None:
            continue
        push = terms.push * weights[block, None]
        coefficients = terms.pushed.mul_(push).sub_(terms.pulls.mul_(weights[block, None]))
        torch.mm(coefficients, k, out=d_z[block])
        if d_k is not None:
            d_k.addmm_(coefficients.T, z[block])
        if terms.at_limit is not None:
            at_limit -= (push * terms.at_limit).sum()
        del terms, coefficients  # before the next ones are made
    if d_z is None:
        return LossAndGradient(losses, log_denominators)
    similarity_gradient = (torch.dot(d_z.flatten(), z.flatten()) + at_limit) * inverse_temperature
    if keys is None and d_k is not None:
        d_z, d_k = d_z.add_(d_k), None
    return LossAndGradient(losses, log_denominators, d_z, d_k, similarity_gradient)


def _similarities(scaled: Rows, keys: KeyRows, key_bias: Tensor | None, out: Tensor) -> Tensor:
    """Return the products of scaled anchors with all keys, and the logarithms of key weights, written to `out`."""
    out = out[: len(scaled)]
    if key_bias is None:
        return torch.mm(scaled, keys.T, out=out)
    return torch.addmm(key_bias, scaled, keys.T, out=out)


class _Sorted:
    """A contrast with anchors and keys in class order, the way there and back; or as it was given."""

    def __init__(self, contrast: Contrast, *, sort: bool) -> None:
        self.sort, self.formula = sort, contrast.formula
        self.ids, self.key_ids, self.self_index = contrast.ids, contrast.key_ids, contrast.self_index
        self.rows = torch.arange(len(self.ids), device=self.ids.device)
        self.counts = contrast.positive_counts
        self.key_bias = contrast.key_bias
        if not sort:
            return
        self.ids, self.rows = contrast.ids.sort(stable=True)
        self.key_ids, self.key_rows = contrast.key_ids.sort(stable=True)
        self.counts = contrast.positive_counts[self.rows]
        self.key_bias = None if contrast.key_bias is None else contrast.key_bias[self.key_rows]
        position = torch.empty_like(self.key_rows)
        position[self.key_rows] = torch.arange(len(position), device=position.device)
        original = contrast.self_index[self.rows]
        self.self_index = torch.where(original < 0, original, position[original.clamp_min(0)])

    def positive_columns(self, block: slice) -> slice:
        """Return a range of keys that holds all positives of a block of anchors."""
        if not self.sort:
            return slice(0, len(self.key_ids))
        first, last = self.ids[block.start], self.ids[block.stop - 1]
        low = torch.searchsorted(self.key_ids, first)
        high = torch.searchsorted(self.key_ids, last, right=True)
        return slice(int(low), int(high))

    def anchors(self, values: Tensor) -> Tensor:
        """Return per-anchor values in this order."""
        return values.index_select(0, self.rows) if self.sort else values

    def keys(self, values: Tensor) -> Tensor:
        """Return per-key values in this order."""
        return values.index_select(0, self.key_rows) if self.sort else values

    def anchors_back(self, values: Tensor) -> Tensor:
        """Return per-anchor values in the caller's order."""
        return torch.empty_like(values).index_copy_(0, self.rows, values) if self.sort else values

    def keys_back(self, values: Tensor) -> Tensor:
        """Return per-key values in the caller's order."""
        return torch.empty_like(values).index_copy_(0, self.key_rows, values) if self.sort else values


class _Block:
    """Statistics of one block of similarities `s` (rows, m), which it overwrites step by step."""

    def __init__(self, s: Tensor, order: _Sorted, block: slice) -> None:
        formula = order.formula
        self.s = s
        self.columns = order.positive_columns(block)
        counts = order.counts[block]
        _leave_out(s, order.self_index[block])

        near = s[:, self.columns]
        same = order.ids[block, None] == order.key_ids[self.columns]
        positives = same & (near != -torch.inf)
        near_positives = near.masked_fill(~positives, torch.inf)  # +inf: no loss and no pull below
        if not formula.positives_in_denominator:
            near.masked_fill_(same, -torch.inf)

        largest = s.amax(dim=1, keepdim=True)
        largest.masked_fill_(largest == -torch.inf, 0.0)  # nothing in the denominator
        s.sub_(largest).exp_()
        self.total = s.sum(dim=1, keepdim=True)
        self.log_denominator = log_denominator = largest + self.total.log()  # (rows, 1)

        if formula.positives_in_denominator:
            self.pulls = positives.to(s.dtype)
            sums = near_positives.masked_fill_(~positives, 0.0).sum(dim=1)
        else:
            excess = near_positives.sub_(excess_threshold(log_denominator, formula))
            sums = sum_softplus(excess)
            self.pulls = to_pulls(excess)
        self.losses = mean_losses(sums, counts, log_denominator[:, 0], formula)
        self.counts = counts

    def to_gradient(self, weights: Tensor) -> Tensor:
        """Turn `s` into dLoss/ds up to a factor per row, and return that factor (rows, 1)."""
        pull = self.pulls.sum(dim=1, keepdim=True)
        share = self.pulls.div_(pull.clamp_min(torch.finfo(pull.dtype).tiny))
        self.s[:, self.columns].sub_(share.mul_(self.total))
        scale = torch.where(self.counts > 0, weights / self.counts, 0.0)[:, None]
        return torch.where(self.total == 0, 0.0, scale * pull / self.total)


def _leave_out(s: Tensor, self_index: Tensor) -> None:
    """Set each anchor's similarity to itself to -inf, in place."""
    column = self_index.clamp_min(0)[:, None]
    kept = s.gather(1, column)
    s.scatter_(1, column, kept.masked_fill_(self_index[:, None] >= 0, -torch.inf))
