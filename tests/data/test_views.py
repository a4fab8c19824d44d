"""Views have torchvision's distributions and depend on the image alone, not on its batch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
import torchvision.transforms.functional as torchvision_functional
from PIL import Image
from scipy import stats
from torchvision.transforms import ColorJitter, RandomResizedCrop

from sincere.data.colour import _OPERATIONS, grey, jitter
from sincere.data.counter_rng import CounterRNG
from sincere.data.views import (
    AUGMENTATIONS,
    Augmentation,
    affine_maps,
    crop_boxes,
    flips,
    make_views,
    named_augmentation,
    one_view,
    sampling_grid,
)

IDS = torch.arange(4000)


def rng_of(seed: int, visit: int, ids: torch.Tensor, view: int) -> CounterRNG:
    """All images at the same visit."""
    return CounterRNG(seed, torch.full_like(ids, visit), ids, view)


def images(n: int, *, channels: int = 3, side: int = 16) -> torch.Tensor:
    return torch.randint(0, 256, (n, channels, side, side), dtype=torch.uint8)


@pytest.mark.parametrize("name", AUGMENTATIONS)
@pytest.mark.parametrize("channels", [1, 3])
def test_any_split_or_order_of_the_batch_gives_the_same_views(name: str, channels: int) -> None:
    x, ids = images(60, channels=channels), torch.randperm(1000)[:60]
    visits, options = torch.randint(0, 9, (60,)), {"size": 16, "seed": 3, "n_views": 2}
    whole = make_views(x, ids, visits, AUGMENTATIONS[name], **options)
    assert whole.shape == (60, 2, channels, 16, 16)
    parts = [
        make_views(*part, AUGMENTATIONS[name], **options)
        for part in zip(x.split(17), ids.split(17), visits.split(17), strict=True)
    ]
    torch.testing.assert_close(torch.cat(parts), whole, atol=1e-6, rtol=0)
    order = torch.randperm(60)
    shuffled = make_views(x[order], ids[order], visits[order], AUGMENTATIONS[name], **options)
    torch.testing.assert_close(shuffled, whole[order], atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ["paper", "light", "shifts", "digits"])
def test_views_visits_and_seeds_differ(name: str) -> None:
    x, ids = images(20), torch.arange(20)
    views = make_views(x, ids, torch.zeros_like(ids), AUGMENTATIONS[name], size=16, seed=0, n_views=2)
    assert not torch.allclose(views[:, 0], views[:, 1])
    for seed, visit in ((1, 0), (0, 1)):
        other = make_views(x, ids, torch.full_like(ids, visit), AUGMENTATIONS[name], size=16, seed=seed, n_views=2)
        assert not torch.allclose(views, other)


def test_none_changes_nothing() -> None:
    x = images(5)
    view = one_view(x, rng_of(0, 0, torch.arange(5), 0), AUGMENTATIONS["none"], size=8)
    torch.testing.assert_close(view, x.float() / 255)


def test_whole_shifts_are_crops_of_the_reflected_image() -> None:
    """Each of the 25 shifts of 2 px is equally likely, and the flips of an image alternate."""
    x, ids = torch.rand(1, 3, 32, 32).mul(255).byte(), torch.arange(2000)
    padded = torch.nn.functional.pad(x.float() / 255, (2, 2, 2, 2), mode="reflect")[0]
    crops = torch.stack([padded[:, i : i + 32, j : j + 32] for i in range(5) for j in range(5)])
    crops = torch.cat([crops, crops.flip(3)])  # 25 as they are, 25 flipped
    flipped = []
    for visit, view in ((0, 0), (1, 0), (1, 1), (2, 0)):
        views = one_view(x.expand(2000, -1, -1, -1), rng_of(1, visit, ids, view), AUGMENTATIONS["shifts"], size=32)
        which = torch.cdist(views.flatten(1), crops.flatten(1)).argmin(dim=1)
        assert torch.equal(views, crops[which])
        assert stats.chisquare(torch.bincount(which % 25, minlength=25).numpy()).pvalue > 1e-4
        flipped.append(which >= 25)
    assert 0.45 < flipped[0].float().mean() < 0.55
    assert torch.equal(flipped[1], ~flipped[0])
    assert torch.equal(flipped[2], flipped[0])
    assert torch.equal(flipped[3], flipped[0])
    digits = named_augmentation("shifts", mirror_is_same_class=False)
    assert not flips(rng_of(1, 1, ids, 0), digits).any()


@pytest.mark.parametrize(("height", "width"), [(32, 32), (48, 30)])
def test_crops_are_distributed_as_torchvisions(height: int, width: int) -> None:
    augmentation = AUGMENTATIONS["paper"]
    wide, tall, x, y = crop_boxes(rng_of(0, 0, IDS, 0), augmentation, height, width)
    boxes = np.array(
        [
            RandomResizedCrop.get_params(torch.empty(3, height, width), scale=(0.2, 1.0), ratio=(3 / 4, 4 / 3))
            for _ in range(4000)
        ]
    )
    top, left, their_tall, their_wide = boxes.T
    ours = {
        "area": wide * tall,
        "ratio": wide * width / (tall * height),
        "left": ((x + 1) * width - wide * width) / 2,
        "top": ((y + 1) * height - tall * height) / 2,
    }
    theirs = {
        "area": their_wide * their_tall / (height * width),
        "ratio": their_wide / their_tall,
        "left": left,
        "top": top,
    }
    for name, values in ours.items():
        assert stats.ks_2samp(values.numpy(), theirs[name]).pvalue > 1e-4, name


@pytest.mark.parametrize(("height", "width"), [(48, 12), (12, 48), (49, 13), (10, 10), (40, 30)])
def test_the_fallback_crop_is_torchvisions(height: int, width: int) -> None:
    """Areas larger than the image never fit."""
    wide, tall, x, y = crop_boxes(rng_of(0, 0, IDS[:2], 0), Augmentation(crop_area=(5.0, 6.0)), height, width)
    top, left, their_tall, their_wide = RandomResizedCrop.get_params(
        torch.empty(3, height, width), scale=(5.0, 6.0), ratio=(3 / 4, 4 / 3)
    )
    ours = [((y + 1) * height - tall * height) / 2, ((x + 1) * width - wide * width) / 2, tall * height, wide * width]
    expected = torch.tensor([top, left, their_tall, their_wide], dtype=torch.float32)
    torch.testing.assert_close(torch.stack(ours, dim=1), expected.expand(2, 4), atol=1e-4, rtol=0)


@pytest.mark.parametrize(("side", "size"), [(64, 32), (48, 48)])
def test_smaller_views_are_antialiased_as_torchvisions(side: int, size: int) -> None:
    """Noise keeps the standard deviation of torchvision's antialiased resize; without averaging, a third more."""
    x, augmentation = images(200, side=side), Augmentation(crop_area=(0.2, 1.0))
    rng = rng_of(0, 0, torch.arange(200), 0)
    view = one_view(x, rng, augmentation, size=size)
    boxes = torch.stack(crop_boxes(rng, augmentation, side, side), dim=1)
    theirs = []
    for image, (wide, tall, cx, cy) in zip(x, boxes.tolist(), strict=True):
        top, left = (round(((centre + 1) - part) * side / 2) for centre, part in ((cy, tall), (cx, wide)))
        theirs.append(
            torchvision_functional.resized_crop(
                image / 255, top, left, round(tall * side), round(wide * side), [size, size], antialias=True
            )
        )
    assert float(view.std() / torch.stack(theirs).std()) == pytest.approx(1, abs=0.05)


