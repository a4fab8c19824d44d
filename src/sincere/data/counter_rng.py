"""Random numbers as a function of (seed, round, image id, view, purpose): no generator, no state.

The same image gets the same draw whatever batch, rank, micro-batch or worker it is in, and after any resume. The round
tells an image's showings apart: with the epoch in its place, one shown twice in an epoch would get the same views. Each
number is a 64-bit counter hashed by two rounds of SplitMix64's finaliser (Steele, Lea, Flood 2014), vectorised over the
images on their device.
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
class Draws:
    """Draws for a batch of images.

    Attributes:
        seed: Of the run.
        rounds: Which of its showings this is for each image, (n,) int64.
        ids: Id of each image, (n,) int64.
        view: Which view of the image.
    """

    seed: int
    rounds: Tensor
    ids: Tensor
    view: int

    def uniform(self, purpose: str, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Return one number per image, uniform in [low, high)."""
        return self.uniforms([purpose], low, high)[0]

    def uniforms(self, purposes: Sequence[str], low: float = 0.0, high: float = 1.0) -> Tensor:
        """Return (purposes, n) numbers, each as `uniform` draws it, in one go."""
        keys = []
        for purpose in purposes:
            key = 0
            for part in (self.seed, self.view, zlib.crc32(purpose.encode())):
                key = _hash_int((key + part + 1) * _GOLDEN & _MASK)
            keys.append((_signed(key), _signed(_hash_int(key + _GOLDEN & _MASK))))
        before, between = torch.tensor(keys, device=self.ids.device).T.unsqueeze(-1)  # each (purposes, 1)
        images = _hash_tensor(self.ids * _signed(_GOLDEN) + before)
        bits = _hash_tensor(images + self.rounds * _signed(_GOLDEN) + between)
        unit = _shift(bits, 40).to(torch.float32) * 2.0**-24  # 24 bits: all that float32 holds
        return unit * (high - low) + low

    def normal(self, purpose: str) -> Tensor:
        """Return one standard normal number per image (Box and Muller)."""
        radius = torch.sqrt(-2 * torch.log1p(-self.uniform(f"{purpose}/radius")))
        return radius * torch.cos(2 * math.pi * self.uniform(f"{purpose}/angle"))

    def chance(self, purpose: str, probability: float) -> Tensor:
        """Return True for about that share of the images."""
        return self.uniform(purpose) < probability


def _hash_int(x: int) -> int:
    x = ((x ^ (x >> 30)) * _FIRST) & _MASK
    x = ((x ^ (x >> 27)) * _SECOND) & _MASK
    return x ^ (x >> 31)


def _hash_tensor(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * _signed(_FIRST)  # int64 products wrap around, as they should
    x = (x ^ _shift(x, 27)) * _signed(_SECOND)
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Shift right without copying the sign, which torch's >> does."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(x: int) -> int:
    return x - (1 << 64) if x >> 63 else x
