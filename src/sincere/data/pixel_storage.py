"""Storage of pixels: one uint8 tensor in memory, a memory-mapped file, or image files decoded on demand."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sincere.data.cache import checksums_of
from sincere.device_memory import free_bytes
from sincere.errors import DataError

Pixels = NDArray[np.uint8]


class Images(Protocol):
    """Images of one size that can be gathered by position."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Number of images, channels, height, width."""
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
        """Number of images, channels, height, width."""
        n, c, h, w = self.pixels.shape
        return n, c, h, w

    def gather(self, positions: NDArray[np.int64]) -> Tensor:
        """Return uint8 images (k, c, h, w)."""
        return self.pixels[torch.as_tensor(positions, device=self.pixels.device)]


@dataclass(frozen=True, eq=False)
class MappedImages:
    """A memory-mapped array (n, h, w, c) on disk, read on demand and kept in the page cache of the system.

    Attributes:
        array: Pixels.
        checksums: CRC-32 of each image (n,), verified on every read; None to skip the check.
        source: Path of the array, for error messages.
    """

    array: Pixels
    checksums: NDArray[np.uint32] | None = None
    source: str = ""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Number of images, channels, height, width."""
        n, h, w, c = self.array.shape
        return n, c, h, w

    def gather(self, positions: NDArray[np.int64]) -> Tensor:
        """Return uint8 images (k, c, h, w).

        Raises:
            DataError: An image does not match its checksum.
        """
        pixels = self.array[positions]
        if self.checksums is not None and not np.array_equal(checksums_of(pixels), self.checksums[positions]):
            raise DataError(f"{self.source}: is damaged: pixels do not match their checksum; remove it")
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))


@dataclass(frozen=True, eq=False)
class StreamedImages:
    """Images decoded by worker threads on every access, for data sets that fit neither into memory nor into the cache.

    Attributes:
        decode: Maps a position to pixels (h, w, c).
        shape: Number of images, channels, height, width.
        workers: Number of threads.
    """

    decode: Callable[[int], Pixels]
    shape: tuple[int, int, int, int]
    workers: int = 4

    def gather(self, positions: NDArray[np.int64]) -> Tensor:
        """Return uint8 images (k, c, h, w)."""
        with ThreadPoolExecutor(self.workers) as pool:
            decoded = list(pool.map(self.decode, positions.tolist()))
        return torch.from_numpy(np.ascontiguousarray(np.stack(decoded).transpose(0, 3, 1, 2)))


MEMORY_SHARE = 0.25  # of the free memory; training needs the rest


def fits_in_memory(n_bytes: int, device: torch.device | str) -> bool:
    """Return whether images of this size leave enough memory for training."""
    return n_bytes <= MEMORY_SHARE * free_bytes(torch.device(device))


def place_images(array: Pixels, device: torch.device | str = "cpu") -> Images:
    """Return images (n, h, w, c) as one tensor on the device if they fit into its memory, else as they are."""
    if not fits_in_memory(array.nbytes, device):
        return MappedImages(array)
    return TensorImages(torch.from_numpy(np.array(array.transpose(0, 3, 1, 2), order="C")).to(device))
