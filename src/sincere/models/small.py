"""`small`: a network for small images on a CPU, designed for accuracy per second (docs/reference/encoders.md)."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

TINY_PIXELS, TINY_WIDTHS = 16, (8, 16, 32, 64)
WIDTHS = (32, 96, 160)
STEM_PIXELS = 32  # the stem's stride leaves at most this side
N_FILTERS = 12  # of the stem; their negatives are filters, too
VARIANCE_FLOOR = 5e-4  # added to the variance along each filter, so that those of noise are not amplified
STATISTICS_MOMENTUM = 0.4  # of batch norms: runs are short


def small(*, channels: int, size: int) -> nn.Module:
    """Return the network for images of this size."""
    return TinyEncoder(channels) if size <= TINY_PIXELS else SmallEncoder(channels, stride=-(-size // STEM_PIXELS))


class SmallEncoder(nn.Module):
    """A whitening stem and three stages of two convolutions, then the largest value of each channel.

    After the CIFAR-10 speed runs of Jordan 2024, https://arxiv.org/abs/2404.00498: a frozen stem whose outputs are
    uncorrelated on the training images (`whiten_stem`), convolutions that start as the identity on their first
    channels, and batch norms whose scale stays 1.
    """

    def __init__(self, channels: int, widths: tuple[int, ...] = WIDTHS, *, stride: int = 1) -> None:
        super().__init__()
        side = 2 * stride
        n_filters = min(N_FILTERS, channels * side**2)
        self.stem = nn.Sequential(_stem(channels, 2 * n_filters, side, stride), _activation())
        self.stages = nn.Sequential(*(_stage(before, width) for before, width in pairwise((2 * n_filters, *widths))))

    def forward(self, images: Tensor) -> Tensor:
        """Return features (n, d) of images (n, c, h, w)."""
        features: Tensor = self.stages(self.stem(images)).amax(dim=(2, 3))
        return features

    @torch.no_grad()
    def whiten_stem(self, images: Tensor) -> None:
        """Set the filters of the stem to the principal components of the patches of images (n, c, h, w), normalised.

        Each component is divided by its standard deviation; the negatives of the filters follow them, because the
        activation keeps only one sign.
        """
        weight = self.stem.get_parameter("0.weight")
        n, n_channels, side, _ = weight.shape
        patches = images.double().unfold(2, side, side).unfold(3, side, side)  # (n, c, rows, columns, side, side)
        rows = patches.permute(0, 2, 3, 1, 4, 5).reshape(-1, n_channels * side**2)
        variances, components = torch.linalg.eigh(rows.T @ rows / len(rows))  # in ascending order
        scaled = components / (variances + VARIANCE_FLOOR).sqrt()
        filters = scaled.T.flip(0)[: n // 2].reshape(n // 2, n_channels, side, side)
        weight.copy_(torch.cat([filters, -filters]))


def _stem(channels: int, n_filters: int, side: int, stride: int) -> nn.Conv2d:
    """Return a convolution that is not trained: without a bias, too, so that the gradient need not reach it."""
    return nn.Conv2d(channels, n_filters, side, stride, bias=False).requires_grad_(False)


def _stage(before: int, width: int) -> nn.Module:
    return nn.Sequential(
        _identity_convolution(before, width),
        nn.MaxPool2d(2),
        _norm(width),
        _activation(),
        _identity_convolution(width, width),
        _norm(width),
        _activation(),
    )


def _identity_convolution(before: int, width: int) -> nn.Conv2d:
    """Return a convolution whose first filters pass on its input; the others are random."""
    convolution = nn.Conv2d(before, width, 3, padding=1, bias=False)
    nn.init.dirac_(convolution.weight.data[:before])
    return convolution


def _norm(width: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(width, momentum=STATISTICS_MOMENTUM)
    norm.weight.requires_grad_(False)
    return norm


def _activation() -> nn.Module:
    return nn.GELU(approximate="tanh")


class TinyEncoder(nn.Module):
    """The network for images of up to 16 px: a stem, three stages and global average pooling.

    A stage is a widening and a residual convolution; the first two max-pool.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, TINY_WIDTHS[0], 3, padding=1, bias=False),
            nn.BatchNorm2d(TINY_WIDTHS[0]),
            nn.ReLU(inplace=True),
        )
        last = TINY_WIDTHS[-1]
        stages = [_TinyStage(before, width, pool=width < last) for before, width in pairwise(TINY_WIDTHS)]
        self.stages = nn.Sequential(*stages)

    def forward(self, images: Tensor) -> Tensor:
        """Return features (n, d) of images (n, c, h, w)."""
        features: Tensor = self.stages(self.stem(images)).mean(dim=(2, 3))
        return features


class _TinyStage(nn.Module):
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
