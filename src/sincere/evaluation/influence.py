"""Per-image values of metrics that are no mean over images, so that they get confidence intervals like any other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def influence_values(statistic: Callable[[Tensor], Tensor], n: int, device: torch.device) -> NDArray[np.float64]:
    """Return a value for each of n images whose mean is the statistic and whose spread is its sampling error.

    The statistic is a function T(w) of the weight of each image, all 1, and unchanged if all weights are scaled alike.
    The value of an image is T + n dT/dw_i: its influence on T (the infinitesimal jackknife, Efron 1982,
    https://doi.org/10.1137/1.9781611970319). Influences sum to 0, so the mean is T, and a bootstrap of the mean is that
    of T linearised, also for differences between models that are paired by image.

    Args:
        statistic: Maps weights (n,) to a number, differentiable.
        n: Number of images.
        device: Device of the weights.

    Example:
        >>> x = torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64)
        >>> influence_values(lambda w: (w * x).sum() / w.sum(), 3, x.device).tolist()  # of a mean: x itself
        [1.0, 2.0, 6.0]
    """
    weights = torch.ones(n, dtype=torch.float64, device=device, requires_grad=True)
    with torch.enable_grad():
        value = statistic(weights)
        (gradient,) = torch.autograd.grad(value, weights, allow_unused=True, materialize_grads=True)
    influence = n * gradient
    # Degree 0 makes the mean exactly 0; what is left is floating-point residue.
    values: NDArray[np.float64] = (value.detach() + influence - influence.mean()).cpu().numpy()
    return values
