"""`small`: a residual network for small images on a CPU, designed for accuracy per second (docs/training.md)."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

WIDTHS, TINY_WIDTHS, TINY_PIXELS = (32, 64, 128, 256), (8, 16, 32, 64), 16


def small(*, channels: int, size: int) -> nn.Module:
    """Return the network for images of this size."""
    if size <= TINY_PIXELS:
        return SmallEncoder(channels, TINY_WIDTHS, stride=1)
    return SmallEncoder(channels, WIDTHS, stride=2 if size <= 32 else 4)


class SmallEncoder(nn.Module):
    """A stem, three stages and global average pooling; a stage is a widening and a residual convolution.

    The first two stages max-pool. The stem reduces images of up to 64 px to a side of at most 16, so that most of the
    work is done with many channels at few positions, which is fastest on a CPU.
    """

    def __init__(self, channels: int, widths: tuple[int, ...], *, stride: int) -> None:
        super().__init__()
        side = 3 if stride == 1 else 2 * stride
        self.stem = nn.Sequential(
            nn.Conv2d(channels, widths[0], side, stride, padding=(side - stride + 1) // 2, bias=False),
            nn.BatchNorm2d(widths[0]),
            nn.ReLU(inplace=True),
        )
        stages = [_Stage(before, width, pool=width < widths[-1]) for before, width in pairwise(widths)]
        self.stages = nn.Sequential(*stages)

    def forward(self, images: Tensor) -> Tensor:
        """Return features (n, d) of images (n, c, h, w)."""
        features: Tensor = self.stages(self.stem(images)).mean(dim=(2, 3))
        return features


class _Stage(nn.Module):
    """A convolution to more channels, with optional max-pooling, and a convolution with a skip connection."""

    def __init__(self, before: int, width: int, *, pool: bool) -> None:
        super().__init__()
        self.widen = nn.Sequential(
            nn.Conv2d(before, width, 3, padding=1, bias=False),
            nn.MaxPool2d(2, ceil_mode=True) if pool else nn.Identity(),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
        )
        self.residual = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )

    def forward(self, images: Tensor) -> Tensor:
        images = self.widen(images)
        return torch.add(images, self.residual(images))