def test_rotation_and_zoom_are_uniform_over_their_range() -> None:
    rotated = affine_maps(rng_of(0, 0, IDS, 0), Augmentation(rotation=12.0), 20, 20)
    angles = torch.rad2deg(torch.atan2(rotated[:, 1, 0], rotated[:, 0, 0]))
    assert stats.kstest(angles.numpy(), stats.uniform(-12, 24).cdf).pvalue > 1e-4
    zoomed = affine_maps(rng_of(0, 0, IDS, 0), Augmentation(zoom=(0.8, 1.2)), 20, 20)
    assert stats.kstest((1 / zoomed[:, 0, 0]).numpy(), stats.uniform(0.8, 0.4).cdf).pvalue > 1e-4


def test_a_view_shows_its_crop_box() -> None:
    """Pixel values are x coordinates: the mean of a view is the centre of its crop."""
    side = 64
    ramp = torch.linspace(0, 255, side).round().to(torch.uint8).expand(3, side, side)
    x = ramp.expand(200, 3, side, side)
    rng = rng_of(5, 0, torch.arange(200), 0)
    view = one_view(x, rng, Augmentation(crop_area=(0.2, 1.0)), size=16)
    centre = crop_boxes(rng, AUGMENTATIONS["paper"], side, side)[2]
    torch.testing.assert_close(view.mean(dim=(1, 2, 3)), (centre + 1) / 2, atol=0.02, rtol=0)


