"""Augmented views of a batch, computed on its device with random parameters per image.

Crop, flip, rotation, shift and zoom are combined into one affine map per image, so that pixels are interpolated once.
Every random number is a function of (seed, visit, image id, view, purpose): see `counter_rng`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, avg_pool2d, grid_sample

from sincere import checks
from sincere.catalog import AUGMENTATIONS, PYTHON, Augmentation, CustomAugmentation
from sincere.data.colour import grey, jitter
from sincere.data.counter_rng import CounterRNG
from sincere.errors import InputValueError

ViewMaker = Callable[[Tensor, Tensor, Tensor], Tensor]  # items, ids, visit numbers to views (n, n_views, ...)
CROP_TRIES = 10  # as torchvision; after that, the centre


def named_augmentation(name: str, *, mirror_is_same_class: bool = True) -> Augmentation | CustomAugmentation:
    """Return an augmentation by name, without flips where a mirrored image may not be of its class.

    Raises:
        InputValueError: There is no such name, or it is one that was given in Python and is not given now.
    """
    if name.startswith(PYTHON) and name not in AUGMENTATIONS:
        requirement = "augmentation was given in Python and must be given again, as augmentation="
        raise InputValueError(checks.wording("views", requirement, name))
    chosen = AUGMENTATIONS[checks.choice("views", "augmentation", name, AUGMENTATIONS)]
    if mirror_is_same_class or isinstance(chosen, CustomAugmentation):
        return chosen
    return replace(chosen, flip=0.0)


def view_maker(
    augmentation: Augmentation | CustomAugmentation, *, size: int, seed: int = 0, n_views: int = 2
) -> ViewMaker:
    """Return `make_views` with these options.

    Raises:
        InputValueError, InputTypeError: `size`, `seed` or `n_views` is too small, or not an integer.
    """
    # As Python integers: numpy's would overflow where random numbers are hashed.
    return partial(
        make_views,
        augmentation=augmentation,
        size=checks.count("view_maker", "size", size, least=1),
        seed=checks.count("view_maker", "seed", seed, least=0),
        n_views=checks.count("view_maker", "n_views", n_views, least=1),
    )


def make_views(
    images: Tensor,
    ids: Tensor,
    visits: Tensor,
    augmentation: Augmentation | CustomAugmentation,
    *,
    size: int,
    seed: int,
    n_views: int,
) -> Tensor:
    """Return views (n, n_views, c, size, size) in [0, 1] of uint8 images (n, c, h, w).

    Without a geometric augmentation they keep the size of the images.

    Args:
        images: Pixels.
        ids: Id of each image (n,).
        visits: Visit number of each image (n,): another visit gives other views of the same image.
        augmentation: What to do to them.
        size: Side of the views in pixels.
        seed: Random seed.
        n_views: Number of views of each image.
    """
    views = []
    for view in range(n_views):
        rng = CounterRNG(seed, visits, ids, view)
        if isinstance(augmentation, CustomAugmentation):
            views.append(custom_view(images, rng, augmentation, size=size))
        else:
            views.append(one_view(images, rng, augmentation, size=size))
    return torch.stack(views, dim=1)


def custom_view(images: Tensor, rng: CounterRNG, augmentation: CustomAugmentation, *, size: int) -> Tensor:
    """Return one view of each image in [0, 1] by a caller's augmentation.

    Its random seed is a function of the images of the batch, their visits and the view: a resumed run gets the same
    views, but another division of a batch over processes or micro-batches gets others.

    Raises:
        InputValueError: The views have another shape or type.
    """
    views = augmentation.augment(images, int(rng.bits("augmentation").sum()) % 2**63)
    shape = (*images.shape[:2], size, size)
    if not isinstance(views, Tensor) or views.shape != shape:
        got = tuple(views.shape) if isinstance(views, Tensor) else type(views).__name__
        requirement = f"augmentation must return a tensor of shape {shape}, images of the network's input size"
        raise InputValueError(checks.wording("views", requirement, got))
    if views.dtype != torch.uint8 and not views.is_floating_point():
        requirement = "augmentation must return uint8, or floating-point values in [0, 1]"
        raise InputValueError(checks.wording("views", requirement, views.dtype))
    return views.float() / 255 if views.dtype == torch.uint8 else views.float()


def one_view(images: Tensor, rng: CounterRNG, augmentation: Augmentation, *, size: int) -> Tensor:
    """Return one view of each image in [0, 1], of `size`; of the image's own size if it is not resampled."""
    if augmentation.whole_shift:
        images = shifted(images, rng, augmentation)
    x = images.float().div_(255)
    if augmentation.is_resampled:
        height, width = images.shape[-2:]
        # A view smaller than its image is sampled on a finer grid and averaged: otherwise pixels between the grid
        # points would be skipped, which aliases.
        oversampling = math.ceil(max(height, width) / size)
        maps = affine_maps(rng, augmentation, height, width)
        grid = sampling_grid(maps, size * oversampling, rotated=augmentation.rotation > 0)
        x = grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)
        x = avg_pool2d(x, oversampling) if oversampling > 1 else x
    if augmentation.jitter is not None and x.shape[1] == 3:
        x = jitter(x, rng, augmentation.jitter, augmentation.jitter_probability)
    if augmentation.grey and x.shape[1] == 3:
        is_grey = rng.bernoulli("grey", augmentation.grey)
        x = torch.where(is_grey[:, None, None, None], grey(x), x)
    if augmentation.noise:
        x = (x + augmentation.noise * pixel_noise(rng, x)).clamp_(0, 1)
    return x


