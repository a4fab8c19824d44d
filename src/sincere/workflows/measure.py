"""Measure a model on a data set: embeddings, metrics of every test image, probes, the table of classes, a map."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sincere import checks
from sincere.catalog import METRICS, MULTI_LABEL, load
from sincere.data.dataset import Dataset, Samples
from sincere.data.loader import ViewLoader
from sincere.data.samplers import make_sampler
from sincere.data.splits import stratified_split
from sincere.data.views import named_augmentation, view_maker
from sincere.errors import DataError, InputValueError
from sincere.evaluation.margins import margin
from sincere.evaluation.model_outputs import Metric, ModelOutputs
from sincere.evaluation.probe import Probe, fast_probe, paper_probe
from sincere.evaluation.projection import project_2d, sample_positions
from sincere.evaluation.unknown import measure_unknown
from sincere.messages import Messages
from sincere.models.embedding import EmbeddingModel
from sincere.records.arrays import MAP, PER_IMAGE, EmbeddingMap, PerImage
from sincere.records.results import ClassRow, LabelRow, MarginAbout
from sincere.records.tensors import write_tensors
from sincere.settings.evaluation import EvaluationSettings
from sincere.workflows.advice import train_accuracy
from sincere.workflows.class_table import class_table, label_table, margin_about
from sincere.workflows.embedded_data import EmbeddedData, check_finite, embed_part
from sincere.workflows.run_folder import EMBEDDINGS, PROBES
from sincere.workflows.thumbnails import thumbnails

PROBE_BATCH = 128  # the paper's
HELD_OUT = 0.1
THUMBNAIL, TRAIN_THUMBNAIL = 32, 24  # pixels
MOST_TRAIN_THUMBNAILS = 6000  # of a map: about 10 MB in colour


@dataclass(frozen=True, eq=False)
class Measured:
    """What was measured.

    Attributes:
        outputs: The outputs of the model on both parts, and its probes.
        measures: Metrics by name.
        classes: The table of classes; empty with label sets.
        margin: Margin over all test images; with label sets, over those with a training image that shares a label and
            one that does not.
        data: The data set.
        train_accuracy: 1-NN accuracy on training images, each left out in turn; None with label sets.
        labels: The table of labels; empty without label sets.
    """

    outputs: ModelOutputs
    measures: dict[str, Metric]
    classes: tuple[ClassRow, ...]
    margin: MarginAbout
    data: Dataset
    train_accuracy: float | None
    labels: tuple[LabelRow, ...] = ()

    def per_image(self) -> PerImage:
        """Return the metrics of every test image."""
        test, train, unknown = self.outputs.test, self.outputs.train, self.outputs.unknown
        if self.data.have_label_sets:
            nearest = self.outputs.label_neighbours.position[:, 0]
            return PerImage(
                ids=test.ids.cpu().numpy(),
                labels=test.labels.cpu().numpy(),
                predictions=train.labels[nearest].cpu().numpy(),
                target_ids=None,
                noise_ids=None,
                unknown_ids=np.zeros(0, dtype=np.int64),
                values={name: measure.values for name, measure in self.measures.items()},
                texts=self.data.test.texts,
            )
        neighbours = self.outputs.neighbours
        return PerImage(
            ids=test.ids.cpu().numpy(),
            labels=test.labels.cpu().numpy(),
            predictions=neighbours.predictions[1].cpu().numpy(),
            target_ids=train.ids[neighbours.target_position].cpu().numpy(),
            noise_ids=train.ids[neighbours.noise_position].cpu().numpy(),
            unknown_ids=np.zeros(0, dtype=np.int64) if unknown is None else unknown.ids.cpu().numpy(),
            values={name: measure.values for name, measure in self.measures.items()},
            texts=self.data.test.texts,
            unknown_texts=None if self.data.unknown is None else self.data.unknown.texts,
        )

    def confusion(self) -> tuple[tuple[int, int, int], ...]:
        """Return the cells of the confusion matrix that are not 0: label, 1-NN prediction, test images."""
        if self.data.have_label_sets:
            return ()
        pairs = torch.stack([self.outputs.test.labels, self.outputs.neighbours.predictions[1]], dim=1)
        cells, counts = pairs.cpu().unique(dim=0, return_counts=True)
        return tuple((i, j, n) for (i, j), n in zip(cells.tolist(), counts.tolist(), strict=True))

    def embedding_map(self) -> EmbeddingMap:
        """Return some of the test images in the plane, with the training images nearest to them."""
        chosen = sample_positions(len(self.data.test))
        images, texts, train_texts = self.data.origin or self.data, self.data.test.texts, self.data.train.texts
        test, train, neighbours = self.outputs.test, self.outputs.train, self.outputs.neighbours
        positions = torch.from_numpy(chosen).to(test.ids.device)
        points, method = project_2d(test.embeddings[positions])
        nearest, voters = first_come(neighbours.nearest_position[positions].cpu().numpy())
        pictured = None if images.train.are_features else images.train.subset(voters[:MOST_TRAIN_THUMBNAILS])
        return EmbeddingMap(
            ids=test.ids[positions].cpu().numpy(),
            labels=test.labels[positions].cpu().numpy(),
            predictions=neighbours.predictions[1][positions].cpu().numpy(),
            points=points,
            neighbours=nearest,
            similarities=neighbours.nearest_similarity[positions].float().cpu().numpy(),
            train_ids=train.ids.cpu().numpy()[voters],
            train_labels=train.labels.cpu().numpy()[voters],
            thumbnails=None if images.test.are_features else thumbnails(images.test.subset(chosen), THUMBNAIL),
            train_thumbnails=None if pictured is None else thumbnails(pictured, TRAIN_THUMBNAIL),
            method=method,
            texts=None if texts is None else texts[chosen],
            train_texts=None if train_texts is None else train_texts[voters],
        )

    def save(self, folder: Path, per_image: PerImage, *, probes: bool) -> dict[str, str]:
        """Write embeddings.safetensors, the probes if asked for, per_image.npz and, without label sets, map.npz.

        Returns:
            The SHA-256 of the last two.
        """
        tensors = {
            f"{name}.{field}": getattr(part, field).cpu().numpy()
            for name, part in (("train", self.outputs.train), ("test", self.outputs.test))
            for field in ("embeddings", "features", "labels", "ids")
        }
        write_tensors(folder / EMBEDDINGS, tensors)
        for name, probe in self.outputs.probes.items() if probes else ():
            probe.save(folder / PROBES[name], self.data.class_names)
        files = {PER_IMAGE: per_image.write(folder)}
        return files if self.data.have_label_sets else {**files, MAP: self.embedding_map().write(folder)}


def check_measurable(settings: EvaluationSettings, data: Dataset, *, caller: str = "evaluate") -> None:
    """Raise for what the data do not allow to measure, before anything is trained or embedded.

    Raises:
        InputValueError: A k is larger than the number of training images, the probe needs images, or a metric classes.
        DataError: No class has the two training images that a linear probe needs.
    """
    if max(ks := settings.ks_among(len(data.train))) > len(data.train):
        requirement = f"ks must be at most {len(data.train)}, the training {data.noun} there are"
        raise InputValueError(checks.wording(caller, requirement, max(ks)))
    names = _metrics_of(settings, data)
    if data.have_label_sets:
        if names != (MULTI_LABEL,):
            requirement = f"metrics must be {MULTI_LABEL} for label sets, because the others need classes"
            raise InputValueError(checks.wording(caller, requirement, ", ".join(names)))
        return
    images = data.origin or data
    if "linear" in names and settings.probe != "fast" and images.train.are_features:
        requirement = "probe must be fast for features, because the paper's is trained on augmented images"
        raise InputValueError(checks.wording(caller, requirement, settings.probe))
    if "linear" in names and np.bincount(data.train.labels).max() < 2:
        remedy = "leave it out: --metrics margin knn"
        raise DataError(f"{data.name}: linear needs a class with two training {data.noun}; {remedy}")


def _metrics_of(settings: EvaluationSettings, data: Dataset) -> tuple[str, ...]:
    return settings.metrics_of(long_tailed=data.imbalance is not None, label_sets=data.have_label_sets)


def measure(
    model: EmbeddingModel,
    data: Dataset,
    settings: EvaluationSettings,
    *,
    seed: int,
    device: torch.device,
    temperature: float,
    messages: Messages,
    embedded: EmbeddedData,
) -> Measured:
    """Measure a model.

    Args:
        model: The model, in evaluation mode.
        data: What to measure it on; neighbours and probes come from its training part.
        settings: What to measure.
        seed: Random seed of the split that chooses a probe's regularisation.
        device: Where to compute.
        temperature: Temperature of the divergence bounds.
        messages: Receives the progress.
        embedded: What the model makes of the data.

    Raises:
        DataError: An output of the model is not finite.
    """
    train, test = embedded.train, embedded.test
    for part in (train, test):
        check_finite(part)
    names, probes = _metrics_of(settings, data), {}
    if "linear" in names:
        if settings.probe in ("fast", "both"):
            what = "embeddings" if model.spec.frozen else "features"
            messages.say(f"training the linear probe: logistic regression on {what}")
            learn, held_out = _probe_split(data.train.labels, seed)
            probes["linear"] = fast_probe(train.features, train.labels, learn=learn, held_out=held_out)
        if settings.probe in ("paper", "both"):
            messages.say(
                f"training the linear probe: SGD over {settings.probe_epochs} epochs of augmented images, twice"
            )
            images = data.origin or data
            probes["linear_paper"] = _paper_probe(model, images, settings, seed, device)
    outputs = ModelOutputs(train, test, settings.ks_among(len(data.train)), probes, embedded.unknown)
    measures: dict[str, Metric] = {}
    for name in names:
        measures |= load(METRICS[name])(outputs)
    if outputs.unknown is not None:
        check_finite(outputs.unknown)
        measures |= measure_unknown(outputs)
    if data.have_label_sets:
        both = torch.stack([outputs.label_neighbours.sharing, outputs.label_neighbours.disjoint])
        sharing, disjoint = both[:, both.isfinite().all(dim=0)].cpu().numpy()
        about = margin_about(margin(sharing, disjoint))
        return Measured(outputs, measures, (), about, data, None, label_table(outputs, data.class_names))
    neighbours = outputs.neighbours
    target, noise = (x.cpu().numpy() for x in (neighbours.target_similarity, neighbours.noise_similarity))
    classes = class_table(outputs, data.class_names, temperature=temperature)
    return Measured(outputs, measures, classes, margin_about(margin(target, noise)), data, train_accuracy(outputs))


def _probe_split(labels: NDArray[np.int64], seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the images to learn from and those held out to choose on; a class's only image is learned from."""
    several = np.flatnonzero(np.bincount(labels)[labels] >= 2)
    _, chosen = stratified_split(labels[several], HELD_OUT, seed=seed)
    held_out = several[chosen]
    return np.setdiff1d(np.arange(len(labels)), held_out), held_out


