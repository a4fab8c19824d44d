"""What metrics look at, and what they give back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sincere.errors import DataError
from sincere.evaluation.neighbours import Neighbours, find_neighbours

if TYPE_CHECKING:
    from sincere.evaluation.probe import Probe


@dataclass(frozen=True, eq=False)
class Part:
    """The images of a set through a model.

    Attributes:
        embeddings: Projections of unit length (n, d).
        features: The encoder's output, not normalised (n, f).
        labels: Classes (n,).
        ids: Which image of the source each is (n,).
    """

    embeddings: Tensor
    features: Tensor
    labels: Tensor
    ids: Tensor


@dataclass(frozen=True, eq=False)
class Subject:
    """A model's outputs on a data set.

    Attributes:
        train: Images that neighbours are looked for among and probes learned from.
        test: Images that figures are about.
        ks: Numbers of neighbours.
        probes: Linear classifiers, by the name of their metric.
    """

    train: Part
    test: Part
    ks: Sequence[int] = (1, 5)
    probes: Mapping[str, Probe] = field(default_factory=dict)

    @cached_property
    def neighbours(self) -> Neighbours:
        """What stands near each test image; 1-NN is always there.

        Raises:
            DataError: A class of the test part has no training image, or there is one class only.
            InputValueError: A k is larger than the number of training images.
        """
        train, test = self.train, self.test
        ks = sorted({1, *self.ks})
        found = find_neighbours(test.embeddings, test.labels, train.embeddings, train.labels, ks=ks)
        if bool((found.target_position < 0).any()):
            label = int(test.labels[found.target_position < 0][0])
            raise DataError(f"evaluate: class {label} has test images but no training image")
        if bool((found.noise_position < 0).any()):
            raise DataError("evaluate: the training images are of one class only; a margin needs two")
        return found


@dataclass(frozen=True, eq=False)
class Measure:
    """A metric of every test image.

    Attributes:
        title: As in tables.
        values: (n,), whose mean is the figure, or (n, 2), whose difference of medians is.
        share: Whether the figure is a share of the test images.
    """

    title: str
    values: NDArray[np.float64]
    share: bool = True
