"""The GPU kernels themselves, in Triton: tiles of similarities that never leave the chip.

Legend: z_i = scale_i x_i a row, s_ij = z_i . z_j / tau + b_j the similarity of anchor i and key j with the logarithm of
the key's weight (-infinity: the key takes no part), L_i the logarithm of the denominator of i without the positive at
hand, eps the margin. Rows and columns are sorted by class, so that the positives of a row are columns first_i to
last_i - 1, and only the tiles that overlap the range of a block of rows look at classes at all ("near" tiles).

A program computes one block of rows against all columns, or against one of several equal shares of them ("splits"),
where the blocks alone would not occupy the GPU. Nothing is added atomically: results do not depend on the schedule.

Every function here is compiled by Triton and imported only where it can run: see `triton.py`.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_tile(values, rows, n, first, D: tl.constexpr, CHUNK: tl.constexpr, OPERAND: tl.constexpr):
    """Return dimensions first to first + CHUNK - 1 of some rows (rows, CHUNK); zero past the end of either."""
    dims = first + tl.arange(0, CHUNK)
    pointers = values + rows.to(tl.int64)[:, None] * D + dims[None, :]
    inside = (rows < n)[:, None]
    if D % CHUNK != 0:
        inside = inside & (dims < D)[None, :]
    return tl.load(pointers, mask=inside, other=0.0).to(OPERAND)


@triton.jit
def similarity_tile(
    row_tile,
    row_values,
    rows,
    n,
    row_factor,
    column_values,
    column_scales,
    columns,
    m,
    D: tl.constexpr,
    CHUNK: tl.constexpr,
    OPERAND: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Return z_r . z_c / tau for a tile, the columns' scales, and the first CHUNK dimensions of the columns.

    `row_tile` is the first CHUNK dimensions of the rows, which stay on the chip; those after it are loaded each time.
    """
    column_tile = load_tile(column_values, columns, m, 0, D, CHUNK, OPERAND)
    products = tl.dot(row_tile, tl.trans(column_tile), input_precision=PRECISION)
    for first in range(CHUNK, D, CHUNK):
        more_rows = load_tile(row_values, rows, n, first, D, CHUNK, OPERAND)
        more_columns = load_tile(column_values, columns, m, first, D, CHUNK, OPERAND)
        products = tl.dot(more_rows, tl.trans(more_columns), acc=products, input_precision=PRECISION)
    scales = tl.load(column_scales + columns, mask=columns < m, other=0.0)
    return products * row_factor[:, None] * scales[None, :], scales, column_tile


