"""Colour jitter of a batch, with random factors and a random order per image, as torchvision's ColorJitter.

Images are float in [0, 1], (n, 3, h, w). kornia's batched ColorJitter draws one order per call, which would make the
view of an image depend on its batch; here images are grouped by their order, or changed under masks on an accelerator,
which need not wait for the sizes of the groups then.
"""

from __future__ import annotations

from itertools import permutations

import torch
from torch import Tensor

from sincere import host
from sincere.data.counter_rng import CounterRNG

_ORDERS = list(permutations(range(4)))  # 24
_LUMA = (0.2989, 0.587, 0.114)  # ITU-R 601-2, rounded as torchvision does in its augmentations


def jitter(images: Tensor, rng: CounterRNG, strength: tuple[float, float, float, float], probability: float) -> Tensor:
    """Change brightness, contrast, saturation and hue of each image with this probability.

    The factors of the first three are uniform in [1 - strength, 1 + strength]; the hue is rotated by up to +-strength
    of a full circle.
    """
    names = ("brightness", "contrast", "saturation")
    factors = [
        rng.uniform(f"jitter/{name}", max(0.0, 1 - s), 1 + s)[:, None, None, None]
        for name, s in zip(names, strength, strict=False)
    ]
    factors.append(rng.uniform("jitter/hue", -strength[3], strength[3])[:, None, None])
    order = (rng.uniform("jitter/order") * len(_ORDERS)).long()
    order = torch.where(rng.bernoulli("jitter", probability), order, len(_ORDERS))  # the last group is unchanged
    if host.reads_back(images.device):
        return _jitter_by_groups(images, order, factors)
    return _jitter_under_masks(images, order, factors)


def _jitter_by_groups(images: Tensor, order: Tensor, factors: list[Tensor]) -> Tensor:
    """Return jittered images, those of one order together: reads back how many there are of each."""
    by_order = order.argsort(stable=True)
    ends = torch.bincount(order, minlength=len(_ORDERS) + 1).cumsum(0).tolist()
    result = images[by_order]
    factors = [factor[by_order] for factor in factors]
    for start, end, operations in zip([0, *ends], ends, _ORDERS, strict=False):
        if start < end:
            group = result[start:end]
            for operation in operations:
                _OPERATIONS[operation](group, factors[operation][start:end])
    return torch.empty_like(result).index_copy_(0, by_order, result)


def _jitter_under_masks(images: Tensor, order: Tensor, factors: list[Tensor]) -> Tensor:
    """Return the same with every operation on all images at each place of the order, four times the arithmetic."""
    rows = [*_ORDERS, (-1,) * 4]
    operations = torch.tensor(rows).to(images.device, non_blocking=True)[order]  # (n, 4)
    for place in range(4):
        before = images
        for operation, change in enumerate(_OPERATIONS):
            changed = before.clone()
            change(changed, factors[operation])
            images = torch.where((operations[:, place] == operation)[:, None, None, None], changed, images)
    return images


def grey(images: Tensor) -> Tensor:
    """Return the luma (n, 1, h, w) of colour images (n, 3, h, w)."""
    r, g, b = images.unbind(1)
    return (r * _LUMA[0]).add_(g, alpha=_LUMA[1]).add_(b, alpha=_LUMA[2]).unsqueeze_(1)


def _brightness_(images: Tensor, factor: Tensor) -> None:
    images.mul_(factor).clamp_(0, 1)


def _contrast_(images: Tensor, factor: Tensor) -> None:
    mean = grey(images).mean(dim=(1, 2, 3), keepdim=True)
    images.mul_(factor).add_(mean * (1 - factor)).clamp_(0, 1)


def _saturation_(images: Tensor, factor: Tensor) -> None:
    luma = grey(images)
    images.mul_(factor).add_(luma.mul_(1 - factor)).clamp_(0, 1)


def _hue_(images: Tensor, rotation: Tensor) -> None:
    """Rotate the hue of HSV; value and saturation stay."""
    r, g, b = images.unbind(1)
    value = torch.maximum(torch.maximum(r, g), b)
    chroma = value - torch.minimum(torch.minimum(r, g), b)
    scale = chroma.clamp_min(1e-8)
    # Hue as a fraction of the circle, from the largest channel; that of grey pixels is arbitrary and has no effect.
    scale = (1 / 6) / scale
    hue = torch.where(
        r == value, (g - b) * scale, torch.where(g == value, (b - r) * scale + 1 / 3, (r - g) * scale - 1 / 3)
    )
    hue += rotation
    for channel, offset in enumerate((0.0, -1 / 3, 1 / 3)):
        # A channel equals the value within a sixth of the circle around its colour, and value - chroma beyond a third.
        distance = hue + offset
        distance -= distance.round()
        deficit = distance.abs_().mul_(6).sub_(1).clamp_(0, 1)
        torch.addcmul(value, chroma, deficit, value=-1, out=images[:, channel])


_OPERATIONS = (_brightness_, _contrast_, _saturation_, _hue_)
