"""Images of unknown classes: how well an embedding fits those of the training images, and what counts as too little.

Scores are larger for known classes. `nearest`: the largest cosine similarity to a training image (Sun et al. 2022,
https://arxiv.org/abs/2204.06507, with k = 1). `mahalanobis`: the distance to the nearest class mean under a covariance
that all classes share (Lee et al. 2018, https://arxiv.org/abs/1807.03888).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sincere.errors import DataError
from sincere.evaluation.model_outputs import Metric, ModelOutputs
from sincere.evaluation.neighbours import nearest_references

SHRINKAGE = 1e-3  # share of the mean variance that is added to each, so that the covariance can be inverted
KNOWN_KEPT = 0.95  # share of known images that pass, where those of unknown classes that pass are counted
STEP = 0.03  # of the true positive rate, to both sides, over which the slope of the ROC curve is taken
GROUP = "unknown classes"
Score = Callable[[Tensor], Tensor]  # embeddings (n, d) to scores (n,)
Scores = NDArray[np.float64]


def nearest_score(references: Tensor, labels: Tensor) -> Score:
    """Return a score of embeddings: the largest similarity to a reference; `labels` do not matter."""
    return lambda queries: nearest_references(queries, references, 1)[0][:, 0]


@torch.no_grad()
def mahalanobis_score(references: Tensor, labels: Tensor) -> Score:
    """Return a score of embeddings: minus the squared Mahalanobis distance to the nearest class mean."""
    references = references.double()
    classes, ids = torch.unique(labels, return_inverse=True)
    counts = torch.bincount(ids).double()[:, None]
    means = references.new_zeros(len(classes), references.shape[1]).index_add_(0, ids, references) / counts
    centred = references - means[ids]
    covariance = centred.T @ centred / len(references)
    dimension = len(covariance)
    variance = covariance.diagonal().mean().clamp_min(1e-12)
    shrunk = covariance + SHRINKAGE * variance * torch.eye(dimension, dtype=torch.float64, device=covariance.device)
    factor = torch.linalg.cholesky(shrunk)

    def white(vectors: Tensor) -> Tensor:
        columns: Tensor = torch.linalg.solve_triangular(factor, vectors.double().T, upper=False)
        return columns.T

    white_means = white(means)
    return lambda queries: -torch.cdist(white(queries), white_means).square().amin(dim=1)


SCORES: dict[str, Callable[[Tensor, Tensor], Score]] = {"nearest": nearest_score, "mahalanobis": mahalanobis_score}


def p_values(scores: Tensor, held_out: Tensor) -> Tensor:
    """Return for each score (n,) how well it fits held-out known images: conformal p-values.

    With k of n held-out images that fit no better, it is (k + 1) / (n + 1).

    An image of a known class has a p-value of at most r with a probability of at most r, if it comes from where the
    held-out images come from: calling such images unknown gives a rate r of false alarms.

    Example:
        >>> p_values(torch.tensor([0.5, 0.05]), torch.tensor([0.1, 0.2, 0.6, 0.9])).tolist()
        [0.6, 0.2]
    """
    below = torch.searchsorted(held_out.sort().values, scores, right=True)
    return (1 + below).double() / (1 + len(held_out))


def measure_unknown(outputs: ModelOutputs) -> dict[str, Metric]:
    """Return AUROC and FPR95 of each score, with a value for every known test image, then for every unknown one.

    Their means are the metrics, and confidence intervals are over known and unknown images: the values are those of
    DeLong et al. 1988 (https://doi.org/10.2307/2531595) for the AUROC, see `auroc_values`, and `fpr95_values`.

    Raises:
        DataError: There are no unknown images.
    """
    train, test, unknown = outputs.train, outputs.test, outputs.unknown
    if unknown is None:
        raise DataError("unknown: the data have no classes that were left out")
    metrics = {}
    for name, fitted in SCORES.items():
        score = fitted(train.embeddings, train.labels)
        scores = [score(part.embeddings).double().cpu().numpy() for part in (test, unknown)]
        auroc = "probability that an image of a known class scores above one of an unknown class: 50% is chance"
        passing = "share of unknown images that pass for known at the threshold that 95% of the known ones pass"
        metrics[f"auroc_{name}"] = Metric(f"AUROC ({name})", auroc_values(*scores), about=auroc, group=GROUP)
        values = fpr95_values(*scores)
        metrics[f"fpr95_{name}"] = Metric(f"FPR95 ({name})", values, about=passing, better="lower", group=GROUP)
    return metrics


def auroc_values(known: Scores, unknown: Scores) -> Scores:
    """Return values (n + u,) whose mean is the AUROC of n known and u unknown scores; ties count half.

    The value of an image is the AUROC plus its influence on it: the share of the images of the other kind that it is
    ordered correctly with, minus the AUROC, weighted so that known and unknown images count alike.

    Example:
        >>> round(float(auroc_values(np.array([3.0, 2.0]), np.array([1.0, 2.0])).mean()), 6)
        0.875
    """
    of_known, of_unknown = _share_below(unknown, known), 1 - _share_below(known, unknown)
    auroc = float(of_known.mean())
    return auroc + _stacked(of_known - auroc, of_unknown - auroc)


def fpr95_values(known: Scores, unknown: Scores) -> Scores:
    """Return values (n + u,) whose mean is the share of unknown scores at or above the threshold of 95% of the known.

    The influence of a known image is through the threshold: with F the false positive rate as a function of the true
    one, it is -F'(0.95) ([it passes] - 0.95), with the slope taken between true positive rates of 0.92 and 0.98.

    Example:
        >>> round(float(fpr95_values(np.arange(100.0), np.array([1.0, 50.0])).mean()), 6)
        0.5
    """
    ordered = np.sort(known)
    # Thresholds that at least these shares of the known images pass; 0.05 n may round to a little below n / 20.
    rates = (KNOWN_KEPT, KNOWN_KEPT + STEP, KNOWN_KEPT - STEP)
    threshold, lower, higher = (ordered[int((1 - rate) * len(known) + 1e-9)] for rate in rates)
    passes = (unknown >= threshold).astype(np.float64)
    rise, run = ((scores >= lower).mean() - (scores >= higher).mean() for scores in (unknown, known))
    slope = rise / run if run else 0.0  # fewer than a few dozen known images have one threshold for all rates
    kept = (known >= threshold).astype(np.float64)
    return float(passes.mean()) + _stacked(-slope * (kept - kept.mean()), passes - passes.mean())


def _share_below(scores: Scores, of: Scores) -> Scores:
    """Return the share of scores below each of `of`, where ties count half."""
    ordered = np.sort(scores)
    below, upto = (np.searchsorted(ordered, of, side=side) for side in ("left", "right"))
    shares: Scores = (below + upto) / (2 * len(scores))
    return shares


def _stacked(known: Scores, unknown: Scores) -> Scores:
    """Return influences of both kinds of images, each with mean 0, such that the variance of their mean is right."""
    n, u = len(known), len(unknown)
    stacked: Scores = np.concatenate([known * ((n + u) / n), unknown * ((n + u) / u)])
    return stacked
