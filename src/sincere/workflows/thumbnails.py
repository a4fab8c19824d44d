"""Small pictures of images, for pages."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from sincere.data.dataset import Samples
from sincere.data.loader import plain_batches


def thumbnails(images: Samples, side: int) -> NDArray[np.uint8]:
    """Return small pixels (n, h, w, c); images that are small already stay as they are."""

    def small(pixels: Tensor) -> Tensor:
        if max(pixels.shape[-2:]) <= side:
            return pixels
        resized = interpolate(pixels.float(), (side, side), mode="bilinear", antialias=True)
        return resized.round().clamp(0, 255).to(torch.uint8)

    # Batch by batch: thousands of photos at their stored size would take gigabytes.
    pixels = torch.cat([small(batch.inputs.cpu()) for batch in plain_batches(images)])
    return cast(NDArray[np.uint8], pixels.permute(0, 2, 3, 1).contiguous().numpy())
