"""Margins: similarity to the nearest image of the same class minus that to the nearest image of another class.

The paper calls the two target and noise (https://arxiv.org/abs/2309.14277).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sincere.evaluation.model_outputs import Metric, ModelOutputs
from sincere.records.histograms import Histogram, bin_range


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


def margin(target: ArrayLike, noise: ArrayLike, *, bins: tuple[float, float, int] | None = None) -> Margin:
    """Return the margin over all images, from the target and noise similarity of each.

    Args:
        target: Similarity to the nearest image of the same class (n,).
        noise: Similarity to the nearest image of another class (n,).
        bins: Low end, high end and number of bins of both histograms; by default they suit the similarities.

    Example:
        >>> margin([0.9, 0.8, 0.7], [0.1, 0.2, 0.3]).margin
        0.6
    """
    targets, noises = np.asarray(target, dtype=np.float64), np.asarray(noise, dtype=np.float64)
    target_median, noise_median = (
        float(np.median(values)) if len(values) else float("nan") for values in (targets, noises)
    )
    low, high, n_bins = bins or bins_for(targets, noises)
    histograms = (histogram(values, low, high, n_bins) for values in (targets, noises))
    return Margin(target_median, noise_median, len(targets), *histograms)


def class_margins(target: ArrayLike, noise: ArrayLike, labels: ArrayLike, n_classes: int) -> list[Margin]:
    """Return the margin over the images of each class; the bins of their histograms are those of all images."""
    targets, noises, classes = np.asarray(target), np.asarray(noise), np.asarray(labels)
    bins = bins_for(targets, noises)
    return [margin(targets[classes == c], noises[classes == c], bins=bins) for c in range(n_classes)]


def bins_for(targets: NDArray[np.floating], noises: NDArray[np.floating]) -> tuple[float, float, int]:
    """Return low end, high end and number of the bins that suit these similarities; [-1, 1] without any."""
    both = np.concatenate([targets, noises])
    return bin_range(float(both.min()), float(both.max())) if len(both) else bin_range(-1.0, 1.0)


def histogram(values: NDArray[np.float64], low: float, high: float, n_bins: int) -> Histogram:
    """Return a histogram; values beyond the ends, as by rounding, are counted in the outermost bins."""
    counts, _ = np.histogram(np.clip(values, low, high), bins=n_bins, range=(low, high))
    return Histogram(low, high, tuple(int(count) for count in counts))
