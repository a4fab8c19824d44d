"""k-nearest-neighbour accuracy: votes of the nearest training images."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sincere.evaluation.label_neighbours import shares_label
from sincere.evaluation.model_outputs import Metric, ModelOutputs
from sincere.evaluation.neighbours import find_neighbours
from sincere.records.results import MAIN

BALANCED = "mean of the accuracies of the classes, so that a small class counts as much as a large one"
UNBALANCED = 1.5  # size of the largest class over that of the smallest from which on the first table shows both


def measure(outputs: ModelOutputs) -> dict[str, Metric]:
    """Return, for each k, 1 for each test image that its k nearest training images classify correctly, else 0.

    Where the classes of the test images differ in size, the balanced accuracy of the smallest k is added.
    """
    predictions, labels = outputs.neighbours.predictions, outputs.test.labels
    correct = {k: (predictions[k] == labels).double().cpu().numpy() for k in sorted(outputs.ks)}
    metrics = {f"knn{k}": Metric(f"{k}-NN accuracy", values) for k, values in correct.items()}
    sizes = labels.bincount()
    sizes = sizes[sizes > 0]
    if bool((sizes != sizes[0]).any()):
        k, group = min(correct), MAIN if int(sizes.max()) >= UNBALANCED * int(sizes.min()) else "classifiers"
        values = balanced_values(correct[k], labels.cpu().numpy())
        metrics[f"knn{k}_balanced"] = Metric(f"{k}-NN balanced", values, about=BALANCED, group=group)
    return metrics


def balanced_values(
    correct: NDArray[np.float64], labels: NDArray[np.int64], *, among: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """Return values (n,) whose mean is the mean over classes of their accuracy.

    The value of an image is that mean plus its influence on it, n / (C n_c) (correct - accuracy of its class c).

    Args:
        correct: 1 for each image that is classified correctly, else 0 (n,).
        labels: Class of each image (n,).
        among: Whether the class of each image counts (n,); others have no influence. None if all do.

    Example:
        >>> float(balanced_values(np.array([1.0, 1.0, 1.0, 0.0]), np.array([0, 0, 0, 1])).mean())
        0.5
    """
    chosen = np.ones(len(labels), dtype=np.bool_) if among is None else among
    _, classes, sizes = np.unique(labels[chosen], return_inverse=True, return_counts=True)
    accuracies = np.bincount(classes, weights=correct[chosen]) / sizes
    influence = len(labels) / (len(sizes) * sizes[classes]) * (correct[chosen] - accuracies[classes])
    values = np.full(len(labels), accuracies.mean())
    values[chosen] += influence
    return values


def accuracy_1nn(
    queries: Tensor,
    query_labels: Tensor,
    references: Tensor,
    reference_labels: Tensor,
    *,
    leave_out: Tensor | None = None,
) -> float:
    """Return the fraction of queries whose nearest reference is of the same class, or shares a label (`shares_label`).

    Example:
        >>> import torch
        >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> accuracy_1nn(z, torch.tensor([0, 1]), z, torch.tensor([0, 1]))
        1.0
    """
    if query_labels.ndim == 2:
        return shares_label(queries, query_labels, references, reference_labels, leave_out=leave_out)
    neighbours = find_neighbours(queries, query_labels, references, reference_labels, ks=(1,), leave_out=leave_out)
    return float((neighbours.predictions[1] == query_labels).double().mean())
