"""Where a set's pixels live: one uint8 tensor, a memory-mapped cache, or files decoded as they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from torch import Tensor

Pixels = NDArray[np.uint8]


class Images(Protocol):
    """Images of one size that can be gathered by position."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Number, channels, height, width."""
        ...

    def gather(self, positions: NDArray[np.int64]) -> Tensor:
        """Return uint8 images (k, c, h, w)."""
        ...


@dataclass(frozen=True, eq=False)
class TensorImages:
    """All images as one uint8 tensor (n, c, h, w), on any device."""

    pixels: Tensor

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Number, channels, height, width."""
        n, c, h, w = self.pixels.shape
        return n, c, h, w

    def gather(self, positions: NDArray[np.int64]) -> Tensor:
        """Return uint8 images (k, c, h, w)."""
        return self.pixels[torch.as_tensor(positions, device=self.pixels.device)]


@dataclass(frozen=True, eq=False)
class MappedImages:
    """A memory-mapped array (n, h, w, c) on disk: read as needed, kept by the system while memory lasts."""

    array: Pixels

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Number, channels, height, width."""
        n, h, w, c = self.array.shape
        return n, c, h, w

    def gather(self, positions: NDArray[np.int64]) -> Tensor:
        """Return uint8 images (k, c, h, w)."""
        return torch.from_numpy(np.ascontiguousarray(self.array[positions].transpose(0, 3, 1, 2)))


@dataclass(frozen=True, eq=False)
class StreamedImages:
    """Images decoded by worker threads each time they are asked for: for sets that fit neither memory nor disk."""

    decoders: Sequence[Callable[[], Pixels]]
    shape: tuple[int, int, int, int]
    workers: int = 4

    def gather(self, positions: NDArray[np.int64]) -> Tensor:
        """Return uint8 images (k, c, h, w)."""
        with ThreadPoolExecutor(self.workers) as pool:
            decoded = list(pool.map(lambda i: self.decoders[i](), positions.tolist()))
        return torch.from_numpy(np.ascontiguousarray(np.stack(decoded).transpose(0, 3, 1, 2)))


MEMORY_SHARE = 0.25  # of what is free: training needs the rest


def place_images(array: Pixels, device: torch.device | str = "cpu") -> Images:
    """Return images (n, h, w, c) as one tensor on the device if they fit there, else mapped as they are."""
    if array.nbytes > MEMORY_SHARE * _free_bytes(torch.device(device)):
        return MappedImages(array)
    return TensorImages(torch.from_numpy(np.array(array.transpose(0, 3, 1, 2), order="C")).to(device))


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)
