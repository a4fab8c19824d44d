"""Storage of features: one tensor in memory, or a memory-mapped file."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sincere.data.pixel_storage import fits_in_memory


@dataclass(frozen=True, eq=False)
class Features:
    """Features of all samples, of any floating-point type and on any device.

    Attributes:
        values: Features (n, d).
        versions: Features of augmented versions of each sample (n, versions, d), from which views are drawn as well;
            None to draw them from `values` only.
    """

    values: Tensor
    versions: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples and of features."""
        n, d = self.values.shape
        return n, d

    def gather(self, positions: NDArray[np.int64]) -> Tensor:
        """Return the features of samples (k, d) as float32."""
        return self.values[torch.as_tensor(positions, device=self.values.device)].float()

    def gather_versions(self, positions: NDArray[np.int64]) -> Tensor:
        """Return what views are drawn from: (k, 1 + versions, d), or (k, d) without versions, as float32."""
        values = self.gather(positions)
        if self.versions is None:
            return values
        versions = self.versions[torch.as_tensor(positions, device=self.versions.device)].float()
        return torch.cat([values[:, None], versions.to(values.device)], dim=1)


def place_features(values: NDArray[np.float32] | Tensor, device: torch.device | str) -> Tensor:
    """Return features on the device if they fit into its memory, else where they are."""
    tensor = values if isinstance(values, Tensor) else torch.from_numpy(values)
    fits = fits_in_memory(tensor.numel() * tensor.element_size(), device)
    return tensor.to(device, copy=True) if fits else tensor
