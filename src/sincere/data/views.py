"""Augmented views of a whole batch on its device, each image with its own random parameters.

Geometry (crop, flip, rotation, shift, zoom) is one affine map per image, sampled once. Every draw is a function of
(seed, round, image id, view, purpose): see `draws`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, avg_pool2d, grid_sample

from sincere import checks
from sincere.catalog import AUGMENTATIONS, Augmentation
from sincere.data.colour import grey, jitter
from sincere.data.counter_rng import Draws

CROP_TRIES = 10  # as torchvision: then the centre


def named_augmentation(name: str, *, mirror_is_same_class: bool = True) -> Augmentation:
    """Return a named set, without its flips for data whose mirror images are of another class or of none."""
    chosen = AUGMENTATIONS[checks.choice("views", "augmentation", name, AUGMENTATIONS)]
    return chosen if mirror_is_same_class else replace(chosen, flip=0.0)


def make_views(
    images: Tensor,
    ids: Tensor,
    rounds: Tensor,
    augmentation: Augmentation,
    *,
    size: int,
    seed: int,
    n_views: int,
) -> Tensor:
    """Return (n, views, c, size, size) views in [0, 1] of uint8 images (n, c, h, w); unmoved, they keep their size.

    `ids` (n,) say which images they are and `rounds` (n,) which of its showings this is for each: the same image gets
    other views in another round.
    """
    views = [one_view(images, Draws(seed, rounds, ids, view), augmentation, size=size) for view in range(n_views)]
    return torch.stack(views, dim=1)


def one_view(images: Tensor, draws: Draws, augmentation: Augmentation, *, size: int) -> Tensor:
    """Return one view of each image, in [0, 1]; of its own size if nothing moves, else of `size`."""
    x = images.float().div_(255)
    if augmentation.moves:
        height, width = images.shape[-2:]
        # A view smaller than its image is read at finer places and averaged: else pixels between the places
        # would be skipped and noise would stay.
        finer = math.ceil(max(height, width) / size)
        maps = affine_maps(draws, augmentation, height, width)
        grid = sampling_grid(maps, size * finer, turned=augmentation.rotation > 0)
        x = grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)
        x = avg_pool2d(x, finer) if finer > 1 else x
    if augmentation.jitter is not None and x.shape[1] == 3:
        x = jitter(x, draws, augmentation.jitter, augmentation.jitter_probability)
    if augmentation.grey and x.shape[1] == 3:
        colourless = draws.chance("grey", augmentation.grey)
        x = torch.where(colourless[:, None, None, None], grey(x), x)
    if augmentation.noise:
        x = (x + augmentation.noise * pixel_noise(draws, x)).clamp_(0, 1)
    return x


def affine_maps(draws: Draws, augmentation: Augmentation, height: int, width: int) -> Tensor:
    """Return, for each image, the affine map (2, 3) from places in the view to places in the image, in [-1, 1]."""
    scale_x, scale_y, centre_x, centre_y = crop_boxes(draws, augmentation, height, width)
    flip = torch.where(draws.chance("flip", augmentation.flip), -1.0, 1.0)
    angle = draws.uniform("rotation", -1, 1) * math.radians(augmentation.rotation)
    zoom = draws.uniform("zoom", *augmentation.zoom)
    shift_x, shift_y = (2 * augmentation.shift * draws.uniform(f"shift/{axis}", -1, 1) for axis in "xy")
    cos, sin = angle.cos() / zoom, angle.sin() / zoom
    rows = [
        torch.stack([scale_x * flip * cos, -scale_x * sin, centre_x + shift_x], dim=1),
        torch.stack([scale_y * flip * sin, scale_y * cos, centre_y + shift_y], dim=1),
    ]
    return torch.stack(rows, dim=1)


def sampling_grid(maps: Tensor, size: int, *, turned: bool) -> Tensor:
    """Return the place (n, size, size, 2) in the image of each pixel of the view, as torch's affine_grid."""
    if turned:
        return affine_grid(maps, [len(maps), 1, size, size], align_corners=False)
    # Without rotation columns depend on x alone and rows on y alone, which takes a third of the time.
    places = (torch.arange(size, device=maps.device) * 2 + 1) / size - 1
    grid = maps.new_empty(len(maps), size, size, 2)
    grid[..., 0] = torch.addcmul(maps[:, 0, 2:], maps[:, 0, :1], places)[:, None, :]
    grid[..., 1] = torch.addcmul(maps[:, 1, 2:], maps[:, 1, 1:2], places)[:, :, None]
    return grid


def crop_boxes(draws: Draws, augmentation: Augmentation, height: int, width: int) -> tuple[Tensor, ...]:
    """Return width, height and centre of each image's crop: widths as shares, centres in [-1, 1].

    As torchvision's RandomResizedCrop: ten tries for an area and a ratio that fit, in whole pixels; else the middle, as
    much of it as the ratios allow.
    """
    one = torch.ones(len(draws.ids), device=draws.ids.device)
    if augmentation.crop_area is None:
        return one, one, 0 * one, 0 * one
    low, high = (math.log(ratio) for ratio in augmentation.crop_ratio)
    tries = range(CROP_TRIES)
    areas = draws.uniforms([f"crop/area/{i}" for i in tries], *augmentation.crop_area) * (height * width)
    ratios = draws.uniforms([f"crop/ratio/{i}" for i in tries], low, high).exp()
    widths, heights = (areas * ratios).sqrt().round(), (areas / ratios).sqrt().round()  # (tries, n)
    fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
    fitted, first = fits.any(dim=0), fits.int().argmax(dim=0, keepdim=True)
    narrowest, widest = augmentation.crop_ratio
    middle = min(width, round(height * widest)), min(height, round(width / narrowest))
    wide, tall = (
        torch.where(fitted, x.gather(0, first)[0], other) for x, other in zip((widths, heights), middle, strict=True)
    )
    # A whole number of pixels from the left and from the top; the middle where no try fitted.
    left, top = (
        torch.where(fitted, (draws.uniform(f"crop/{side}") * (whole - part + 1)).floor(), ((whole - part) / 2).floor())
        for side, whole, part in (("left", width, wide), ("top", height, tall))
    )
    return wide / width, tall / height, (2 * left + wide) / width - 1, (2 * top + tall) / height - 1


def pixel_noise(draws: Draws, like: Tensor) -> Tensor:
    """Return standard normal noise for each pixel, a function of the image's draws alone."""
    pixels = torch.arange(like[0].numel(), device=like.device)
    counters = (draws.ids[:, None] * len(pixels) + pixels).flatten()
    rounds = draws.rounds.repeat_interleave(len(pixels))
    return Draws(draws.seed, rounds, counters, draws.view).normal("noise").view_as(like)
