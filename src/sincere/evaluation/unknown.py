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
KNOWN_KEPT = 0.95  # share of known images that pass, where false alarms on unknown ones are counted
Score = Callable[[Tensor, Tensor, Tensor], Tensor]


def nearest_score(queries: Tensor, references: Tensor, labels: Tensor) -> Tensor:
    """Return the largest similarity of each query (n,) to a reference; `labels` do not matter."""
    return nearest_references(queries, references, 1)[0][:, 0]


@torch.no_grad()
def mahalanobis_score(queries: Tensor, references: Tensor, labels: Tensor) -> Tensor:
    """Return minus the squared Mahalanobis distance of each query (n,) to the nearest class mean."""
    references, queries = references.double(), queries.double()
    classes, ids = torch.unique(labels, return_inverse=True)
    counts = torch.bincount(ids).double()[:, None]
    means = references.new_zeros(len(classes), references.shape[1]).index_add_(0, ids, references) / counts
    centred = references - means[ids]
    covariance = centred.T @ centred / len(references)
    dimension = len(covariance)
    variance = covariance.diagonal().mean().clamp_min(1e-12)
    shrunk = covariance + SHRINKAGE * variance * torch.eye(dimension, dtype=torch.float64, device=covariance.device)
    factor = torch.linalg.cholesky(shrunk)
    white_queries, white_means = (torch.linalg.solve_triangular(factor, x.T, upper=False).T for x in (queries, means))
    return -torch.cdist(white_queries, white_means).square().amin(dim=1)


SCORES: dict[str, Score] = {"nearest": nearest_score, "mahalanobis": mahalanobis_score}


def p_values(scores: Tensor, held_out: Tensor) -> Tensor:
    """Return for each score (n,) the share of held-out known images that fit no better (conformal p-values).

    An image of a known class has a p-value of at most r with a probability of at most r, if it comes from where the
    held-out images come from: calling such images unknown gives a rate r of false alarms.

    Example:
        >>> p_values(torch.tensor([0.5, 0.05]), torch.tensor([0.1, 0.2, 0.6, 0.9])).tolist()
        [0.6, 0.2]
    """
    below = torch.searchsorted(held_out.sort().values, scores, right=True)
    return (1 + below).double() / (1 + len(held_out))


def measure_unknown(outputs: ModelOutputs) -> tuple[dict[str, Metric], dict[str, float]]:
    """Return the AUROC of each score, for every known test image, and the false-positive rates by score.

    The value of a known image is the share of unknown images that score below it; their mean is the AUROC. So its
    confidence interval is over known test images, and differences between losses are paired by them.

    Raises:
        DataError: There are no unknown images.
    """
    train, test, unknown = outputs.train, outputs.test, outputs.unknown
    if unknown is None:
        raise DataError("unknown: the data have no classes that were left out")
    metrics, rates = {}, {}
    for name, score in SCORES.items():
        known_scores, unknown_scores = (
            score(part.embeddings, train.embeddings, train.labels).double().cpu().numpy() for part in (test, unknown)
        )
        metrics[f"unknown_{name}"] = Metric(f"AUROC unknown ({name})", auroc_terms(known_scores, unknown_scores))
        rates[name] = false_positive_rate(known_scores, unknown_scores)
    return metrics, rates


def auroc_terms(known: NDArray[np.float64], unknown: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of unknown scores below each known one (n,), where ties count half; the mean is the AUROC.

    Example:
        >>> auroc_terms(np.array([3.0, 2.0]), np.array([1.0, 2.0])).tolist()
        [1.0, 0.75]
    """
    ordered = np.sort(unknown)
    below, upto = (np.searchsorted(ordered, known, side=side) for side in ("left", "right"))
    terms: NDArray[np.float64] = (below + upto) / (2 * len(unknown))
    return terms


def false_positive_rate(known: NDArray[np.float64], unknown: NDArray[np.float64]) -> float:
    """Return the share of unknown images that pass for known, at the threshold that 95% of the known ones pass.

    Example:
        >>> false_positive_rate(np.arange(100.0), np.array([1.0, 50.0]))
        0.5
    """
    threshold = np.quantile(known, 1 - KNOWN_KEPT, method="higher")
    return float((unknown >= threshold).mean())
