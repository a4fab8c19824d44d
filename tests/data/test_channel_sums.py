"""Mean and standard deviation from exact sums equal those from counts of the values, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sincere.data.channel_sums import channel_sums, mean_and_std
from sincere.data.dataset import all_samples, channel_statistics
from sincere.data.pixel_storage import TensorImages


@pytest.mark.parametrize("side", [1, 7, 192, 258, 259, 600])
@pytest.mark.parametrize("low", [0, 250, 255])
def test_sums_are_exact(side: int, low: int) -> None:
    """Also where float32 would round: all values large, wide rows."""
    image = np.random.default_rng(side).integers(low, 256, (3, side, side), dtype=np.uint8)
    flat = image.astype(np.int64).reshape(3, -1)
    assert np.array_equal(channel_sums(image), np.stack([flat.sum(axis=1), (flat**2).sum(axis=1)], axis=1))


def test_statistics_equal_those_from_counts() -> None:
    images = np.random.default_rng(0).integers(0, 256, (50, 3, 17, 17), dtype=np.uint8)
    images[:, 2] = 7
    sums = np.sum([channel_sums(image) for image in images], axis=0)
    expected = channel_statistics(all_samples(TensorImages(torch.from_numpy(images)), np.zeros(50, dtype=np.int64)))
    assert mean_and_std(sums, 50 * 17 * 17) == expected
    assert expected[1][2] == 1.0, "of a constant channel"