def affine_maps(rng: CounterRNG, augmentation: Augmentation, height: int, width: int) -> Tensor:
    """Return affine maps (n, 2, 3) from coordinates in the view to coordinates in the image, both in [-1, 1]."""
    scale_x, scale_y, centre_x, centre_y = crop_boxes(rng, augmentation, height, width)
    flip = torch.where(flips(rng, augmentation), -1.0, 1.0)
    angle = rng.uniform("rotation", -1, 1) * math.radians(augmentation.rotation)
    zoom = rng.uniform("zoom", *augmentation.zoom)
    shift_x, shift_y = (2 * augmentation.shift * rng.uniform(f"shift/{axis}", -1, 1) for axis in "xy")
    cos, sin = angle.cos() / zoom, angle.sin() / zoom
    rows = [
        torch.stack([scale_x * flip * cos, -scale_x * sin, centre_x + shift_x], dim=1),
        torch.stack([scale_y * flip * sin, scale_y * cos, centre_y + shift_y], dim=1),
    ]
    return torch.stack(rows, dim=1)


def flips(rng: CounterRNG, augmentation: Augmentation) -> Tensor:
    """Return which images are flipped (n,)."""
    if not augmentation.alternate_flips or not augmentation.flip:
        return rng.bernoulli("flip", augmentation.flip)
    first = replace(rng, visits=torch.zeros_like(rng.visits), view=0).bernoulli("flip", augmentation.flip)
    return first ^ ((rng.visits + rng.view) % 2 == 1)


def shifted(images: Tensor, rng: CounterRNG, augmentation: Augmentation) -> Tensor:
    """Return images (n, c, h, w) shifted by whole pixels, with reflected edges, and flipped."""
    indices = []
    for axis, side in zip("yx", images.shape[-2:], strict=True):
        most = min(round(augmentation.whole_shift * side), side - 1)
        shift = (rng.uniform(f"shift/{axis}") * (2 * most + 1)).long() - most  # -most to most
        at = (torch.arange(side, device=images.device) + shift[:, None]).abs()
        indices.append(side - 1 - (side - 1 - at).abs())
    rows, columns = indices
    columns = torch.where(flips(rng, augmentation)[:, None], columns.flip(1), columns)
    positions = rows[:, :, None] * images.shape[-1] + columns[:, None, :]  # in the flattened image: (n, h, w)
    # One gather takes a ninth of the time of indexing by rows and columns.
    return images.flatten(2).gather(2, positions.flatten(1)[:, None].expand(-1, images.shape[1], -1)).view_as(images)


def sampling_grid(maps: Tensor, size: int, *, rotated: bool) -> Tensor:
    """Return the image coordinates (n, size, size, 2) of each pixel of the view, as torch's affine_grid."""
    if rotated:
        return affine_grid(maps, [len(maps), 1, size, size], align_corners=False)
    # Without a rotation, columns depend on x alone and rows on y alone, which takes a third of the time.
    coordinates = (torch.arange(size, device=maps.device) * 2 + 1) / size - 1
    grid = maps.new_empty(len(maps), size, size, 2)
    grid[..., 0] = torch.addcmul(maps[:, 0, 2:], maps[:, 0, :1], coordinates)[:, None, :]
    grid[..., 1] = torch.addcmul(maps[:, 1, 2:], maps[:, 1, 1:2], coordinates)[:, :, None]
    return grid


def crop_boxes(rng: CounterRNG, augmentation: Augmentation, height: int, width: int) -> tuple[Tensor, ...]:
    """Return width, height and centre (x, y) of each image's crop: sides as fractions, centres in [-1, 1].

    As torchvision's RandomResizedCrop: ten attempts at an area and an aspect ratio that fit, in whole pixels; then the
    largest centre crop that the aspect ratios allow.
    """
    one = torch.ones(len(rng.ids), device=rng.ids.device)
    if augmentation.crop_area is None:
        return one, one, 0 * one, 0 * one
    low, high = (math.log(ratio) for ratio in augmentation.crop_ratio)
    tries = range(CROP_TRIES)
    areas = rng.uniforms([f"crop/area/{i}" for i in tries], *augmentation.crop_area) * (height * width)
    ratios = rng.uniforms([f"crop/ratio/{i}" for i in tries], low, high).exp()
    widths, heights = (areas * ratios).sqrt().round(), (areas / ratios).sqrt().round()  # (tries, n)
    fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
    fitted, first = fits.any(dim=0), fits.int().argmax(dim=0, keepdim=True)
    narrowest, widest = augmentation.crop_ratio
    centre = min(width, round(height * widest)), min(height, round(width / narrowest))
    wide, tall = (
        torch.where(fitted, x.gather(0, first)[0], other) for x, other in zip((widths, heights), centre, strict=True)
    )
    # A whole number of pixels from the left and from the top; centred where no attempt fitted.
    left, top = (
        torch.where(fitted, (rng.uniform(f"crop/{side}") * (full - part + 1)).floor(), ((full - part) / 2).floor())
        for side, full, part in (("left", width, wide), ("top", height, tall))
    )
    return wide / width, tall / height, (2 * left + wide) / width - 1, (2 * top + tall) / height - 1


def pixel_noise(rng: CounterRNG, like: Tensor) -> Tensor:
    """Return standard normal noise for each pixel, which does not depend on the other images of the batch."""
    pixels = torch.arange(like[0].numel(), device=like.device)
    counters = (rng.ids[:, None] * len(pixels) + pixels).flatten()
    visits = rng.visits.repeat_interleave(len(pixels))
    return CounterRNG(rng.seed, visits, counters, rng.view).normal("noise").view_as(like)
