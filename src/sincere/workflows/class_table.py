"""The tables of classes (accuracy, margin, most confused class, a bound on the divergence) and of labels."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

import numpy as np
import torch

from sincere.evaluation.margins import Margin, class_margins
from sincere.evaluation.model_outputs import ModelOutputs, PartOutputs
from sincere.evaluation.multi_label import average_precisions, knn_scores
from sincere.records.results import ClassRow, LabelRow, MarginAbout
from sincere.theory.divergence import ClassDivergence, class_divergence_bounds


def class_table(outputs: ModelOutputs, class_names: Sequence[str], *, temperature: float) -> tuple[ClassRow, ...]:
    """Return a row for each class, in label order."""
    test, neighbours = outputs.test, outputs.neighbours
    labels, predictions = test.labels.cpu().numpy(), neighbours.predictions[1].cpu().numpy()
    noise_classes = outputs.train.labels[neighbours.noise_position].cpu().numpy()
    target, noise = (x.cpu().numpy() for x in (neighbours.target_similarity, neighbours.noise_similarity))
    margins = class_margins(target, noise, labels, len(class_names))
    bounds = _bounds(test, temperature)
    n_train = torch.bincount(outputs.train.labels, minlength=len(class_names)).tolist()
    rows = []
    for label, name in enumerate(class_names):
        members = labels == label
        n_test = int(members.sum())
        counts = np.bincount(noise_classes[members], minlength=len(class_names))
        bound = bounds.get(label)
        rows.append(
            ClassRow(
                name=name,
                n_train=n_train[label],
                n_test=n_test,
                accuracy=float((predictions[members] == label).mean()) if n_test else None,
                margin=margin_about(margins[label]),
                confused_with=class_names[int(counts.argmax())] if n_test else None,
                confused_share=float(counts.max() / n_test) if n_test else None,
                divergence=bound.bound if bound else None,
                divergence_cap=bound.cap if bound else None,
            )
        )
    return tuple(rows)


def label_table(outputs: ModelOutputs, label_names: Sequence[str]) -> tuple[LabelRow, ...]:
    """Return a row for each label, where an image may have several."""
    known, labels = outputs.label_sets
    precisions = average_precisions(knn_scores(outputs), labels).tolist()
    counts = zip(known.sum(dim=0).tolist(), labels.sum(dim=0).tolist(), strict=True)
    return tuple(
        LabelRow(name=name, n_train=n_train, n_test=n_test, average_precision=precision if n_test else None)
        for name, (n_train, n_test), precision in zip(label_names, counts, precisions, strict=True)
    )


def _bounds(test: PartOutputs, temperature: float) -> dict[int, ClassDivergence]:
    """Return the divergence bounds of the classes with two test images or more; a single one has no positive."""
    _, inverse, counts = test.labels.unique(return_inverse=True, return_counts=True)
    if int((counts >= 2).sum()) < 2:
        return {}
    kept = counts[inverse] >= 2
    bounds = class_divergence_bounds(test.embeddings[kept], test.labels[kept], temperature=temperature)
    return {bound.label: bound for bound in bounds}


def margin_about(margin: Margin) -> MarginAbout:
    """Return a margin as it is stored: null where there are no images."""
    names = ("margin", "target_median", "noise_median")
    values = {name: getattr(margin, name) for name in names}
    known = {name: None if isnan(value) else value for name, value in values.items()}
    return MarginAbout(**known, n=margin.n, target=margin.target, noise=margin.noise)
