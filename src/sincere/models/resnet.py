"""ResNets of torchvision (He et al. 2015, https://arxiv.org/abs/1512.03385), with a stem that suits the image size."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

from sincere.errors import DataError

SMALL_STEM_PIXELS = 64


def _resnet(name: str, *, channels: int, size: int, pretrained: bool) -> nn.Module:
    """Return a ResNet without its classifier.

    Up to 64 px its stem is a 3 x 3 convolution with stride 1 and no max-pooling, as in the paper; above, the standard
    7 x 7 convolution with stride 2 and max-pooling. A changed stem is random even with ImageNet weights.
    """
    from torchvision import models

    try:
        network: nn.Module = models.get_model(name, weights="DEFAULT" if pretrained else None)
    except (OSError, RuntimeError) as error:
        raise DataError(f"{name}: its ImageNet weights could not be downloaded ({error})") from error
    network.fc = nn.Identity()
    if size <= SMALL_STEM_PIXELS:
        network.conv1, network.maxpool = _convolution(channels, side=3, stride=1), nn.Identity()
    elif channels != 3:
        network.conv1 = _convolution(channels, side=7, stride=2)
    return network


def _convolution(channels: int, *, side: int, stride: int) -> nn.Conv2d:
    """Return a first layer with torchvision's initialisation."""
    layer = nn.Conv2d(channels, 64, side, stride=stride, padding=side // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


Builder = Callable[..., nn.Module]
resnet18: Builder = partial(_resnet, "resnet18")
resnet34: Builder = partial(_resnet, "resnet34")
resnet50: Builder = partial(_resnet, "resnet50")
resnet101: Builder = partial(_resnet, "resnet101")
