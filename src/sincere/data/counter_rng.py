"""Counter-based random numbers: a function of (seed, visit, image id, view, purpose), without any state.

An image gets the same numbers in whatever batch, process, micro-batch or worker thread it is augmented, and after a
resume. The visit number tells apart the times that an image is used: with the epoch in its place, an image that comes
twice in an epoch would get the same views. Each number is a 64-bit counter, hashed twice by the finaliser of SplitMix64
(Steele, Lea and Flood 2014, https://doi.org/10.1145/2660193.2660195), vectorised over the images on their device.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


@dataclass(frozen=True, eq=False)
class CounterRNG:
    """Random numbers for a batch of images.

    Attributes:
        seed: Random seed of the run.
        visits: Visit number of each image, (n,) int64; no image has the same one twice.
        ids: Id of each image, (n,) int64.
        view: Index of the view.
    """

    seed: int
    visits: Tensor
    ids: Tensor
    view: int

    def uniform(self, purpose: str, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Return one number per image, uniform in [low, high)."""
        return self.uniforms([purpose], low, high)[0]

    def uniforms(self, purposes: Sequence[str], low: float = 0.0, high: float = 1.0) -> Tensor:
        """Return (purposes, n) numbers: a row as `uniform` returns it for each purpose."""
        unit = _shift(self._bits(purposes), 40).to(torch.float32) * 2.0**-24  # 24 bits: the precision of float32
        return unit * (high - low) + low

    def bits(self, purpose: str) -> Tensor:
        """Return 64 random bits per image, as int64."""
        return self._bits([purpose])[0]

    def _bits(self, purposes: Sequence[str]) -> Tensor:
        """Return 64 random bits (purposes, n) per purpose and image."""
        keys = []
        for purpose in purposes:
            key = 0
            for part in (self.seed, self.view, zlib.crc32(purpose.encode())):
                key = _hash_int((key + part + 1) * _GOLDEN & _MASK)
            keys.append((_signed(key), _signed(_hash_int(key + _GOLDEN & _MASK))))
        before, between = torch.tensor(keys, device=self.ids.device).T.unsqueeze(-1)  # each (purposes, 1)
        images = _hash_tensor(self.ids * _signed(_GOLDEN) + before)
        return _hash_tensor(images + self.visits * _signed(_GOLDEN) + between)

    def normal(self, purpose: str) -> Tensor:
        """Return one standard normal number per image, by the Box-Muller transform."""
        radius = torch.sqrt(-2 * torch.log1p(-self.uniform(f"{purpose}/radius")))
        return radius * torch.cos(2 * math.pi * self.uniform(f"{purpose}/angle"))

    def bernoulli(self, purpose: str, probability: float) -> Tensor:
        """Return True for each image with this probability."""
        return self.uniform(purpose) < probability


def _hash_int(x: int) -> int:
    x = ((x ^ (x >> 30)) * _FIRST) & _MASK
    x = ((x ^ (x >> 27)) * _SECOND) & _MASK
    return x ^ (x >> 31)


def _hash_tensor(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * _signed(_FIRST)  # int64 products wrap around, as the hash needs
    x = (x ^ _shift(x, 27)) * _signed(_SECOND)
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Shift right and fill with zeros; torch's >> fills with the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(x: int) -> int:
    return x - (1 << 64) if x >> 63 else x
