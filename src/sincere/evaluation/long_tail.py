"""1-NN accuracy of frequent and of rare classes, by the number of their training images."""

from __future__ import annotations

import numpy as np

from sincere.evaluation.knn import BALANCED, balanced_values
from sincere.evaluation.model_outputs import Metric, ModelOutputs

GROUP = "long tail"
MANY, FEW = 100, 20  # training images of a class: more than the first are many, fewer than the second few


def measure(outputs: ModelOutputs) -> dict[str, Metric]:
    """Return the mean 1-NN accuracy of all classes, and of those with many, medium and few training images.

    The groups are those of Liu et al. 2019 (https://arxiv.org/abs/1904.05160): more than 100 training images, 20 to
    100, and fewer than 20. One without test images is left out.
    """
    labels = outputs.test.labels.cpu().numpy()
    correct = (outputs.neighbours.predictions[1] == outputs.test.labels).double().cpu().numpy()
    sizes = np.bincount(outputs.train.labels.cpu().numpy(), minlength=int(labels.max()) + 1)[labels]
    groups = {
        "many": (sizes > MANY, f"more than {MANY}"),
        "medium": ((sizes >= FEW) & (sizes <= MANY), f"{FEW} to {MANY}"),
        "few": (sizes < FEW, f"fewer than {FEW}"),
    }
    metrics = {"knn1_balanced": Metric("1-NN balanced", balanced_values(correct, labels), about=BALANCED, group=GROUP)}
    for name, (among, limits) in groups.items():
        if among.any():
            about = f"mean of the 1-NN accuracies of the classes with {limits} training images"
            values = balanced_values(correct, labels, among=among)
            metrics[f"knn1_{name}"] = Metric(f"1-NN {name}-shot", values, about=about, group=GROUP)
    return metrics
