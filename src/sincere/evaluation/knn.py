"""k-nearest-neighbour accuracy: votes of the nearest training images."""

from __future__ import annotations

from torch import Tensor

from sincere.evaluation.model_outputs import Metric, ModelOutputs
from sincere.evaluation.neighbours import find_neighbours


def measure(outputs: ModelOutputs) -> dict[str, Metric]:
    """Return, for each k, 1 for each test image that its k nearest training images classify correctly, else 0."""
    predictions, labels = outputs.neighbours.predictions, outputs.test.labels
    correct = {k: (predictions[k] == labels).double().cpu().numpy() for k in sorted(outputs.ks)}
    return {f"knn{k}": Metric(f"{k}-NN accuracy", values) for k, values in correct.items()}


def accuracy_1nn(
    queries: Tensor,
    query_labels: Tensor,
    references: Tensor,
    reference_labels: Tensor,
    *,
    leave_out: Tensor | None = None,
) -> float:
    """Return the fraction of queries whose nearest reference is of the same class.

    Example:
        >>> import torch
        >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> accuracy_1nn(z, torch.tensor([0, 1]), z, torch.tensor([0, 1]))
        1.0
    """
    neighbours = find_neighbours(queries, query_labels, references, reference_labels, ks=(1,), leave_out=leave_out)
    return float((neighbours.predictions[1] == query_labels).double().mean())
