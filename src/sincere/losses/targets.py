"""Targets of classes on the unit sphere: as far from each other as they can be, and matched to class means.

After Li et al. 2022 (https://arxiv.org/abs/2111.13998).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sincere import checks
from sincere.errors import InputValueError

TEMPERATURE = 0.07  # of the uniformity loss
ITERATIONS, SEED = 100, 0

Floats = NDArray[np.float64]


def uniform_targets(n_classes: int, dim: int, *, caller: str = "uniform_targets") -> Tensor:
    """Return points that are spread uniformly over the unit sphere (n_classes, dim), in float64.

    Up to dim + 1 of them are the corners of a regular simplex, each at similarity -1 / (n_classes - 1) to all others.
    More are found by descending the mean of log sum_j e^(u_i . u_j / 0.07) from a fixed start: the same points on every
    call on the same machine. Time O(n_classes^2 dim) for each of 100 iterations.

    Raises:
        InputTypeError, InputValueError: A number is no integer or too small; on a line there are two points only.

    Example:
        >>> (uniform_targets(3, 2) @ uniform_targets(3, 2).T).numpy().round(3).tolist()
        [[1.0, -0.5, -0.5], [-0.5, 1.0, -0.5], [-0.5, -0.5, 1.0]]
    """
    n, d = checks.count(caller, "n_classes", n_classes, least=2), checks.count(caller, "dim", dim, least=1)
    if d == 1 and n > 2:
        raise InputValueError(checks.wording(caller, f"dim must be at least 2 for {n} targets", dim))
    return _simplex(n, d) if n <= d + 1 else _spread(n, d)


def _simplex(n: int, dim: int) -> Tensor:
    """Return the corners of a regular simplex around 0: the columns of a Helmert matrix without its first row."""
    corners = torch.zeros(n, dim, dtype=torch.float64)
    for k in range(1, n):
        corners[:k, k - 1] = 1.0
        corners[k, k - 1] = -k
        corners[:, k - 1] /= (k * (k + 1)) ** 0.5
    return torch.nn.functional.normalize(corners, dim=1)


@torch.no_grad()
def _spread(n: int, dim: int) -> Tensor:
    """Return points of a small energy, by gradient descent with steps after Barzilai and Borwein."""
    generator = torch.Generator().manual_seed(SEED)
    normalize = torch.nn.functional.normalize
    points = normalize(torch.randn(n, dim, generator=generator, dtype=torch.float64), dim=1)
    best, (least, gradient) = points, _energy(points)
    size = 0.1 / float(gradient.norm())
    for _ in range(ITERATIONS):
        moved = normalize(points - size * gradient, dim=1)
        energy, slope = _energy(moved)
        change, turn = moved - points, slope - gradient
        curvature = float((change * turn).sum().abs())
        if curvature == 0.0:
            break
        size = float(change.square().sum()) / curvature
        points, gradient = moved, slope
        if energy < least:
            best, least = points, energy
    return best


def _energy(points: Tensor) -> tuple[float, Tensor]:
    """Return the mean of log sum_j e^(u_i . u_j / 0.07), and its gradient along the sphere."""
    logits = points @ points.T / TEMPERATURE
    shares = logits.softmax(dim=1)
    gradient = (shares + shares.T) @ points / (len(points) * TEMPERATURE)
    gradient -= (gradient * points).sum(dim=1, keepdim=True) * points
    return float(logits.logsumexp(dim=1).mean()), gradient


def best_assignment(scores: Floats, prices: Floats | None = None) -> tuple[NDArray[np.int64], Floats]:
    """Return the column of each row such that the sum of the scores is the largest, and prices of the columns.

    Shortest augmenting paths (Jonker and Volgenant 1987, https://doi.org/10.1007/BF02278710). No column is dearer to
    its row than another: scores - prices is largest in the column of each row, which proves the assignment the best.
    With the prices of similar scores, most rows have their column at once: O(n^2) instead of O(n^3).

    Args:
        scores: (n, n).
        prices: Prices of the columns to start from; 0 if None.

    Example:
        >>> best_assignment(np.array([[9.0, 8.0], [8.0, 1.0]]))[0].tolist()  # 8 + 8, not 9 + 1
        [1, 0]
    """
    n = len(scores)
    cost = -np.asarray(scores, dtype=np.float64)
    v = np.zeros(n) if prices is None else -np.asarray(prices, dtype=np.float64)
    row_of, column_of = np.full(n, -1), np.full(n, -1)
    cheapest = (cost - v).argmin(axis=1)
    u = (cost - v)[np.arange(n), cheapest]
    for row, column in enumerate(cheapest):
        if row_of[column] < 0:
            row_of[column], column_of[row] = row, column
    for start in np.flatnonzero(column_of < 0):
        distance, before = np.full(n, np.inf), np.full(n, -1)
        reached = np.zeros(n, dtype=bool)  # columns whose distance is final
        row, total = int(start), 0.0
        while True:
            through = total + cost[row] - u[row] - v
            closer = ~reached & (through < distance)
            distance[closer], before[closer] = through[closer], row
            column = int(np.where(reached, np.inf, distance).argmin())
            total = float(distance[column])
            reached[column] = True
            if row_of[column] < 0:
                break
            row = int(row_of[column])
        inner = reached.copy()
        inner[column] = False
        u[start] += total
        u[row_of[inner]] += total - distance[inner]
        v[inner] -= total - distance[inner]
        while True:
            row = int(before[column])
            row_of[column], column_of[row], column = row, column, int(column_of[row])
            if row == start:
                break
    return column_of, -v
