"""How many of several independent events happen: the distribution, and each event's part in it, exactly.

The probabilities of 0, 1, 2, ... events are the coefficients of the product of (1 - q_j) + q_j x. The factors are
multiplied in pairs, in a tree of log2(m) levels, and coefficients above a degree are dropped: O(m degree) in all. Going
down the tree again gives the product without each factor. All terms are positive, so nothing cancels.
"""

from __future__ import annotations

import torch
from torch import Tensor


class CountTree:
    """The products over the probabilities q (rows, m) of the events of each row.

    Polynomials are tensors (coefficients, rows, factors), so that every operation runs over whole matrices.
    """

    def __init__(self, q: Tensor, degree: int) -> None:
        level = torch.stack([1 - q, q])
        self.levels = [level]
        while level.shape[2] > 1:
            level = _multiply(*_halves(level), degree)
            self.levels.append(level)

    @property
    def distribution(self) -> Tensor:
        """Return the probability of each number of events, 0 to at most `degree`: (numbers, rows)."""
        return self.levels[-1][..., 0]

    def given_each(self, weights: Tensor) -> Tensor:
        """Return sum_l weights_l p(l events | event j happens) for each event j: (rows, m).

        Args:
            weights: Weight of each number of events, (numbers, rows); 0 for numbers that are missing.
        """
        derivative = _resized(weights, len(self.distribution))[..., None]
        for level in reversed(self.levels[:-1]):
            first, second = _halves(level)
            n_pairs, size = second.shape[2], len(level)
            of_pairs, of_rest = derivative[..., :n_pairs], derivative[..., n_pairs:]
            parts = [
                _correlate(of_pairs, second, size),
                _resized(of_rest, size),
                _correlate(of_pairs, first[..., :n_pairs], size),
            ]
            derivative = torch.cat(parts, dim=2)
        return derivative[1]


def _halves(level: Tensor) -> tuple[Tensor, Tensor]:
    """Return the factors to multiply with one another; of an odd number, the first half has one more."""
    half = (level.shape[2] + 1) // 2
    return level[..., :half], level[..., half:]


def _multiply(a: Tensor, b: Tensor, degree: int) -> Tensor:
    """Return the products of polynomials up to a degree; where a has one more than b, it stays as it is."""
    size, n_pairs = len(a), b.shape[2]
    product = a.new_zeros(min(2 * size - 1, degree + 1), *a.shape[1:])
    product[:size, :, n_pairs:] = a[: len(product), :, n_pairs:]
    pairs = product[..., :n_pairs]
    for i in range(min(size, len(product))):
        length = min(size, len(product) - i)
        pairs[i : i + length].addcmul_(a[:length, :, :n_pairs], b[i])
    return product


def _correlate(derivative: Tensor, other: Tensor, size: int) -> Tensor:
    """Return the derivative for one factor of a product, from the product's derivative and the other factor."""
    result = derivative.new_zeros(size, *derivative.shape[1:])
    for i in range(min(len(other), len(derivative))):
        length = min(size, len(derivative) - i)
        result[:length].addcmul_(derivative[i : i + length], other[i])
    return result


def _resized(polynomial: Tensor, size: int) -> Tensor:
    """Cut coefficients off, or append coefficients of 0."""
    missing = size - len(polynomial)
    if missing <= 0:
        return polynomial[:size]
    return torch.cat([polynomial, polynomial.new_zeros(missing, *polynomial.shape[1:])])
