"""The loss over sets in blocks of anchors, value and gradient together: nothing n x m is stored.

For each block: similarities to all keys (one GEMM), the terms of `set_terms.py`, and the products of their derivative
with keys and anchors (two GEMMs).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sincere import host
from sincere.errors import UnsupportedError
from sincere.losses.kernels.block_sizes import block_rows, cache_bytes
from sincere.losses.kernels.normalize import unit_rows, unit_rows_backward
from sincere.losses.kernels.result import refuse_second_derivative
from sincere.losses.kernels.set_terms import Block, set_terms
from sincere.losses.pairs import Contrast
from sincere.shapes import KeyRows, PerAnchor, Rows

REFUSAL = 'the loss over sets has no second derivative; sincere_loss has one, with kernel="dense"'


def weighted_set_losses(
    rows: Rows,
    keys: KeyRows | None,
    temperature: Tensor,
    contrast: Contrast,
    normalize: bool,
    method: str,
    weights: PerAnchor | None,
) -> Tensor:
    """Return weights . losses, or each anchor's loss where there are no weights."""
    differentiable = [x for x in (rows, keys, temperature) if x is not None and x.requires_grad]
    gradient = torch.is_grad_enabled() and bool(differentiable)
    # A compiler would unroll the loop over blocks: it runs as it is, and the graph breaks once around it.
    run = torch.compiler.disable(_run) if torch.compiler.is_compiling() else _run
    losses: Tensor = run(rows, keys, temperature, contrast, normalize, method, weights, gradient)
    return losses


def _run(*arguments: Any) -> Tensor:
    try:
        losses: Tensor = SetLosses.apply(*arguments)
    except RuntimeError as error:
        if "setup_context" in str(error):  # what torch says inside torch.func's transformations
            raise UnsupportedError("the loss over sets does not run under torch.func; use sincere_loss") from error
        raise
    return losses


class SetLosses(torch.autograd.Function):
    """Losses of each anchor, or their weighted sum.

    With `weights` the gradient is computed with the value and kept until backward, which only scales it. Without,
    each anchor's loss is returned and backward computes the blocks again, because it must know the upstream gradient
    first.

    `wants_gradient` comes from outside: inside, no_grad and grad mode look the same.
    """

    @staticmethod
    def forward(
        ctx: Any,
        embeddings: Rows,
        keys: KeyRows | None,
        temperature: Tensor,
        contrast: Contrast,
        normalize: bool,
        method: str,
        weights: PerAnchor | None,
        wants_gradient: bool,
    ) -> Tensor:
        """Return the losses (n,), or weights . losses with the gradient at hand."""
        ctx.contrast, ctx.normalize, ctx.method = contrast, normalize, method
        now = weights if wants_gradient else None
        losses, *gradients = _differentiate(embeddings, keys, temperature, contrast, normalize, method, now)
        ctx.save_for_backward(embeddings, keys, temperature, *gradients)
        return losses if weights is None else torch.dot(losses, weights)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients for embeddings, keys and temperature."""
        embeddings, keys, temperature, *kept = ctx.saved_tensors
        inputs = (embeddings, keys, temperature)
        with torch.no_grad():
            if kept[0] is None:
                problem = (embeddings, keys, temperature, ctx.contrast, ctx.normalize, ctx.method)
                _, *gradients = _differentiate(*problem, upstream)
            else:
                gradients = [None if g is None else g * upstream for g in kept]
        results = [
            g.to(given) if need and g is not None else None
            for g, given, need in zip(gradients, inputs, ctx.needs_input_grad[:3], strict=True)
        ]
        results = [refuse_second_derivative(g, REFUSAL, *inputs) for g in results]
        return (*results, None, None, None, None, None)


def _differentiate(
    embeddings: Rows,
    keys: KeyRows | None,
    temperature: Tensor,
    contrast: Contrast,
    normalize: bool,
    method: str,
    weights: PerAnchor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Return the losses and, with weights, the gradients of weights . losses for embeddings, keys, temperature."""
    with torch.autocast(embeddings.device.type, enabled=False):
        z, lengths = unit_rows(embeddings) if normalize else (embeddings, None)
        k, key_lengths = (z, lengths) if keys is None else unit_rows(keys) if normalize else (keys, None)
        losses, d_z, d_k = set_block_losses(z, k, temperature.reciprocal(), contrast, method, weights)
        if d_z is None or d_k is None:
            return losses, None, None, None
        # sum_ij (d loss / d s_ij) s_ij, as s = z . k / temperature
        d_temperature = -torch.dot(d_z.flatten(), z.flatten()) / temperature.square()
        if keys is None:
            d_z.add_(d_k)
        d_z, d_k = d_z.div_(temperature), d_k.div_(temperature)
        d_z = d_z if lengths is None else unit_rows_backward(d_z, z, lengths)
        if keys is None:
            return losses, d_z, None, d_temperature
        return losses, d_z, d_k if key_lengths is None else unit_rows_backward(d_k, k, key_lengths), d_temperature


