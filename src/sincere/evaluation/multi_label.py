"""Metrics of images with several labels: average precision of k-NN scores, margin, and the nearest training image.

Images that share a label are alike; images without a common label are label-disjoint. An image without any label has
nothing to share: it counts as a negative in every average precision, and not in the other metrics.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sincere.evaluation.influence import influence_values
from sincere.evaluation.label_neighbours import label_scores
from sincere.evaluation.model_outputs import Metric, ModelOutputs

MAP = (
    "mean over the labels of the average precision of ranking the test images by the share of their nearest training "
    "images that have the label"
)
MARGIN = (
    "similarity to the nearest training image that shares a label minus that to the nearest that shares none, mean "
    "over the test images"
)
SHARED = "test images whose nearest training image shares a label"


def measure(outputs: ModelOutputs) -> dict[str, Metric]:
    """Return mean average precision, margin and nearest-shares-a-label; classes count as sets of one label.

    The margin is left out where no test image has both a training image that shares a label and one that does not.
    """
    labels, neighbours = outputs.label_sets[1], outputs.label_neighbours
    scores, present = knn_scores(outputs), labels.any(dim=0)
    metrics = {
        "label_map": Metric(
            "label mAP",
            influence_values(
                lambda weights: average_precisions(scores[:, present], labels[:, present], weights).mean(),
                len(labels),
                labels.device,
            ),
            about=MAP,
        )
    }
    has_both = neighbours.sharing.isfinite() & neighbours.disjoint.isfinite()
    if bool(has_both.any()):
        margins = _mean_among((neighbours.sharing - neighbours.disjoint).double(), has_both)
        metrics["label_margin"] = Metric("label margin", margins, share=False, about=MARGIN)
    shared = _mean_among(neighbours.shares.double(), labels.any(dim=1))
    metrics["label_shared"] = Metric("nearest shares a label", shared, about=SHARED)
    return metrics


def knn_scores(outputs: ModelOutputs) -> Tensor:
    """Return the score of each label for each test image (n, L): the share of the nearest that have it."""
    neighbours = outputs.label_neighbours
    return label_scores(neighbours.similarity, neighbours.position, outputs.label_sets[0])


def average_precisions(scores: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the average precision of each label (L,); NaN for a label that no image has.

    The mean, over the images that have the label, of the precision among the images with at least their score. It is
    the area under the precision-recall steps, as in scikit-learn; images of equal score enter together.

    Args:
        scores: Score of each label for each image (n, L).
        labels: Label sets (n, L).
        weights: Weight of each image (n,); 1 by default.

    Example:
        >>> scores = torch.tensor([[0.9], [0.8], [0.1]])
        >>> average_precisions(scores, torch.tensor([[1], [0], [1]])).tolist()  # (1 + 2/3) / 2
        [0.8333333333333333]
    """
    weights = torch.ones(len(scores), dtype=torch.float64, device=scores.device) if weights is None else weights
    ordered, order = scores.sort(dim=0, descending=True)
    weight = weights[order]  # (n, L)
    positive = weight * labels.gather(0, order)
    # The last of the images of equal score: counted from the end, because searchsorted needs ascending rows.
    ascending = ordered.flip(0).T.contiguous()
    last = len(scores) - 1 - torch.searchsorted(ascending, ordered.T.contiguous()).T
    precision = positive.cumsum(dim=0).gather(0, last) / weight.cumsum(dim=0).gather(0, last)
    return (positive * precision).sum(dim=0) / positive.sum(dim=0)


def _mean_among(values: Tensor, chosen: Tensor) -> NDArray[np.float64]:
    """Return values (n,) whose mean is that of the chosen images; the others have no influence on it."""
    mean = values[chosen].mean()
    spread: Tensor = torch.where(chosen, (values - mean) * (len(chosen) / chosen.sum()), 0.0)
    result: NDArray[np.float64] = (mean + spread).cpu().numpy()
    return result