def test_flip_rate_and_flip() -> None:
    ramp = torch.arange(16, dtype=torch.uint8).mul(16).expand(4000, 3, 16, 16)
    view = one_view(ramp, rng_of(0, 0, IDS, 0), Augmentation(flip=0.5), size=16)
    flipped = view[:, 0, 0, 0] > view[:, 0, 0, -1]
    assert flipped.float().mean() == pytest.approx(0.5, abs=0.03)
    torch.testing.assert_close(view[flipped][0], ramp[0].flip(-1).float() / 255)
    torch.testing.assert_close(view[~flipped][0], ramp[0].float() / 255)


@pytest.mark.parametrize(
    ("operation", "theirs", "factors"),
    [
        (0, torchvision_functional.adjust_brightness, (0.6, 1.0, 1.4)),
        (1, torchvision_functional.adjust_contrast, (0.6, 1.0, 1.4)),
        (2, torchvision_functional.adjust_saturation, (0.6, 1.0, 1.4)),
        (3, torchvision_functional.adjust_hue, (-0.1, 0.0, 0.1, 0.45)),
    ],
)
def test_colour_changes_are_torchvisions(operation: int, theirs: object, factors: tuple[float, ...]) -> None:
    x = torch.rand(20, 3, 8, 8)
    x[0], x[1, 0], x[2] = 0.5, 1.0, 0.0  # grey, saturated, black
    for factor in factors:
        ours = x.clone()
        shape = (20, 1, 1) if operation == 3 else (20, 1, 1, 1)
        _OPERATIONS[operation](ours, torch.full(shape, factor))
        torch.testing.assert_close(ours, theirs(x, factor), atol=2e-3, rtol=0)
    torch.testing.assert_close(grey(x), torchvision_functional.rgb_to_grayscale(x), atol=1e-3, rtol=0)


def test_jitter_is_distributed_as_torchvisions() -> None:
    """One colour, many images: the channel means after jitter, and the fraction of unchanged images."""
    colour = torch.tensor([200, 120, 60], dtype=torch.uint8)[:, None, None].expand(4000, 3, 4, 4)
    augmentation = Augmentation(jitter=(0.4, 0.4, 0.4, 0.1))
    view = one_view(colour, rng_of(0, 0, IDS, 0), augmentation, size=4)
    changed = (view - colour / 255).abs().amax(dim=(1, 2, 3)) > 1e-3
    assert changed.float().mean() == pytest.approx(0.8, abs=0.03)
    transform = ColorJitter(0.4, 0.4, 0.4, 0.1)
    picture = (colour[0] / 255).float()
    theirs = torch.stack([transform(picture).mean(dim=(1, 2)) for _ in range(3000)])
    ours = view[changed].mean(dim=(2, 3))
    for channel in range(3):
        assert stats.ks_2samp(ours[:, channel].numpy(), theirs[:, channel].numpy()).pvalue > 1e-4


