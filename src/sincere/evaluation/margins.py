"""Margins: similarity to the nearest image of the same class minus that to the nearest image of another class.

The paper calls the two target and noise (https://arxiv.org/abs/2309.14277).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sincere.evaluation.model_outputs import Metric, ModelOutputs
from sincere.records.histograms import Histogram

LOW, HIGH, N_BINS = -1.0, 1.0, 100


@dataclass(frozen=True)
class Margin:
    """The margin of a set of test images, with the similarities behind it.

    Attributes:
        target_median: Median similarity to the nearest image of the same class; NaN without images.
        noise_median: Median similarity to the nearest image of another class; NaN without images.
        n: Number of images.
        target: Histogram of the similarities to the nearest image of the same class.
        noise: Histogram of the similarities to the nearest image of another class.
    """

    target_median: float
    noise_median: float
    n: int
    target: Histogram
    noise: Histogram

    @property
    def margin(self) -> float:
        """Median target similarity minus median noise similarity, signed."""
        return round(self.target_median - self.noise_median, 12)


def measure(outputs: ModelOutputs) -> dict[str, Metric]:
    """Return the target and noise similarity of every test image (n, 2)."""
    similarities = outputs.neighbours.target_similarity, outputs.neighbours.noise_similarity
    pairs = np.stack([x.double().cpu().numpy() for x in similarities], axis=1)
    return {"margin": Metric("margin", pairs, share=False)}


def margin(target: ArrayLike, noise: ArrayLike) -> Margin:
    """Return the margin over all images, from the target and noise similarity of each.

    Example:
        >>> margin([0.9, 0.8, 0.7], [0.1, 0.2, 0.3]).margin
        0.6
    """
    targets, noises = np.asarray(target, dtype=np.float64), np.asarray(noise, dtype=np.float64)
    target_median, noise_median = (
        float(np.median(values)) if len(values) else float("nan") for values in (targets, noises)
    )
    return Margin(target_median, noise_median, len(targets), histogram(targets), histogram(noises))


def class_margins(target: ArrayLike, noise: ArrayLike, labels: ArrayLike, n_classes: int) -> list[Margin]:
    """Return the margin over the images of each class."""
    targets, noises, classes = np.asarray(target), np.asarray(noise), np.asarray(labels)
    return [margin(targets[classes == c], noises[classes == c]) for c in range(n_classes)]


def histogram(values: NDArray[np.float64]) -> Histogram:
    """Return a histogram over [-1, 1]; values rounded beyond the ends are counted in the outermost bins."""
    counts, _ = np.histogram(np.clip(values, LOW, HIGH), bins=N_BINS, range=(LOW, HIGH))
    return Histogram(LOW, HIGH, tuple(int(count) for count in counts))
