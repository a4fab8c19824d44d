"""Loaders give the same batch for the same step, and all test images once, in order, un-augmented."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sincere.data.dataset import image_set
from sincere.data.images import TensorImages
from sincere.data.loader import ViewLoader, plain_batches
from sincere.data.samplers import ShuffleSampler
from sincere.data.views import AUGMENTATIONS, Preparation

PREPARATION = Preparation(8, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))


@pytest.fixture
def loader() -> ViewLoader:
    pixels = torch.randint(0, 256, (50, 3, 8, 8), dtype=torch.uint8)
    images = image_set(TensorImages(pixels), np.arange(50) % 5, first_id=1000).subset(np.arange(3, 45))
    return ViewLoader(images, ShuffleSampler(images.labels, 10, seed=2), AUGMENTATIONS["paper"], PREPARATION, seed=2)


def test_batches_from_any_step_on(loader: ViewLoader) -> None:
    straight = list(loader.batches(0, 9))
    resumed = list(loader.batches(5, 9))
    assert len(straight) == 9
    for a, b in zip(straight[5:], resumed, strict=True):
        assert torch.equal(a.inputs, b.inputs)
        assert torch.equal(a.ids, b.ids)
    assert straight[0].inputs.shape == (10, 2, 3, 8, 8)
    assert list(loader.batches(4, 4)) == []


def test_images_labels_and_ids_belong_together(loader: ViewLoader) -> None:
    for batch in loader.batches(0, 8):
        assert torch.equal(batch.labels, (batch.ids - 1000) % 5)
        assert batch.ids.min() >= 1003
        assert batch.ids.max() < 1045


def test_an_error_in_the_background_comes_out(loader: ViewLoader) -> None:
    object.__setattr__(loader, "n_views", 0)
    with pytest.raises(RuntimeError):
        next(iter(loader.batches(0, 2)))


def test_plain_batches(loader: ViewLoader) -> None:
    batches = list(plain_batches(loader.images, PREPARATION, batch_size=16))
    assert torch.cat([batch.ids for batch in batches]).tolist() == list(range(1003, 1045))
    inputs = torch.cat([batch.inputs for batch in batches])
    expected = PREPARATION.plain(loader.images.images.gather(loader.images.positions))
    torch.testing.assert_close(inputs, expected)