@triton.jit
def tile_ranges(ranges, rows, n, m, tiles_per_split, BLOCK_COLUMNS: tl.constexpr):
    """Return each row's positives first, last, and the tiles of this split: from, near from, near to, to."""
    first = tl.load(ranges + rows, mask=rows < n, other=m)
    last = tl.load(ranges + n + rows, mask=rows < n, other=0)
    start = tl.program_id(1) * tiles_per_split
    stop = tl.minimum(start + tiles_per_split, tl.cdiv(m, BLOCK_COLUMNS))
    near_start = tl.minimum(tl.maximum(tl.min(first, axis=0) // BLOCK_COLUMNS, start), stop)
    near_stop = tl.minimum(tl.maximum(tl.cdiv(tl.max(last, axis=0), BLOCK_COLUMNS), near_start), stop)
    return first, last, start, near_start, near_stop, stop


@triton.jit
def log_denominators_kernel(
    out,
    row_values,
    row_scales,
    ranges,
    self_index,
    column_values,
    column_scales,
    column_bias,
    inverse_temperature,
    n,
    m,
    tiles_per_split,
    KEYED: tl.constexpr,
    WITH_POSITIVES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    D: tl.constexpr,
    CHUNK: tl.constexpr,
    OPERAND: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write log sum_j e^(s_ij) of each row over this split's part of its denominator: out (splits, n)."""
    rows = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    first, last, start, near_start, near_stop, stop = tile_ranges(ranges, rows, n, m, tiles_per_split, BLOCK_COLUMNS)
    itself = tl.load(self_index + rows, mask=rows < n, other=-1)
    row_factor = tl.load(row_scales + rows, mask=rows < n, other=0.0) * tl.load(inverse_temperature)
    row_tile = load_tile(row_values, rows, n, 0, D, CHUNK, OPERAND)
    largest = tl.full((BLOCK_ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_ROWS,), tl.float32)
    for part in tl.static_range(3):  # before, near and after the positives
        part_start = start if part == 0 else near_start if part == 1 else near_stop
        part_stop = near_start if part == 0 else near_stop if part == 1 else stop
        for tile in range(part_start, part_stop):
            columns = tile * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
            s, _scales, _tile = similarity_tile(
                row_tile, row_values, rows, n, row_factor, column_values, column_scales, columns, m, D, CHUNK, OPERAND,
                PRECISION,
            )  # fmt: skip
            s += tl.load(column_bias + columns, mask=columns < m, other=float("-inf"))[None, :]
            if part == 1 or KEYED:
                s = tl.where(columns[None, :] == itself[:, None], float("-inf"), s)
            if part == 1 and not WITH_POSITIVES:
                same = (columns[None, :] >= first[:, None]) & (columns[None, :] < last[:, None])
                s = tl.where(same, float("-inf"), s)
            new = tl.maximum(largest, tl.max(s, axis=1))
            finite = tl.where(new == float("-inf"), 0.0, new)  # nothing in the denominator so far
            total = total * tl.exp(largest - finite) + tl.sum(tl.exp(s - finite[:, None]), axis=1)
            largest = new
    empty = total == 0.0
    result = tl.where(empty, float("-inf"), largest + tl.log(tl.where(empty, 1.0, total)))
    tl.store(out + tl.program_id(1) * n + rows, result, mask=rows < n)


@triton.jit
def positive_sums_kernel(
    sums,
    pulls,
    row_values,
    row_scales,
    ranges,
    self_index,
    log_denominators,
    column_values,
    column_scales,
    column_bias,
    inverse_temperature,
    epsilon,
    n,
    m,
    tiles_per_split,
    WITH_POSITIVES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    D: tl.constexpr,
    CHUNK: tl.constexpr,
    OPERAND: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write sums over this split's part of each row's positives: sums and pulls (splits, n).

    With x = s - L - eps: softplus(-x) and sigmoid(-x). Where positives are part of the denominator: s and 1.
    """
    rows = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    first, last, _start, near_start, near_stop, _stop = tile_ranges(ranges, rows, n, m, tiles_per_split, BLOCK_COLUMNS)
    itself = tl.load(self_index + rows, mask=rows < n, other=-1)
    threshold = tl.load(log_denominators + rows, mask=rows < n, other=0.0) + epsilon
    row_factor = tl.load(row_scales + rows, mask=rows < n, other=0.0) * tl.load(inverse_temperature)
    row_tile = load_tile(row_values, rows, n, 0, D, CHUNK, OPERAND)
    sum_of_losses = tl.zeros((BLOCK_ROWS,), tl.float32)
    sum_of_pulls = tl.zeros((BLOCK_ROWS,), tl.float32)
    for tile in range(near_start, near_stop):
        columns = tile * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
        s, _scales, _tile = similarity_tile(
            row_tile, row_values, rows, n, row_factor, column_values, column_scales, columns, m, D, CHUNK, OPERAND,
            PRECISION,
        )  # fmt: skip
        s += tl.load(column_bias + columns, mask=columns < m, other=float("-inf"))[None, :]
        positive = (columns[None, :] >= first[:, None]) & (columns[None, :] < last[:, None])
        positive = positive & (columns[None, :] != itself[:, None]) & (s != float("-inf"))
        if WITH_POSITIVES:
            loss = s
            pull = tl.full((BLOCK_ROWS, BLOCK_COLUMNS), 1.0, tl.float32)
        else:
            x = s - threshold[:, None]
            e = tl.exp(-tl.abs(x))
            u = 1.0 + e
            # log(1 + e) to full relative precision: the error of u cancels in the quotient.
            log1p = tl.where(u == 1.0, e, tl.log(u) * (e / tl.where(u == 1.0, 1.0, u - 1.0)))
            loss = tl.where(x < 0, -x, 0.0) + log1p
            pull = tl.where(x < 0, 1.0, e) / u
        sum_of_losses += tl.sum(tl.where(positive, loss, 0.0), axis=1)
        sum_of_pulls += tl.sum(tl.where(positive, pull, 0.0), axis=1)
    at = tl.program_id(1) * n + rows
    tl.store(sums + at, sum_of_losses, mask=rows < n)
    tl.store(pulls + at, sum_of_pulls, mask=rows < n)


@triton.jit
def coefficients(
    s,
    log_denominator,
    push,
    pull,
    epsilon,
    same,
    itself,
    NEAR: tl.constexpr,
    KEYED: tl.constexpr,
    WITH_POSITIVES: tl.constexpr,
):
    """Return d(weights . losses) / d s of a tile, from the side of its anchors.

    push_i = w_i / |P_i| sum_p sigmoid_ip (|P_i| of ones where positives are part of the denominator) weighs the
    denominator, pull_i = w_i / |P_i| each positive. For negatives s - L <= 0 up to rounding.
    """
    t = s - log_denominator
    if NEAR and not WITH_POSITIVES:
        e = tl.exp(tl.where(same, t - epsilon, tl.minimum(t, 0.0)))
        c = tl.where(same, -pull / (1.0 + e), push * e)
    else:
        c = push * tl.exp(tl.minimum(t, 0.0))
        if NEAR:
            # In one expression with the denominator's part: in a tight class the two nearly cancel.
            c = tl.where(same, c - pull, c)
    if NEAR:
        c = tl.where(itself | (s == float("-inf")), 0.0, c)
    elif KEYED:
        c = tl.where(itself, 0.0, c)
    return c


@triton.jit
def gradient_kernel(
    out,
    row_values,
    row_scales,
    row_bias,
    ranges,
    row_self,
    row_statistics,
    column_values,
    column_scales,
    column_bias,
    column_self,
    column_statistics,
    inverse_temperature,
    epsilon,
    n,
    m,
    tiles_per_split,
    AS_ANCHORS: tl.constexpr,
    AS_KEYS: tl.constexpr,
    WITH_POSITIVES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    D: tl.constexpr,
    CHUNK: tl.constexpr,
    OUT: tl.constexpr,
    OPERAND: tl.constexpr,
    PRECISION: tl.constexpr,
    GRADIENT_PRECISION: tl.constexpr,
):
    """Write sum_c C_rc z_c over this split's columns c, for OUT of the dimensions: out (splits, n, D).

    C_rc is the derivative at s_rc where the rows are anchors of the columns, plus that at s_cr where the columns are
    anchors of the rows: both for a batch against itself, one of them for the gradient of anchors or of keys.
    `row_statistics` and `column_statistics` are L, push and pull of whoever is an anchor, (3, n) and (3, m).
    """
    KEYED: tl.constexpr = not (AS_ANCHORS and AS_KEYS)
    rows = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    first_out = tl.program_id(2) * OUT
    first, last, start, near_start, near_stop, stop = tile_ranges(ranges, rows, n, m, tiles_per_split, BLOCK_COLUMNS)
    row_factor = tl.load(row_scales + rows, mask=rows < n, other=0.0) * tl.load(inverse_temperature)
    if AS_ANCHORS:
        row_itself = tl.load(row_self + rows, mask=rows < n, other=-1)
        row_log_denominator = tl.load(row_statistics + rows, mask=rows < n, other=0.0)
        row_push = tl.load(row_statistics + n + rows, mask=rows < n, other=0.0)
        row_pull = tl.load(row_statistics + 2 * n + rows, mask=rows < n, other=0.0)
    if AS_KEYS:
        bias_of_rows = tl.load(row_bias + rows, mask=rows < n, other=0.0)
    row_tile = load_tile(row_values, rows, n, 0, D, CHUNK, OPERAND)
    gradient = tl.zeros((BLOCK_ROWS, OUT), tl.float32)
    for part in tl.static_range(3):  # before, near and after the positives
        part_start = start if part == 0 else near_start if part == 1 else near_stop
        part_stop = near_start if part == 0 else near_stop if part == 1 else stop
        for tile in range(part_start, part_stop):
            columns = tile * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
            inside = columns < m
            s, scales, column_tile = similarity_tile(
                row_tile, row_values, rows, n, row_factor, column_values, column_scales, columns, m, D, CHUNK, OPERAND,
                PRECISION,
            )  # fmt: skip
            same = (columns[None, :] >= first[:, None]) & (columns[None, :] < last[:, None])
            c = tl.zeros_like(s)
            if AS_ANCHORS:
                bias = tl.load(column_bias + columns, mask=inside, other=float("-inf"))
                itself = columns[None, :] == row_itself[:, None]
                c += coefficients(
                    s + bias[None, :], row_log_denominator[:, None], row_push[:, None], row_pull[:, None], epsilon,
                    same, itself, part == 1, KEYED, WITH_POSITIVES,
                )  # fmt: skip
            if AS_KEYS:
                # Past the end an infinite denominator, and no weight.
                log_denominator = tl.load(column_statistics + columns, mask=inside, other=float("inf"))
                push = tl.load(column_statistics + m + columns, mask=inside, other=0.0)
                pull = tl.load(column_statistics + 2 * m + columns, mask=inside, other=0.0)
                itself = tl.load(column_self + columns, mask=inside, other=-1)[None, :] == rows[:, None]
                c += coefficients(
                    s + bias_of_rows[:, None], log_denominator[None, :], push[None, :], pull[None, :], epsilon,
                    same, itself, part == 1, KEYED, WITH_POSITIVES,
                )  # fmt: skip
            if D > CHUNK or OUT != CHUNK:
                column_tile = load_tile(column_values, columns, m, first_out, D, OUT, OPERAND)
            # Half types are exact in tf32, whose exponents hold small coefficients that float16 would lose.
            gradient = tl.dot(
                c * scales[None, :], column_tile.to(tl.float32), acc=gradient, input_precision=GRADIENT_PRECISION
            )
    dims = first_out + tl.arange(0, OUT)
    pointers = out + (tl.program_id(1).to(tl.int64) * n + rows.to(tl.int64))[:, None] * D + dims[None, :]
    tl.store(pointers, gradient, mask=(rows < n)[:, None] & (dims < D)[None, :])
