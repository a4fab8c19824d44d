"""Measure a model on a data set: embeddings, metrics of every test image, probes, the table of classes, a map."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from sincere import checks
from sincere.catalog import METRICS, load_named
from sincere.data.dataset import Dataset, ImageSet
from sincere.data.loader import ViewLoader, plain_batches
from sincere.data.samplers import make_sampler
from sincere.data.splits import stratified_split
from sincere.data.views import named_augmentation
from sincere.errors import DataError, InputValueError
from sincere.evaluation.embed import embed, half_is_enough
from sincere.evaluation.margins import margin
from sincere.evaluation.model_outputs import Measure, Part, Subject
from sincere.evaluation.probe import Probe, fast_probe, paper_probe
from sincere.evaluation.projection import choose_points, in_the_plane, nearest_in
from sincere.models.embedding import EmbeddingModel
from sincere.records.arrays import MAP, PER_IMAGE, EmbeddingMap, PerImage
from sincere.records.measuring import MeasureChoices, MeasureSettings
from sincere.records.results import ClassRow, MarginAbout
from sincere.records.tensors import write_tensors
from sincere.workflows.class_table import class_table, margin_about
from sincere.workflows.hardware import bfloat16_gains
from sincere.workflows.run_folder import EMBEDDINGS, PROBES

PRECISION_SAMPLE = 1000  # test images on which half precision is tried
PROBE_BATCH, PROBE_WEIGHT_DECAY = 128, 1e-4  # the paper's
HELD_OUT = 0.1
THUMBNAIL = 32  # pixels

Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Measured:
    """What was measured.

    Attributes:
        subject: The model's outputs on both parts, and its probes.
        measures: Metrics by name.
        classes: The table of classes.
        margin: Over all test images.
        data: What it was measured on.
        notes: What a reader should know.
    """

    subject: Subject
    measures: dict[str, Measure]
    classes: tuple[ClassRow, ...]
    margin: MarginAbout
    data: Dataset
    notes: tuple[str, ...]

    def per_image(self) -> PerImage:
        """Return the figures of every test image."""
        test, train, found = self.subject.test, self.subject.train, self.subject.neighbours
        return PerImage(
            ids=test.ids.cpu().numpy(),
            labels=test.labels.cpu().numpy(),
            predictions=found.predictions[1].cpu().numpy(),
            target_ids=train.ids[found.target_position].cpu().numpy(),
            noise_ids=train.ids[found.noise_position].cpu().numpy(),
            values={name: measure.values for name, measure in self.measures.items()},
        )

    def confusion(self) -> tuple[tuple[int, int, int], ...]:
        """Return the cells of the confusion matrix that are not 0: label, 1-NN prediction, test images."""
        pairs = torch.stack([self.subject.test.labels, self.subject.neighbours.predictions[1]], dim=1)
        cells, counts = pairs.cpu().unique(dim=0, return_counts=True)
        return tuple((i, j, n) for (i, j), n in zip(cells.tolist(), counts.tolist(), strict=True))

    def embedding_map(self) -> EmbeddingMap:
        """Return some of the test images in the plane."""
        chosen = choose_points(len(self.data.test))
        test, predictions = self.subject.test, self.subject.neighbours.predictions[1]
        places = torch.from_numpy(chosen).to(test.ids.device)
        embeddings = test.embeddings[places]
        points, method = in_the_plane(embeddings)
        return EmbeddingMap(
            ids=test.ids[places].cpu().numpy(),
            labels=test.labels[places].cpu().numpy(),
            predictions=predictions[places].cpu().numpy(),
            points=points,
            neighbours=nearest_in(embeddings),
            thumbnails=thumbnails(self.data.test.subset(chosen)),
            method=method,
        )

    def save(self, folder: Path) -> dict[str, str]:
        """Write embeddings.safetensors, the probes, per_image.npz and map.npz; return the SHA-256 of the last two."""
        tensors = {
            f"{name}.{field}": getattr(part, field).cpu().numpy()
            for name, part in (("train", self.subject.train), ("test", self.subject.test))
            for field in ("embeddings", "features", "labels", "ids")
        }
        write_tensors(folder / EMBEDDINGS, tensors)
        for name, probe in self.subject.probes.items():
            probe.save(folder / PROBES[name], self.data.class_names)
        return {PER_IMAGE: self.per_image().write(folder), MAP: self.embedding_map().write(folder)}


def check_measurable(settings: MeasureChoices, data: Dataset) -> None:
    """Raise for what the data do not allow to measure, before anything is trained or embedded.

    Raises:
        InputValueError: A k is larger than the number of training images.
        DataError: No class has the two training images that a linear probe needs.
    """
    if max(settings.ks) > len(data.train):
        requirement = f"ks must be at most {len(data.train)}, the training images there are"
        raise InputValueError(checks.wording("evaluate", requirement, max(settings.ks)))
    if "linear" in settings.metrics and np.bincount(data.train.labels).max() < 2:
        remedy = "leave it out: --metrics margin knn"
        raise DataError(f"{data.name}: linear needs a class with two training images; {remedy}")


def check_metrics(settings: MeasureChoices) -> None:
    """Raise for a metric that does not exist, before anything is loaded.

    Raises:
        InputValueError: With the names there are and the nearest one.
    """
    for name in settings.metrics:
        load_named(METRICS, name, caller="evaluate", argument="metric")


def measure(
    model: EmbeddingModel,
    data: Dataset,
    settings: MeasureSettings,
    *,
    device: torch.device,
    temperature: float,
    say: Say,
) -> Measured:
    """Measure a model.

    Args:
        model: In evaluation mode.
        data: What to measure on; neighbours and probes come from its training part.
        settings: What to measure.
        device: Where.
        temperature: Of the divergence bounds.
        say: Told what is going on.

    Raises:
        DataError: An output of the model is not finite, or the data do not allow what is asked for.
        InputValueError: A k is larger than the number of training images.
    """
    check_measurable(settings, data)
    model.to(device)
    compute, notes = _precision(model, data, device)
    say(f"embedding {len(data.train):,} training and {len(data.test):,} test images")
    train, test = (_part(compute, part, model, device) for part in (data.train, data.test))
    probes = {}
    if "linear" in settings.metrics:
        if settings.probe in ("fast", "both"):
            say("learning the linear probe: logistic regression on features")
            learn, held_out = _probe_split(data.train.labels, settings.seed)
            probes["linear"] = fast_probe(train.features, train.labels, learn=learn, held_out=held_out)
        if settings.probe in ("paper", "both"):
            say(f"learning the linear probe: SGD over {settings.probe_epochs} epochs of augmented images, twice")
            probes["linear_paper"] = _paper_probe(compute, data, model, settings, device)
    subject = Subject(train, test, settings.ks, probes)
    families = [load_named(METRICS, name, caller="evaluate", argument="metric") for name in settings.metrics]
    measures: dict[str, Measure] = {}
    for family in families:
        measures |= family(subject)
    found = subject.neighbours
    target, noise = (x.cpu().numpy() for x in (found.target_similarity, found.noise_similarity))
    classes = class_table(subject, data.class_names, temperature=temperature)
    return Measured(subject, measures, classes, margin_about(margin(target, noise)), data, notes)


def _precision(
    model: EmbeddingModel, data: Dataset, device: torch.device
) -> tuple[Callable[[Tensor], Tensor], tuple[str, ...]]:
    """Return how to compute outputs: in bfloat16 where the hardware gains from it and the metrics stay the same."""
    if not bfloat16_gains(device) or len(data.test) < 2:
        return model.outputs, ()

    def half(images: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            return model.outputs(images)

    some = data.test.subset(choose_points(len(data.test), most=PRECISION_SAMPLE))
    batch = next(plain_batches(some, batch_size=PRECISION_SAMPLE, device=device))
    dim = model.spec.dim

    def only_embeddings(compute: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda images: compute(images)[:, :dim]

    if half_is_enough(only_embeddings(model.outputs), only_embeddings(half), batch.images, batch.labels):
        return half, ("embeddings were computed in bfloat16, which left the metrics of a sample unchanged",)
    return model.outputs, ("embeddings were computed in float32: bfloat16 changed the metrics of a sample",)


def _part(compute: Callable[[Tensor], Tensor], images: ImageSet, model: EmbeddingModel, device: torch.device) -> Part:
    found = embed(compute, plain_batches(images, device=device))
    dim = model.spec.dim
    outputs = found.embeddings
    if not bool(torch.isfinite(outputs.sum())):
        image = int(found.ids[~torch.isfinite(outputs).all(dim=1)][0])
        remedy = "its weights are damaged or its training diverged: train again with a lower --learning-rate"
        raise DataError(f"evaluate: the model's output for image {image} is not finite; {remedy}")
    return Part(outputs[:, :dim].contiguous(), outputs[:, dim:].contiguous(), found.labels, found.ids)


def _probe_split(labels: NDArray[np.int64], seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the images to learn from and those held out to choose on; a class's only image is learned from."""
    several = np.flatnonzero(np.bincount(labels)[labels] >= 2)
    _, chosen = stratified_split(labels[several], HELD_OUT, seed=seed)
    held_out = several[chosen]
    return np.setdiff1d(np.arange(len(labels)), held_out), held_out


