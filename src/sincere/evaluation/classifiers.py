"""Classifiers over embeddings: votes of the nearest references, and the nearest class mean.

A linear probe is one more, see `probe`. The presets are the k-NN classifiers of DINO (Caron et al. 2021,
https://arxiv.org/abs/2104.14294) and of the library lightly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from sincere.catalog import CLASSIFIERS
from sincere.evaluation.model_outputs import Metric, ModelOutputs
from sincere.evaluation.neighbours import nearest_references

MEANS_TEMPERATURE = 0.1  # of the softmax over similarities to class means


class Classifier(Protocol):
    """Gives embeddings a class."""

    def probabilities(self, queries: Tensor, references: Tensor, labels: Tensor, n_classes: int) -> Tensor:
        """Return how likely each class is (n, n_classes); rows sum to 1.

        Args:
            queries: Embeddings of unit length (n, d).
            references: Embeddings of unit length (m, d).
            labels: Class of each reference (m,).
            n_classes: Number of classes.
        """
        ...


@dataclass(frozen=True)
class Votes:
    """Votes of the k nearest references, or of all if there are fewer.

    Attributes:
        k: Number of neighbours.
        temperature: A vote counts exp(similarity / temperature); None: the similarity itself, as in the paper.
    """

    k: int
    temperature: float | None = None

    def probabilities(self, queries: Tensor, references: Tensor, labels: Tensor, n_classes: int) -> Tensor:
        """Return the share of each class in the votes; see `Classifier`.

        The class with the largest share is that of `find_neighbours`. Where no class has a positive sum of
        similarities, the class with the largest sum has all.
        """
        similarities, positions = nearest_references(queries, references, min(self.k, len(references)))
        return self.shares(similarities, labels[positions], n_classes)

    def shares(self, similarities: Tensor, classes: Tensor, n_classes: int) -> Tensor:
        """Return the share of each class (n, n_classes) from the nearest references (n, k or more), nearest first."""
        near = similarities[:, : self.k].double()
        weights = near if self.temperature is None else torch.softmax(near / self.temperature, dim=1)
        votes = weights.new_full((len(near), n_classes), -torch.inf)
        votes.scatter_reduce_(1, classes[:, : self.k], weights, "sum", include_self=False)
        positive = votes.clamp_min(0)
        total = positive.sum(dim=1, keepdim=True)
        winner = one_hot(votes.argmax(dim=1), n_classes).double()
        return torch.where(total > 0, positive / total, winner)


@dataclass(frozen=True)
class ClassMeans:
    """The nearest class mean, by cosine similarity."""

    def probabilities(self, queries: Tensor, references: Tensor, labels: Tensor, n_classes: int) -> Tensor:
        """Return a softmax over the similarities to the means at a temperature of 0.1; see `Classifier`."""
        means = references.new_zeros(n_classes, references.shape[1]).index_add_(0, labels, references)
        present = torch.bincount(labels, minlength=n_classes) > 0
        similarities = (queries @ normalize(means, dim=1).T).double()
        return torch.softmax(similarities.masked_fill(~present, -torch.inf) / MEANS_TEMPERATURE, dim=1)


KNN, DINO, LIGHTLY, MEANS = Votes(k=5), Votes(k=20, temperature=0.07), Votes(k=200, temperature=0.1), ClassMeans()
GROUP = "classifiers"


def measure(outputs: ModelOutputs) -> dict[str, Metric]:
    """Return, for each classifier that other metrics do not cover, 1 for each correct test image, else 0.

    Those that let more images vote than there are training images are left out: the largest class would win.
    """
    train, test = outputs.train, outputs.test
    n_classes = int(torch.cat([train.labels, test.labels]).max()) + 1
    votes = {"dino": ("20-NN (DINO)", DINO), "lightly": ("200-NN (lightly)", LIGHTLY)}
    votes = {name: vote for name, vote in votes.items() if vote[1].k < len(train.labels)}
    shares = {}
    if votes:
        k = max(classifier.k for _, classifier in votes.values())
        order = train.labels.argsort(stable=True)  # ties go to the smaller label
        similarities, ranks = nearest_references(test.embeddings, train.embeddings[order], k)  # one search for both
        for name, (title, classifier) in votes.items():
            shares[name] = (title, classifier.shares(similarities, train.labels[order][ranks], n_classes))
    shares["means"] = (
        "class means",
        MEANS.probabilities(test.embeddings, train.embeddings, train.labels, n_classes),
    )
    return {
        name: Metric(
            title,
            (found.argmax(dim=1) == test.labels).double().cpu().numpy(),
            about=f"share of test images that are classified correctly by {CLASSIFIERS[name].about}",
            group=GROUP,
        )
        for name, (title, found) in shares.items()
    }
