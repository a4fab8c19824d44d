"""Input and output of the metrics: the outputs of a model on a data set, and a value for every test image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from sincere.errors import DataError
from sincere.evaluation.label_neighbours import K, LabelNeighbours, find_label_neighbours
from sincere.evaluation.neighbours import N_KEPT, Neighbours, find_neighbours
from sincere.records.results import MAIN, Better

if TYPE_CHECKING:
    from sincere.evaluation.probe import Probe


@dataclass(frozen=True, eq=False)
class PartOutputs:
    """The outputs of a model on the train or the test part of a data set.

    Attributes:
        embeddings: Embeddings of unit length (n, d).
        features: Output of the encoder, not normalised (n, f).
        labels: Class of each image (n,), or label sets (n, L).
        ids: Id of each image (n,).
    """

    embeddings: Tensor
    features: Tensor
    labels: Tensor
    ids: Tensor


@dataclass(frozen=True, eq=False)
class ModelOutputs:
    """The outputs of a model on a data set.

    Attributes:
        train: Training images, among which neighbours are searched and from which probes are trained.
        test: Test images, which are evaluated.
        ks: Numbers of neighbours of the k-NN metrics.
        probes: Linear classifiers by the name of their metric.
        unknown: Test images of classes that were left out of training; None without.
    """

    train: PartOutputs
    test: PartOutputs
    ks: Sequence[int] = (1, 5)
    probes: Mapping[str, Probe] = field(default_factory=dict)
    unknown: PartOutputs | None = None

    @cached_property
    def neighbours(self) -> Neighbours:
        """Nearest training images of each test image; k = 1, and the 5 that the report shows, are always included.

        Raises:
            DataError: A class of the test part has no training image, or there is one class only.
            InputValueError: A k is larger than the number of training images.
        """
        train, test = self.train, self.test
        ks = sorted({1, min(N_KEPT, len(train.labels)), *self.ks})
        neighbours = find_neighbours(test.embeddings, test.labels, train.embeddings, train.labels, ks=ks)
        if bool((neighbours.target_position < 0).any()):
            label = int(test.labels[neighbours.target_position < 0][0])
            raise DataError(f"evaluate: class {label} has test images but no training image")
        if bool((neighbours.noise_position < 0).any()):
            raise DataError("evaluate: the training images are of one class only; a margin needs two")
        return neighbours

    @cached_property
    def label_sets(self) -> tuple[Tensor, Tensor]:
        """Label sets (n, L) of the training and the test images; classes are sets of one label."""
        train, test = self.train.labels, self.test.labels
        if train.ndim == 2:
            return train, test
        n_classes = int(max(train.max(), test.max())) + 1
        return one_hot(train, n_classes), one_hot(test, n_classes)

    @cached_property
    def label_neighbours(self) -> LabelNeighbours:
        """Nearest training images of each test image, which share a label with it or do not."""
        (known, labels), k = self.label_sets, min(K, len(self.train.labels))
        return find_label_neighbours(self.test.embeddings, labels, self.train.embeddings, known, k=k)


@dataclass(frozen=True, eq=False)
class Metric:
    """The values of a metric for every test image.

    Attributes:
        title: Title in tables.
        values: Values (n,), whose mean is the metric, or (n, 2), whose difference of medians is the metric.
        share: Whether the metric is a fraction of the test images, shown in per cent.
        about: How to read it, in one sentence; empty where the title says it.
        better: Which direction is better; None if that depends on the purpose.
        group: Table that shows it: "main", or another one with this title.
    """

    title: str
    values: NDArray[np.float64]
    share: bool = True
    about: str = ""
    better: Better | None = "higher"
    group: str = MAIN