def _paper_probe(
    compute: Callable[[Tensor], Tensor],
    data: Dataset,
    model: EmbeddingModel,
    settings: MeasureSettings,
    device: torch.device,
) -> Probe:
    """Learn the paper's probe: crops and flips, anew in every epoch."""
    augmentation = named_augmentation("crops", mirror_is_same_class=data.mirror_is_same_class)
    learn, held_out = (data.train.subset(chosen) for chosen in _probe_split(data.train.labels, settings.seed))
    dim = model.spec.dim

    def batches(images: ImageSet) -> Callable[[int], Iterable[tuple[Tensor, Tensor]]]:
        sampler = make_sampler("shuffle", images.labels, min(PROBE_BATCH, len(images)), seed=settings.seed)
        size = model.spec.size
        loader = ViewLoader(images, sampler, augmentation, size, seed=settings.seed, n_views=1, device=device)

        def epoch(number: int) -> Iterable[tuple[Tensor, Tensor]]:
            for batch in loader.batches(number * sampler.n_batches, (number + 1) * sampler.n_batches):
                yield compute(batch.images[:, 0])[:, dim:], batch.labels

        return epoch

    asked = _part(compute, held_out, model, device)
    return paper_probe(
        batches(learn),
        batches(data.train),
        lambda probe: float(probe.correct(asked.features, asked.labels).mean()),
        n_features=asked.features.shape[1],
        n_classes=len(data.class_names),
        epochs=settings.probe_epochs,
        weight_decay=PROBE_WEIGHT_DECAY,
    )


def thumbnails(images: ImageSet) -> NDArray[np.uint8]:
    """Return small pixels (n, h, w, c); images that are small already stay as they are."""
    pixels = torch.cat([batch.images.cpu() for batch in plain_batches(images)])
    if max(pixels.shape[-2:]) > THUMBNAIL:
        small = interpolate(pixels.float(), (THUMBNAIL, THUMBNAIL), mode="bilinear", antialias=True)
        pixels = small.round().clamp(0, 255).to(torch.uint8)
    return cast(NDArray[np.uint8], pixels.permute(0, 2, 3, 1).contiguous().numpy())
