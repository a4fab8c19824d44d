"""The Triton kernels as operators of torch: their launch, and a fake implementation with devices and shapes alone.

The fake implementation serves FakeTensorMode and torch.compile and needs no Triton, which is imported when a kernel is
first launched.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sincere.losses.kernels.triton_support import is_interpreted

_OPERANDS = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
_PROGRAMS_PER_PROCESSOR = 2  # programs that a multiprocessor should have; with fewer, columns are split


class Blocks(NamedTuple):
    """How a kernel is cut into programs.

    Attributes:
        rows: Rows of a program.
        columns: Columns of a tile.
        chunk: Dimensions of the similarities that are multiplied at a time; a power of 2.
        out: Dimensions of the gradient that a program computes; a power of 2.
        warps: Warps of a program.
        stages: Tiles in flight.
        splits: Programs that share a block of rows; 0 for as many as occupy the device.
    """

    rows: int
    columns: int
    chunk: int
    out: int
    warps: int = 4
    stages: int = 2
    splits: int = 0


def choose_blocks(dtype: torch.dtype, d: int, *, tf32: bool, gradient: bool) -> Blocks:
    """Return the largest of the tried block sizes whose values stay in registers: see benchmarks/triton_compile.py.

    Args:
        dtype: Type of the rows.
        d: Their dimension.
        tf32: Whether products of float32 may be computed in tf32.
        gradient: For the gradient, or for the statistics.
    """
    whole = max(16, 1 << (d - 1).bit_length())  # d in one piece
    out = min(whole, 256)
    if dtype == torch.float32 and not tf32:
        # No tensor core computes this: products are unrolled, so the pieces are small.
        return Blocks(64 if out <= 128 or not gradient else 32, 32, 16, out, warps=8 if gradient else 4)
    if gradient:
        return Blocks(64, 32, whole if whole <= 128 else 64, out, warps=8)
    if whole <= 128:
        return Blocks(64, 64, whole, out, warps=4)
    if dtype == torch.float32:
        return Blocks(64, 32, 128, out, warps=8)
    return Blocks(64, 64, whole if whole <= 256 else 128, out, warps=8)


@torch.library.custom_op(
    "sincere::log_denominators",
    mutates_args=(),
    schema="(Tensor values, Tensor scales, Tensor ranges, Tensor self_index, Tensor key_values, Tensor key_scales, "
    "Tensor key_bias, Tensor inverse_temperature, *, bool keyed, bool with_positives, bool tf32, int[] blocks) "
    "-> Tensor",
)
def log_denominators(
    values: Tensor,
    scales: Tensor,
    ranges: Tensor,
    self_index: Tensor,
    key_values: Tensor,
    key_scales: Tensor,
    key_bias: Tensor,
    inverse_temperature: Tensor,
    *,
    keyed: bool,
    with_positives: bool,
    tf32: bool,
    blocks: list[int],
) -> Tensor:
    """Return the logarithm of each anchor's denominator (n,), -infinity where it is empty.

    Args:
        values: Anchors in class order (n, d); `scales` times these are the compared rows.
        scales: Float32 (n,).
        ranges: First key of each anchor's class and the one after the last (2, n), int32.
        self_index: Key that is the anchor itself, -1 for none (n,), int32.
        key_values: Keys in class order (m, d).
        key_scales: Float32 (m,).
        key_bias: Logarithm of each key's weight (m,).
        inverse_temperature: Float32 (1,).
        keyed: Whether the keys are not the anchors themselves.
        with_positives: Whether positives are part of the denominator.
        tf32: Whether products of float32 may be computed in tf32.
        blocks: The entries of `Blocks`, or empty for the chosen ones.
    """
    n, m = len(values), len(key_values)
    plan = _Plan(values, m, blocks, tf32=tf32, gradient=False)
    out = scales.new_empty(plan.splits, n)
    with _on_device(values):
        _kernels().log_denominators_kernel[plan.grid](
            out,
            values,
            scales,
            ranges,
            self_index,
            key_values,
            key_scales,
            key_bias,
            inverse_temperature,
            n,
            m,
            plan.tiles_per_split,
            KEYED=keyed,
            WITH_POSITIVES=with_positives,
            **plan.constants(),
        )
    return out[0] if plan.splits == 1 else out.logsumexp(dim=0)


@log_denominators.register_fake
def _(values: Tensor, scales: Tensor, *arguments: Any, **options: Any) -> Tensor:
    return torch.empty_like(scales)


@torch.library.custom_op(
    "sincere::positive_sums",
    mutates_args=(),
    schema="(Tensor values, Tensor scales, Tensor ranges, Tensor self_index, Tensor key_values, Tensor key_scales, "
    "Tensor key_bias, Tensor inverse_temperature, Tensor log_denominators, *, float epsilon, bool with_positives, "
    "bool tf32, int[] blocks) -> (Tensor, Tensor)",
)
def positive_sums(
    values: Tensor,
    scales: Tensor,
    ranges: Tensor,
    self_index: Tensor,
    key_values: Tensor,
    key_scales: Tensor,
    key_bias: Tensor,
    inverse_temperature: Tensor,
    log_denominators: Tensor,
    *,
    epsilon: float,
    with_positives: bool,
    tf32: bool,
    blocks: list[int],
) -> tuple[Tensor, Tensor]:
    """Return for each anchor the sums over its positives of softplus and sigmoid of L + epsilon - s, (n,) each.

    Where positives are part of the denominator: of their similarities, and of ones. The other arguments are those of
    `log_denominators`.
    """
    n, m = len(values), len(key_values)
    plan = _Plan(values, m, blocks, tf32=tf32, gradient=False)
    sums, pulls = scales.new_empty(plan.splits, n), scales.new_empty(plan.splits, n)
    with _on_device(values):
        _kernels().positive_sums_kernel[plan.grid](
            sums,
            pulls,
            values,
            scales,
            ranges,
            self_index,
            log_denominators,
            key_values,
            key_scales,
            key_bias,
            inverse_temperature,
            epsilon,
            n,
            m,
            plan.tiles_per_split,
            WITH_POSITIVES=with_positives,
            **plan.constants(),
        )
    return sums.sum(dim=0), pulls.sum(dim=0)


@positive_sums.register_fake
def _(values: Tensor, scales: Tensor, *arguments: Any, **options: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(scales), torch.empty_like(scales)


@torch.library.custom_op(
    "sincere::gradient_rows",
    mutates_args=(),
    schema="(Tensor values, Tensor scales, Tensor bias, Tensor ranges, Tensor self_index, Tensor statistics, "
    "Tensor other_values, Tensor other_scales, Tensor other_bias, Tensor other_self_index, Tensor other_statistics, "
    "Tensor inverse_temperature, *, float epsilon, bool as_anchors, bool as_keys, bool with_positives, bool tf32, "
    "int[] blocks) -> Tensor",
)
def gradient_rows(
    values: Tensor,
    scales: Tensor,
    bias: Tensor,
    ranges: Tensor,
    self_index: Tensor,
    statistics: Tensor,
    other_values: Tensor,
    other_scales: Tensor,
    other_bias: Tensor,
    other_self_index: Tensor,
    other_statistics: Tensor,
    inverse_temperature: Tensor,
    *,
    epsilon: float,
    as_anchors: bool,
    as_keys: bool,
    with_positives: bool,
    tf32: bool,
    blocks: list[int],
) -> Tensor:
    """Return the gradient at some rows times the temperature, (n, d) in float32.

    Args:
        values: Rows in class order (n, d), with `scales`, `bias`, `ranges` among the others and `self_index`.
        scales: Float32 (n,).
        bias: Logarithm of each row's weight as a key; read if `as_keys`.
        ranges: First of the others of each row's class and the one after the last (2, n).
        self_index: The one of the others that is the row itself; read if `as_anchors`.
        statistics: L, push and pull of the rows (3, n), see `triton_kernels.coefficients`; read if `as_anchors`.
        other_values: What the rows are compared with (m, d).
        other_scales: Float32 (m,).
        other_bias: Logarithm of their weights as keys; read if `as_anchors`.
        other_self_index: The row that each of them is itself; read if `as_keys`.
        other_statistics: Their L, push and pull (3, m); read if `as_keys`.
        inverse_temperature: Float32 (1,).
        epsilon: The margin.
        as_anchors: Whether the rows are anchors of the others.
        as_keys: Whether the others are anchors of the rows.
        with_positives: Whether positives are part of the denominator.
        tf32: Whether products of float32 may be computed in tf32.
        blocks: The entries of `Blocks`, or empty for the chosen ones.
    """
    (n, d), m = values.shape, len(other_values)
    plan = _Plan(values, m, blocks, tf32=tf32, gradient=True)
    out = scales.new_empty(plan.splits, n, d)
    row_blocks, splits = plan.grid
    # Half types are exact in tf32, whose range of exponents float16 has not.
    gradient_precision = "tf32" if tf32 or values.dtype != torch.float32 else "ieee"
    with _on_device(values):
        _kernels().gradient_kernel[row_blocks, splits, -(-d // plan.blocks.out)](
            out,
            values,
            scales,
            bias,
            ranges,
            self_index,
            statistics,
            other_values,
            other_scales,
            other_bias,
            other_self_index,
            other_statistics,
            inverse_temperature,
            epsilon,
            n,
            m,
            plan.tiles_per_split,
            AS_ANCHORS=as_anchors,
            AS_KEYS=as_keys,
            WITH_POSITIVES=with_positives,
            GRADIENT_PRECISION=gradient_precision,
            OUT=plan.blocks.out,
            **plan.constants(),
        )
    return out[0] if plan.splits == 1 else out.sum(dim=0)


@gradient_rows.register_fake
def _(values: Tensor, scales: Tensor, *arguments: Any, **options: Any) -> Tensor:
    return torch.empty_like(values, dtype=scales.dtype)


class _Plan:
    """The programs of one launch."""

    def __init__(self, values: Tensor, m: int, blocks: list[int], *, tf32: bool, gradient: bool) -> None:
        n, d = values.shape
        self.dtype, self.d, self.tf32 = values.dtype, d, tf32
        self.blocks = Blocks(*blocks) if blocks else choose_blocks(values.dtype, d, tf32=tf32, gradient=gradient)
        row_blocks, tiles = -(-n // self.blocks.rows), -(-m // self.blocks.columns)
        splits = self.blocks.splits or -(-_PROGRAMS_PER_PROCESSOR * _processors(values.device) // row_blocks)
        self.tiles_per_split = -(-tiles // min(splits, tiles))
        self.splits = -(-tiles // self.tiles_per_split)
        self.grid = (row_blocks, self.splits)

    def constants(self) -> dict[str, Any]:
        """Return what a kernel is compiled for."""
        import triton.language as tl

        # Triton's interpreter multiplies the bits of bfloat16, not their values; float32 holds the same values.
        operand = tl.float32 if is_interpreted() else getattr(tl, _OPERANDS[self.dtype])
        return {
            "BLOCK_ROWS": self.blocks.rows,
            "BLOCK_COLUMNS": self.blocks.columns,
            "D": self.d,
            "CHUNK": self.blocks.chunk,
            "OPERAND": operand,
            "PRECISION": "tf32" if self.tf32 else "ieee",
            "num_warps": self.blocks.warps,
            "num_stages": self.blocks.stages,
        }


def _processors(device: torch.device) -> int:
    """Return the number of multiprocessors, 1 in the interpreter."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def _on_device(values: Tensor) -> AbstractContextManager[Any]:
    """Return the context in which Triton launches on the tensors' own GPU."""
    return torch.cuda.device(values.device) if values.device.type == "cuda" else nullcontext()


def _kernels() -> ModuleType:
    from sincere.losses.kernels import triton_kernels

    return triton_kernels
