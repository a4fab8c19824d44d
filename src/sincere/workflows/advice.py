"""What stands beside the metrics so that they are read right: baselines without training, and advice in notes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from sincere.data.dataset import Dataset
from sincere.data.loader import plain_batches
from sincere.evaluation.baselines import majority_correct, nearest_correct
from sincere.evaluation.knn import accuracy_1nn
from sincere.evaluation.model_outputs import ModelOutputs
from sincere.evaluation.projection import sample_positions
from sincere.records.estimates import Estimate
from sincere.records.results import Baseline
from sincere.statistics.bootstrap import interval

FEW_IMAGES = 5  # training images of a class below which there is a warning
LARGE_GAP = 0.08  # between the accuracies on training and test images from which on there is advice
MOST_NAMED = 5  # classes in a note


def measure_baselines(data: Dataset, device: torch.device, *, n_resamples: int, seed: int) -> tuple[Baseline, ...]:
    """Return the accuracy of the most frequent class, and of the nearest neighbour by pixels or features.

    The neighbours are those of up to 2,000 test samples, chosen at random, among all training samples. Label sets have
    no accuracy, and no baselines.
    """
    if data.have_label_sets:
        return ()
    chosen = sample_positions(len(data.test))
    sample = data.test.subset(chosen)
    nearest = nearest_correct(*(plain_batches(part, device=device) for part in (sample, data.train)))
    what = "features" if data.train.are_features else "pixels"
    about = f"class of the nearest training {data.noun.removesuffix('s')} by raw {what}"
    if len(sample) < len(data.test):
        about += f", for {len(sample):,} of the test {data.noun}"
    rows = {
        "majority class": ("always the most frequent class", majority_correct(data.train.labels, data.test.labels)),
        f"raw {what}, 1-NN": (about, nearest),
    }
    return tuple(
        Baseline(name=name, about=about, accuracy=interval(correct, n_resamples=n_resamples, seed=seed))
        for name, (about, correct) in rows.items()
    )


def train_accuracy(outputs: ModelOutputs) -> float:
    """Return the 1-NN accuracy on up to 2,000 training samples, each left out in turn."""
    train = outputs.train
    chosen = torch.from_numpy(sample_positions(len(train.labels))).to(train.labels.device)
    queries = train.embeddings[chosen], train.labels[chosen]
    return accuracy_1nn(*queries, train.embeddings, train.labels, leave_out=chosen)


def class_sizes(data: Dataset) -> str:
    """Return the number of classes or labels, and of training samples with each, as text.

    Example:
        >>> from sincere.data.catalog import load_dataset
        >>> class_sizes(load_dataset("digits"))
        '10 classes of 139 to 146 training images'
    """
    sizes, kind = data.train.class_sizes(len(data.class_names)), data.noun.removesuffix("s")
    low, high = int(sizes.min()), int(sizes.max())
    size = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    if data.have_label_sets:
        mean = sizes.sum() / len(data.train)
        return f"{len(sizes):,} labels of {size} training {data.noun}, {mean:.1f} labels per {kind}"
    unlabelled = f", and {data.n_unlabelled:,} unlabelled" if data.n_unlabelled else ""
    return f"{len(sizes):,} classes of {size} training {data.noun if high > 1 else kind}{unlabelled}"


def small_classes_note(data: Dataset) -> str | None:
    """Return a note on classes or labels with fewer than five training or test samples, if there are any."""
    parts = {"training": data.train, "test": data.test}
    sizes = {part: samples.class_sizes(len(data.class_names)) for part, samples in parts.items()}
    part = "training" if (sizes["training"] < FEW_IMAGES).any() else "test"
    small = [data.class_names[label] for label in np.flatnonzero(sizes[part] < FEW_IMAGES)]
    if not small:
        return None
    names = ", ".join(small[:MOST_NAMED]) + (
        f" and {len(small) - MOST_NAMED:,} more" if len(small) > MOST_NAMED else ""
    )
    singular, plural = ("label", "labels") if data.have_label_sets else ("class", "classes")
    have = f"{singular} has" if len(small) == 1 else f"{plural} have"
    remedy = f"metrics of such a {singular} say little, and adding {data.noun} of it helps most"
    return f"{len(small):,} {have} fewer than {FEW_IMAGES} {part} {data.noun}: {names}; {remedy}"


def no_gain_note(name: str, accuracy: Estimate, baselines: Sequence[Baseline], noun: str) -> str | None:
    """Return a note if a baseline, which needs no training, classifies as well as a trained model by 1-NN."""
    best = max(baselines, key=lambda baseline: baseline.accuracy.estimate, default=None)
    if best is None or accuracy.estimate > best.accuracy.estimate:
        return None
    found = f"1-NN accuracy is {accuracy.estimate:.1%}, no higher than without training"
    enough = f"to classify these {noun}, training was not needed"
    return f"{name}: {found} ({best.name}: {best.accuracy.estimate:.1%}): {enough}"


def overfitting_note(name: str, train: float, test: Estimate, data: Dataset, *, frozen: bool) -> str | None:
    """Return advice if the 1-NN accuracy on training samples is far above that on test samples, beyond its interval."""
    if train - test.estimate < LARGE_GAP or train <= test.high:
        return None
    remedies = "fewer --epochs, a higher --weight-decay or a smaller --dim"
    if not frozen and not data.train.are_features:
        remedies = "a stronger --augmentation, a higher --weight-decay or a frozen encoder (--encoder lite0 --freeze)"
    accuracies = f"1-NN accuracy is {train:.1%} on training {data.noun} and {test.estimate:.1%} on test {data.noun}"
    return f"{name}: {accuracies}: the model overfits; more training {data.noun} help, and perhaps {remedies}"
