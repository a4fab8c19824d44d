"""ResNets of torchvision (He et al. 2015, https://arxiv.org/abs/1512.03385), with a stem that suits the image size."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from sincere.errors import DataError, first_line

SMALL_STEM_PIXELS = 64


def _resnet(name: str, *, channels: int, size: int, stem: int | None = None) -> nn.Module:
    """Return a ResNet without its classifier.

    A stem with side 3 is a convolution with stride 1 and no max-pooling, as in the paper; one with side 7 is the
    standard one, with stride 2 and max-pooling. Unless it is given, it is 3 up to 64 px and 7 above.
    """
    from torchvision import models

    network: nn.Module = models.get_model(name, weights=None)
    network.fc = nn.Identity()
    side = stem or (3 if size <= SMALL_STEM_PIXELS else 7)
    if side == 3:
        network.conv1, network.maxpool = _convolution(channels, side=3, stride=1), nn.Identity()
    elif channels != 3:
        network.conv1 = _convolution(channels, side=7, stride=2)
    return network


def imagenet_weights(name: str) -> dict[str, Tensor]:
    """Return torchvision's weights of a ResNet, downloaded on first use.

    Raises:
        DataError: They cannot be downloaded.
    """
    from torchvision import models

    try:
        weights: dict[str, Tensor] = models.get_model_weights(name).DEFAULT.get_state_dict(check_hash=True)
    except (OSError, RuntimeError) as error:
        remedy = "encoder lite0 needs no download, and --weights reads a file"
        raise DataError(
            f"{name}: its ImageNet weights could not be downloaded ({first_line(error)}); {remedy}"
        ) from error
    return weights


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
