"""Linear probes: the accuracy of a linear classifier on the output of the encoder.

`fast` computes features once and solves logistic regression; `paper` runs SGD over features of augmented images.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from sincere.errors import DataError
from sincere.evaluation.model_outputs import Metric, ModelOutputs
from sincere.records.tensors import read_tensors, write_tensors

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # regularisation of the fast probe
# Values up to which one thread is faster than two, whose small steps wait for each other; on a busy machine, for long.
MOST_SINGLE_THREADED = 20_000_000
EPOCHS, DECAY_AFTER, DECAY = 100, (60, 75, 90), 0.2

Batches = Callable[[int], Iterable[tuple[Tensor, Tensor]]]


@dataclass(frozen=True, eq=False)
class Probe:
    """A linear classifier: logits are features @ weight.T + bias.

    Attributes:
        weight: Weights (n_classes, n_features).
        bias: Biases (n_classes,).
        chosen: The regularisation or the learning rate with the best accuracy on held-out images.
    """

    weight: Tensor
    bias: Tensor
    chosen: float

    def logits(self, features: Tensor) -> Tensor:
        """Return the logit of each class for each image (n, n_classes)."""
        return features.to(self.weight.dtype) @ self.weight.T + self.bias

    def predict(self, features: Tensor) -> Tensor:
        """Return the class with the largest logit for each image."""
        return self.logits(features).argmax(dim=1)

    def correct(self, features: Tensor, labels: Tensor) -> Tensor:
        """Return 1 for each image that is classified correctly, else 0."""
        return (self.predict(features) == labels).double()

    def save(self, path: Path, class_names: Sequence[str]) -> None:
        """Write the classifier as safetensors, with the names of its classes."""
        tensors = {"weight": self.weight.cpu().numpy(), "bias": self.bias.cpu().numpy()}
        write_tensors(path, tensors, {"chosen": repr(self.chosen), "class_names": json.dumps(list(class_names))})

    @classmethod
    def load(cls, path: Path) -> tuple[Self, tuple[str, ...]]:
        """Read a classifier and the names of its classes.

        Raises:
            DataError: The file is missing or damaged.
        """
        try:
            arrays, about = read_tensors(path, remedy="evaluate the run again")
            weight, bias = (torch.from_numpy(arrays[name]) for name in ("weight", "bias"))
            return cls(weight, bias, float(about["chosen"])), tuple(json.loads(about["class_names"]))
        except (FileNotFoundError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{path}: is missing, or is not the classifier of a linear probe") from error


TITLES = {"linear": "linear probe", "linear_paper": "linear probe (SGD)"}


def measure(outputs: ModelOutputs) -> dict[str, Metric]:
    """Return, for each probe, 1 for each test image that it classifies correctly, else 0."""
    test = outputs.test
    return {
        name: Metric(TITLES[name], probe.correct(test.features, test.labels).cpu().numpy())
        for name, probe in outputs.probes.items()
    }


def fast_probe(
    features: Tensor,
    labels: Tensor,
    *,
    learn: NDArray[np.int64],
    held_out: NDArray[np.int64],
    strengths: Sequence[float] = STRENGTHS,
) -> Probe:
    """Return a logistic regression on standardised features, solved by L-BFGS.

    Its regularisation is the one with the best accuracy on `held_out` after training on `learn`; the final classifier
    is trained on all images.

    Args:
        features: Output of the encoder (n, d), not normalised.
        labels: Class of each image (n,); each class has an image in `learn`.
        learn: Positions of the images to train on while the regularisation is chosen.
        held_out: Positions of the images on which it is chosen.
        strengths: L2 penalties per image to choose from.
    """
    x, y = features.double().cpu(), labels.cpu()
    mean, std = x.mean(dim=0), x.std(dim=0, correction=0).clamp_min(1e-8)
    scaled = ((x - mean) / std).numpy()
    scores = []
    for strength in strengths:
        weight, bias = _logistic(scaled[learn], y.numpy()[learn], strength)
        scores.append(float(np.mean((scaled[held_out] @ weight.T + bias).argmax(axis=1) == y.numpy()[held_out])))
    best = strengths[int(np.argmax(scores))]
    final_weight, final_bias = (torch.from_numpy(array) for array in _logistic(scaled, y.numpy(), best))
    final_weight = final_weight / std
    return Probe(final_weight, final_bias - final_weight @ mean, best)


def _logistic(x: NDArray[np.float64], y: NDArray[np.int64], strength: float) -> tuple[NDArray[np.float64], ...]:
    """Return weight and bias for all classes up to the largest label."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    solver = LogisticRegression(C=1 / (strength * len(x)), max_iter=200)
    few = x.size <= MOST_SINGLE_THREADED
    with warnings.catch_warnings(), threadpool_limits(1 if few else None):
        warnings.simplefilter("ignore", ConvergenceWarning)  # an approximate optimum is good enough
        solver.fit(x, y)
    weight, bias = solver.coef_, solver.intercept_
    if len(solver.classes_) == 2:  # one row for the second class against the first
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    return weight, bias


def paper_probe(
    learn: Batches,
    everything: Batches,
    score: Callable[[Probe], float],
    *,
    n_features: int,
    n_classes: int,
    rates: Sequence[float],
    epochs: int = EPOCHS,
    weight_decay: float = 0.0,
) -> Probe:
    """Return the paper's probe: SGD with momentum 0.9, learning rate times 0.2 after 60%, 75% and 90% of the epochs.

    The learning rate is the one with the best score after training on `learn`; the final classifier is trained on
    `everything`.

    Args:
        learn: Maps an epoch to its batches of features and labels of augmented images, without held-out images.
        everything: The same with held-out images.
        score: Returns the accuracy of a probe on held-out images.
        n_features: Dimension of the encoder's output.
        n_classes: Number of classes.
        rates: Learning rates to choose from.
        epochs: Number of epochs.
        weight_decay: Weight decay of SGD.
    """
    shape = n_features, n_classes
    best = rates[0]
    if len(rates) > 1:
        scores = [score(probe) for probe in _train(learn, shape, rates, epochs, weight_decay)]
        best = rates[int(np.argmax(scores))]
    return _train(everything, shape, [best], epochs, weight_decay)[0]


def _train(
    batches: Batches, shape: tuple[int, int], rates: Sequence[float], epochs: int, weight_decay: float
) -> list[Probe]:
    """Train a classifier for each learning rate; all share the features of a batch, which cost the most."""
    layers = [nn.Linear(*shape) for _ in rates]
    groups = []
    for layer, rate in zip(layers, rates, strict=True):
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
        groups.append({"params": layer.parameters(), "lr": rate})
    optimizer = torch.optim.SGD(groups, momentum=0.9, weight_decay=weight_decay)
    milestones = [round(epochs * share / EPOCHS) for share in DECAY_AFTER]
    for epoch in range(epochs):
        decayed = DECAY ** sum(epoch >= milestone for milestone in milestones)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * decayed
        for features, labels in batches(epoch):
            optimizer.zero_grad(set_to_none=True)
            losses = [cross_entropy(layer.to(features.device)(features), labels) for layer in layers]
            torch.stack(losses).sum().backward()
            optimizer.step()
    return [Probe(layer.weight.detach(), layer.bias.detach(), rate) for layer, rate in zip(layers, rates, strict=True)]