def test_each_image_has_its_own_order_of_colour_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """All 24 orders are equally frequent: each operation appends its number as a digit."""

    def writer(number: int) -> Callable[[torch.Tensor, torch.Tensor], None]:
        return lambda group, factor: group.copy_(group * 10 + number + 1)

    monkeypatch.setattr("sincere.data.colour._OPERATIONS", [writer(i) for i in range(4)])
    written = jitter(torch.zeros(4000, 3, 1, 1), rng_of(0, 0, IDS, 0), (0.4, 0.4, 0.4, 0.1), 1.0)[:, 0, 0, 0]
    orders, counts = written.unique(return_counts=True)
    assert len(orders) == 24
    assert stats.chisquare(counts.numpy()).pvalue > 1e-4


def test_grey_rate() -> None:
    view = one_view(images(4000, side=4), rng_of(0, 0, IDS, 0), Augmentation(grey=0.2), size=4)
    is_grey = (view[:, 0] == view[:, 1]).flatten(1).all(dim=1)
    assert is_grey.float().mean() == pytest.approx(0.2, abs=0.025)


def test_digits_moves_a_little() -> None:
    """A dot stays within the largest shift, rotation and zoom of where it was."""
    x = torch.zeros(1000, 1, 33, 33, dtype=torch.uint8)
    x[:, :, 15:18, 23:26] = 255
    augmentation = AUGMENTATIONS["digits"]
    view = one_view(x, rng_of(0, 0, torch.arange(1000), 0), augmentation, size=33)
    weight = view.clamp_min(0.5).sub(0.5)[:, 0]
    coordinates = torch.arange(33.0)
    centre = (weight.sum(dim=1) * coordinates).sum(dim=1) / weight.sum(dim=(1, 2))
    assert (centre - 24).abs().max() < 33 * augmentation.shift + 8 * 0.15 + 1.5
    assert (centre - 24).std() > 1
    noise = view[:, 0, 0, 0]
    assert 0 < noise.std() < 2 * augmentation.noise
    assert math.isclose(float(noise.min()), 0.0, abs_tol=1e-6)


def test_pil_agrees_on_a_crop() -> None:
    """The same box cut and resized by PIL: up-sampled crops are equal but for the border and rounding."""
    smooth = torch.nn.functional.interpolate(torch.rand(50, 3, 4, 4), (32, 32), mode="bicubic").clamp(0, 1)
    x = (smooth * 255).round().to(torch.uint8)
    rng = rng_of(1, 0, torch.arange(50), 0)
    view = one_view(x, rng, Augmentation(crop_area=(0.2, 0.6)), size=32)
    wide, tall, cx, cy = crop_boxes(rng, Augmentation(crop_area=(0.2, 0.6)), 32, 32)
    for i in range(50):
        w, h = float(wide[i]) * 32, float(tall[i]) * 32
        left, top = ((float(cx[i]) + 1) * 32 - w) / 2, ((float(cy[i]) + 1) * 32 - h) / 2
        picture = Image.fromarray(x[i].permute(1, 2, 0).numpy())
        box = (round(left), round(top), round(left + w), round(top + h))
        cut = picture.crop(box).resize((32, 32), Image.Resampling.BILINEAR)
        theirs = torch.from_numpy(np.array(cut)).permute(2, 0, 1) / 255
        assert (view[i] - theirs)[:, 3:-3, 3:-3].abs().max() < 0.02


def test_the_fast_sampling_grid_equals_torchs() -> None:
    rng = rng_of(3, 1, torch.arange(40), 1)
    maps = affine_maps(rng, replace(AUGMENTATIONS["paper"], shift=0.1, zoom=(0.8, 1.2)), 20, 31)
    expected = sampling_grid(maps, 9, rotated=True)
    torch.testing.assert_close(sampling_grid(maps, 9, rotated=False), expected, rtol=0, atol=1e-6)


def test_uniforms_equals_uniform_for_each_purpose() -> None:
    rng = rng_of(5, 2, torch.arange(100), 0)
    together = rng.uniforms(["a", "b"], -1, 2)
    assert torch.equal(together, torch.stack([rng.uniform("a", -1, 2), rng.uniform("b", -1, 2)]))
