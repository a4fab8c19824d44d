"""Data loaders give the same batch for the same step; plain batches are in order and not augmented."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sincere.catalog import AUGMENTATIONS
from sincere.data.dataset import Samples, all_samples
from sincere.data.loader import ViewLoader, plain_batches
from sincere.data.pixel_storage import TensorImages
from sincere.data.samplers import BalancedSampler, Sampler, ShuffleSampler
from sincere.data.views import ViewMaker, view_maker
from sincere.errors import InputTypeError, InputValueError


def paper_views(seed: int) -> ViewMaker:
    return view_maker(AUGMENTATIONS["paper"], size=8, seed=seed)


@pytest.fixture
def loader() -> ViewLoader:
    pixels = torch.randint(0, 256, (50, 3, 8, 8), dtype=torch.uint8)
    images = all_samples(TensorImages(pixels), np.arange(50) % 5, ids=np.arange(1000, 1050)).subset(np.arange(3, 45))
    return ViewLoader(images, ShuffleSampler(images.labels, 10, seed=2), paper_views(2))


def test_batches_from_any_step_on(loader: ViewLoader) -> None:
    straight = list(loader.batches(0, 9))
    resumed = list(loader.batches(5, 9))
    assert len(straight) == 9
    for a, b in zip(straight[5:], resumed, strict=True):
        assert torch.equal(a.inputs, b.inputs)
        assert torch.equal(a.ids, b.ids)
    assert straight[0].inputs.shape == (10, 2, 3, 8, 8)
    assert list(loader.batches(4, 4)) == []


def test_the_end_of_a_run_may_have_other_views(loader: ViewLoader) -> None:
    plain = view_maker(AUGMENTATIONS["none"], size=8, seed=2)
    changed = replace(loader, late_views=plain, late_from=6)
    for step, (before, after) in enumerate(zip(loader.batches(0, 9), changed.batches(0, 9), strict=True)):
        assert torch.equal(before.ids, after.ids), "the batches stay"
        assert torch.equal(before.inputs, after.inputs) == (step < 6)
        if step >= 6:
            rows = loader.samples.items.gather(after.ids.numpy() - 1000).float() / 255
            assert torch.equal(after.inputs, rows[:, None].expand(-1, 2, -1, -1, -1)), "the images as they are"
    (resumed,) = changed.batches(7, 8)
    assert torch.equal(resumed.inputs, list(changed.batches(0, 8))[7].inputs)


def test_images_labels_and_ids_belong_together(loader: ViewLoader) -> None:
    for batch in loader.batches(0, 8):
        assert torch.equal(batch.labels, (batch.ids - 1000) % 5)
        assert batch.ids.min() >= 1003
        assert batch.ids.max() < 1045


def views_of(images: Samples, sampler: Sampler, seed: int, n_steps: int) -> dict[int, list[bytes]]:
    """All views that each image gets."""
    shown: dict[int, list[bytes]] = {}
    for batch in ViewLoader(images, sampler, paper_views(seed)).batches(0, n_steps):
        for image, views in zip(batch.ids.tolist(), batch.inputs, strict=True):
            shown.setdefault(image, []).extend(view.numpy().tobytes() for view in views)
    return shown


def test_an_image_gets_new_views_each_time(loader: ViewLoader) -> None:
    """In each epoch; where a class is smaller than its share, also within an epoch and within a batch."""
    epochs = views_of(loader.samples, loader.sampler, 2, 3 * loader.sampler.n_batches)
    labels = np.r_[np.zeros(90, dtype=np.int64), np.ones(6, dtype=np.int64)]
    images = all_samples(TensorImages(torch.randint(0, 256, (96, 3, 8, 8), dtype=torch.uint8)), labels)
    uneven = BalancedSampler(labels, 32)
    assert len(set(uneven.batch(0).tolist())) < 32, "some images come more than once in a batch"
    within = views_of(images, uneven, 2, 2 * uneven.n_batches)
    for shown in (epochs, within):
        assert max(map(len, shown.values())) >= 6
        assert all(len(set(views)) == len(views) for views in shown.values())


def test_another_seed_gives_other_views_of_the_same_images(loader: ViewLoader) -> None:
    first, second = (views_of(loader.samples, loader.sampler, seed, 2) for seed in (2, 3))
    assert first.keys() == second.keys()
    assert not any(set(first[image]) & set(second[image]) for image in first)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_views": 0}, InputValueError, "n_views must be an integer of at least 1; got 0"),
        ({"size": 2.5}, InputTypeError, "size must be an integer of at least 1; got float"),
        ({"seed": -1}, InputValueError, "seed must be an integer of at least 0; got -1"),
    ],
)
def test_bad_arguments(options: dict[str, Any], error: type[Exception], message: str, loader: ViewLoader) -> None:
    with pytest.raises(error) as caught:
        view_maker(AUGMENTATIONS["paper"], **{"size": 8, **options})
    assert str(caught.value) == f"view_maker: {message}"
    with pytest.raises(InputValueError) as at_once:
        plain_batches(loader.samples, batch_size=0)
    assert str(at_once.value) == "plain_batches: batch_size must be an integer of at least 1; got 0"


def test_numpy_integers_are_accepted(loader: ViewLoader) -> None:
    options: dict[str, Any] = {"seed": np.int64(2), "n_views": np.int64(2), "size": np.int32(8)}
    other = replace(loader, make_views=view_maker(AUGMENTATIONS["paper"], **options))
    assert torch.equal(other.batch(3).inputs, loader.batch(3).inputs)


def test_an_error_in_a_prefetching_thread_is_raised(loader: ViewLoader) -> None:
    def fail(items: Tensor, ids: Tensor, visits: Tensor) -> Tensor:
        raise RuntimeError("no views today")

    with pytest.raises(RuntimeError, match="no views today"):
        next(iter(replace(loader, make_views=fail).batches(0, 2)))


def test_plain_batches(loader: ViewLoader) -> None:
    batches = list(plain_batches(loader.samples, batch_size=16))
    assert torch.cat([batch.ids for batch in batches]).tolist() == list(range(1003, 1045))
    pixels = torch.cat([batch.inputs for batch in batches])
    assert torch.equal(pixels, loader.samples.items.gather(loader.samples.positions))
