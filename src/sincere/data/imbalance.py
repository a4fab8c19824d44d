"""Long-tailed versions of a data set: class sizes that fall exponentially, as in CIFAR-10-LT."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sincere import checks

ROUNDING = 1e-9  # of a class size that is an integer apart from floating-point residue


def long_tailed_positions(labels: ArrayLike, ratio: float, *, n_classes: int, seed: int = 0) -> NDArray[np.int64]:
    """Return the positions of the samples that a long-tailed version of a data set keeps, ascending.

    Class c of C keeps n ratio^(-c / (C - 1)) samples, rounded down but at least 1, where n is the size of the largest
    class; or all that it has, if they are fewer. This is the construction of Cui et al. 2019
    (https://arxiv.org/abs/1901.05555): with 5,000 images in each of 10 classes and a ratio of 100, 5000, 2997, ..., 50.
    The samples of a class are chosen at random; those of a larger ratio are among those of a smaller one.

    Args:
        labels: Class of each sample, 0 to n_classes - 1.
        ratio: Size of the first class over that of the last one, at least 1.
        n_classes: Number of classes, at least 2.
        seed: Random seed of the choice.

    Raises:
        InputTypeError, InputValueError: `ratio` is no number of at least 1.

    Example:
        >>> labels = np.repeat([0, 1, 2], 100)
        >>> np.bincount(labels[long_tailed_positions(labels, 25, n_classes=3)]).tolist()
        [100, 20, 4]
    """
    classes = np.asarray(labels)
    share = 1 / checks.number("load_dataset", "imbalance", ratio, least=1.0)
    largest = int(np.bincount(classes, minlength=n_classes).max())
    kept = []
    for label in range(n_classes):
        size = max(1, int(largest * share ** (label / (n_classes - 1)) + ROUNDING))
        order = np.random.default_rng((seed, label)).permutation(np.flatnonzero(classes == label))
        kept.append(order[:size])
    return np.sort(np.concatenate(kept))
