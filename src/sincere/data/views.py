"""Augmented views of a whole batch on its device, each image with its own random parameters.

Geometry (crop, flip, rotation, shift, zoom) is one affine map per image, sampled once. Every draw is a function of
(seed, epoch, image id, view, purpose): see `draws`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, interpolate

from sincere import checks
from sincere.data.colour import grey, jitter
from sincere.data.draws import Draws

CROP_TRIES = 10  # as torchvision: then the centre


@dataclass(frozen=True)
class Augmentation:
    """A named set of random changes; 0, 1 or None leave one out.

    Attributes:
        crop_area: Share of the area that a crop keeps, from and to.
        crop_ratio: Width over height of a crop, from and to, uniform in the logarithm.
        flip: Chance of a horizontal flip.
        jitter: Strength of brightness, contrast, saturation and hue changes.
        jitter_chance: Chance that an image is jittered at all.
        grey: Chance that an image loses its colours.
        rotation: Largest rotation, in degrees.
        shift: Largest shift, as a share of the side.
        zoom: Smallest and largest zoom.
        noise: Standard deviation of pixel noise, in shares of the full range.
    """

    crop_area: tuple[float, float] | None = None
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.0
    jitter: tuple[float, float, float, float] | None = None
    jitter_chance: float = 0.8
    grey: float = 0.0
    rotation: float = 0.0
    shift: float = 0.0
    zoom: tuple[float, float] = (1.0, 1.0)
    noise: float = 0.0

    @property
    def moves(self) -> bool:
        """Tell whether pixels change their place."""
        geometry = (self.crop_area, self.flip, self.rotation, self.shift, self.zoom)
        return geometry != (None, 0.0, 0.0, 0.0, (1.0, 1.0))


AUGMENTATIONS: dict[str, Augmentation] = {
    "paper": Augmentation(crop_area=(0.2, 1.0), flip=0.5, jitter=(0.4, 0.4, 0.4, 0.1), grey=0.2),
    "light": Augmentation(crop_area=(0.7, 1.0), flip=0.5),
    "digits": Augmentation(rotation=12.0, shift=0.1, zoom=(0.9, 1.1), noise=0.05),
    "none": Augmentation(),
}


def named_augmentation(name: str, *, mirror_is_same_class: bool = True) -> Augmentation:
    """Return a named set, without its flips for data whose mirror images are of another class or of none."""
    chosen = AUGMENTATIONS[checks.choice("views", "augmentation", name, AUGMENTATIONS)]
    return chosen if mirror_is_same_class else replace(chosen, flip=0.0)


@dataclass(frozen=True, eq=False)
class Preparation:
    """How pixels become network input: size, and mean and standard deviation of each channel, in shares of 255."""

    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def normalize(self, images: Tensor) -> Tensor:
        """Return (x - mean) / std for images in [0, 1]."""
        mean, std = (torch.tensor(x, device=images.device)[:, None, None] for x in (self.mean, self.std))
        return (images - mean) / std

    def resize(self, images: Tensor) -> Tensor:
        """Return images of the asked size, antialiased."""
        if images.shape[-2:] == (self.size, self.size):
            return images
        return interpolate(images, (self.size, self.size), mode="bilinear", antialias=True, align_corners=False)

    def plain(self, images: Tensor) -> Tensor:
        """Return un-augmented input for uint8 images (n, c, h, w): resized, normalised, nothing random."""
        return self.normalize(self.resize(images.float().div_(255)))


def make_views(
    images: Tensor,
    ids: Tensor,
    augmentation: Augmentation,
    preparation: Preparation,
    *,
    seed: int,
    epoch: int,
    n_views: int,
) -> Tensor:
    """Return (n, views, c, size, size) float views of uint8 images (n, c, h, w)."""
    return torch.stack(
        [one_view(images, Draws(seed, epoch, ids, view), augmentation, preparation) for view in range(n_views)], dim=1
    )


def one_view(images: Tensor, draws: Draws, augmentation: Augmentation, preparation: Preparation) -> Tensor:
    """Return one view of each image, normalised."""
    size = preparation.size
    x = images.float().div_(255)
    if augmentation.moves:
        grid = sampling_grid(
            affine_maps(draws, augmentation, *images.shape[-2:]), size, turned=augmentation.rotation > 0
        )
        x = grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)
    else:
        x = preparation.resize(x)
    if augmentation.jitter is not None and x.shape[1] == 3:
        x = jitter(x, draws, augmentation.jitter, augmentation.jitter_chance)
    if augmentation.grey and x.shape[1] == 3:
        colourless = draws.chance("grey", augmentation.grey)
        x = torch.where(colourless[:, None, None, None], grey(x), x)
    if augmentation.noise:
        x = (x + augmentation.noise * pixel_noise(draws, x)).clamp_(0, 1)
    return preparation.normalize(x)


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

    As torchvision's RandomResizedCrop: ten tries for an area and a ratio that fit, whole pixels, else the centre.
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
    wide, tall = (torch.where(fitted, x.gather(0, first)[0], min(width, height)) for x in (widths, heights))
    # A whole number of pixels from the left and from the top; the middle where no try fitted.
    left = torch.where(fitted, (draws.uniform("crop/left") * (width - wide + 1)).floor(), (width - wide) / 2)
    top = torch.where(fitted, (draws.uniform("crop/top") * (height - tall + 1)).floor(), (height - tall) / 2)
    return wide / width, tall / height, (2 * left + wide) / width - 1, (2 * top + tall) / height - 1


def pixel_noise(draws: Draws, like: Tensor) -> Tensor:
    """Return standard normal noise for each pixel, a function of the image's draws alone."""
    pixels = torch.arange(like[0].numel(), device=like.device)
    counters = (draws.ids[:, None] * len(pixels) + pixels).flatten()
    return Draws(draws.seed, draws.epoch, counters, draws.view).normal("noise").view_as(like)