def set_block_losses(
    z: Rows,
    keys: KeyRows,
    inverse_temperature: Tensor,
    contrast: Contrast,
    method: str,
    weights: PerAnchor | None,
    *,
    rows_per_block: int | None = None,
) -> tuple[PerAnchor, Rows | None, KeyRows | None]:
    """Return the losses and, with weights, temperature times the gradient of weights . losses for anchors and keys."""
    finder = _PositiveFinder(contrast)
    losses = torch.zeros_like(contrast.positive_counts)
    d_z = None if weights is None else torch.empty_like(z)
    d_k = None if weights is None else torch.zeros_like(keys)
    for rows in finder.order.split(rows_per_block or _block_rows(z, keys)):
        anchors = z[rows]
        s = torch.mm(anchors * inverse_temperature, keys.T)
        block, columns = finder.make_block(s, rows)
        terms = set_terms(block, method, with_derivative=weights is not None)
        k = contrast.positive_counts[rows]
        scale = torch.where((k > 0) & (k < block.n_items[:, 0]), 1 / k, 0.0)
        losses[rows] = terms.losses * scale
        if weights is None or d_z is None or d_k is None or terms.push is None or terms.pull is None:
            continue
        # Padding has no pull, and a positive no push: each entry of the sum has one part at most.
        coefficients = terms.push.scatter_add_(1, columns, terms.pull.neg_())
        scale = (scale * weights[rows])[:, None]
        d_z[rows] = torch.mm(coefficients, keys).mul_(scale)
        d_k.addmm_(coefficients.T, anchors * scale)
    return losses, d_z, d_k


def _block_rows(z: Rows, keys: KeyRows) -> int:
    """Return how many anchors to take at once; on the CPU, four matrices of a block fit into the level-2 cache."""
    rows = block_rows(len(z), len(keys), z.element_size(), z.device)
    if z.device.type != "cpu":
        return rows
    return min(rows, max(64, cache_bytes(2) // (4 * len(keys) * z.element_size())))


class _PositiveFinder:
    """The columns of each anchor's positives, padded to one width per block.

    On the CPU, anchors are put in order of the number of their positives, so that a block needs little padding and,
    with method "auto", one form of the loss. Elsewhere the numbers would have to be read back, and every key has a
    column.
    """

    def __init__(self, contrast: Contrast) -> None:
        self.contrast = contrast
        counts, n_keys = contrast.positive_counts, contrast.n_keys
        self.reads_back = host.reads_back(counts.device)
        self.order = counts.argsort(stable=True) if self.reads_back else torch.arange(len(counts), device=counts.device)
        key_ids, self.by_class = contrast.key_ids.sort(stable=True)
        self.start = torch.searchsorted(key_ids, contrast.ids)
        self.size = torch.searchsorted(key_ids, contrast.ids, right=True) - self.start
        self.start.clamp_max_(n_keys - 1)
        self.ignored = None if contrast.key_bias is None else contrast.key_bias == -torch.inf

    def make_block(self, s: Tensor, rows: Tensor) -> tuple[Block, Tensor]:
        """Return the items of some anchors, and the columns of their positives (rows, width); overwrites `s`."""
        start, size, itself = self.start[rows, None], self.size[rows, None], self.contrast.self_index[rows, None]
        n_items = self.contrast.n_keys - (itself >= 0).to(s.dtype)
        if self.ignored is not None:
            n_items = n_items - self.ignored.sum()
        ranges = {"centre": s.mean(dim=1, keepdim=True)}
        ranges |= {"low": s.amin(dim=1, keepdim=True), "high": s.amax(dim=1, keepdim=True)}

        width = max(1, int(size.max())) if self.reads_back else self.contrast.n_keys
        offsets = torch.arange(width, device=s.device)
        # Padding repeats the first member of the class: no negative either.
        columns = self.by_class[torch.where(offsets < size, start + offsets, start)]
        positives = s.gather(1, columns).neg_().masked_fill_((offsets >= size) | (columns == itself), -torch.inf)
        s.scatter_(1, columns, -torch.inf)
        if self.ignored is not None:
            s.masked_fill_(self.ignored, -torch.inf)
        s.scatter_(1, torch.where(itself < 0, columns[:, :1], itself), -torch.inf)
        block = Block(s, positives, self.contrast.positive_counts[rows, None], n_items, **ranges)
        return block, columns