def _paper_probe(
    model: EmbeddingModel, data: Dataset, settings: EvaluationSettings, seed: int, device: torch.device
) -> Probe:
    """Train the paper's probe: crops and flips, drawn again in every epoch."""
    augmentation = named_augmentation("crops", mirror_is_same_class=data.mirror_is_same_class)
    learn, held_out = (data.train.subset(chosen) for chosen in _probe_split(data.train.labels, seed))
    dim = model.spec.dim

    def batches(images: Samples) -> Callable[[int], Iterable[tuple[Tensor, Tensor]]]:
        sampler = make_sampler("shuffle", images.labels, min(PROBE_BATCH, len(images)), seed=seed)
        make_views = view_maker(augmentation, size=model.spec.size, seed=seed, n_views=1)
        loader = ViewLoader(images, sampler, make_views, device)

        def epoch(number: int) -> Iterable[tuple[Tensor, Tensor]]:
            for batch in loader.batches(number * sampler.n_batches, (number + 1) * sampler.n_batches):
                yield model.outputs(batch.inputs[:, 0])[:, dim:], batch.labels

        return epoch

    validation = embed_part(model, held_out, device)
    return paper_probe(
        batches(learn),
        batches(data.train),
        lambda probe: float(probe.correct(validation.features, validation.labels).mean()),
        n_features=validation.features.shape[1],
        n_classes=len(data.class_names),
        rates=settings.probe_rates,
        epochs=settings.probe_epochs,
        weight_decay=settings.probe_weight_decay,
    )


def first_come(nearest: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return neighbours (m, k) as positions in a list of all that occur, and that list.

    The list starts with everybody's nearest, then comes everybody's second: where it has to be cut, those that matter
    most are kept.

    Example:
        >>> positions, listed = first_come(np.array([[7, 3], [5, 7]]))
        >>> listed.tolist(), positions.tolist()
        ([7, 5, 3], [[0, 2], [1, 0]])
    """
    values, first, inverse = np.unique(nearest.T.ravel(), return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[inverse.ravel()].reshape(nearest.T.shape).T.copy(), values[order]
