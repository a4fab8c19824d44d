"""The cases of the loss benchmark: one step (value and gradient) of each implementation, on the same batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sincere import sincere_loss, supcon_loss
from sincere.workflows.loss_cases import LabelledBatch, Step, pytorch_metric_learning, step_of, three_gemms


def value_only(batch: LabelledBatch, **options: Any) -> None:
    with torch.no_grad():
        sincere_loss(batch.embeddings, batch.labels, kernel="tiled", **options)


def make_label_sets(n: int, *, n_labels: int = 80, per_row: int = 3) -> Tensor:
    """Return multi-hot rows (n, n_labels), each with as many ones, drawn at random."""
    order = torch.rand(n, n_labels, generator=torch.Generator().manual_seed(1)).argsort(dim=1)
    return torch.zeros(n, n_labels).scatter_(1, order[:, :per_row], 1.0)


def label_sets(batch: LabelledBatch, **options: Any) -> None:
    batch.embeddings.grad = None
    labels = make_label_sets(len(batch.embeddings))
    sincere_loss(batch.embeddings, labels, kernel="tiled", **options).sum().backward()


LOSS_CASES: dict[str, Step] = {
    "tiled": step_of(sincere_loss, kernel="tiled"),
    "dense": step_of(sincere_loss, kernel="dense"),
    "supcon-tiled": step_of(supcon_loss, kernel="tiled"),
    "supcon-dense": step_of(supcon_loss, kernel="dense"),
    "pytorch-metric-learning": pytorch_metric_learning,
    "three-gemms": three_gemms,
    "tiled-value-only": value_only,
}
MEMORY_CASES = {**LOSS_CASES, "label-sets": label_sets}
