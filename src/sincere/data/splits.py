"""Stratified random splits, by class or by label sets."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sincere import checks
from sincere.errors import InputValueError

TEST_SHARE = 0.2  # of data that have no test part


def stratified_split(
    labels: ArrayLike, fraction: float, *, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split positions into (the rest, about `fraction` of each class), both ascending.

    Every class has at least one image on each side. The number of each class is rounded by the largest-remainder
    method, with ties broken at random, so that the second part has round(fraction x n) images in total where the
    classes allow it and no class is favoured.

    Raises:
        InputValueError: `fraction` is not between 0 and 1, or a class has a single image.

    Example:
        >>> rest, held_out = stratified_split([0, 0, 0, 0, 1, 1, 1, 1], 0.25)
        >>> len(rest), len(held_out)
        (6, 2)
    """
    caller = "stratified_split"
    classes, inverse, sizes = np.unique(np.asarray(labels), return_inverse=True, return_counts=True)
    share = checks.number(caller, "fraction", fraction, above=0.0)
    if share >= 1:
        raise InputValueError(checks.wording(caller, "fraction must be below 1", fraction))
    if sizes.min() < 2:
        requirement = "every class must have at least 2 images to be split"
        raise InputValueError(checks.wording(caller, requirement, f"1 of class {classes[sizes.argmin()]}"))
    generator = np.random.default_rng(seed)
    exact = sizes * share
    counts = np.floor(exact).astype(np.int64)
    missing = round(float(exact.sum())) - int(counts.sum())
    by_remainder = np.lexsort((generator.random(len(classes)), -(exact - counts)))
    counts[by_remainder[:missing]] += 1
    counts = np.clip(counts, 1, sizes - 1)
    held_out = np.concatenate(
        [generator.permutation(np.flatnonzero(inverse == c))[: counts[c]] for c in range(len(classes))]
    )
    return np.setdiff1d(np.arange(len(inverse)), held_out), np.sort(held_out)


def split_label_sets(
    labels: NDArray[np.int64], fraction: float, *, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split the positions of label sets (n, L) into (the rest, about `fraction`), stratified by rarest labels.

    The stratum of an image is the rarest of its labels; images without a label are one more. A stratum's only image is
    among the rest, so that a label that a single image has can be learned.

    Example:
        >>> rest, held_out = split_label_sets(np.array([[1, 1], [1, 0], [1, 0], [1, 1], [0, 0]]), 0.4)
        >>> len(rest), len(held_out)
        (3, 2)
    """
    rarest_first = labels[:, np.argsort(labels.sum(axis=0), kind="stable")] > 0
    strata = np.where(rarest_first.any(axis=1), rarest_first.argmax(axis=1), labels.shape[1])
    several = np.flatnonzero(np.bincount(strata)[strata] >= 2)
    if not len(several):
        return np.arange(len(labels)), several
    _, chosen = stratified_split(strata[several], fraction, seed=seed)
    held_out = several[chosen]
    return np.setdiff1d(np.arange(len(labels)), held_out), held_out
