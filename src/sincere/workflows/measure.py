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
from sincere.catalog import METRICS, load
from sincere.data.dataset import Dataset, Samples
from sincere.data.loader import ViewLoader, plain_batches
from sincere.data.samplers import make_sampler
from sincere.data.splits import stratified_split
from sincere.data.views import named_augmentation, view_maker
from sincere.errors import DataError, InputValueError
from sincere.evaluation.margins import margin
from sincere.evaluation.model_outputs import Metric, ModelOutputs
from sincere.evaluation.probe import Probe, fast_probe, paper_probe
from sincere.evaluation.projection import nearest_others, project_2d, sample_positions
from sincere.evaluation.unknown import measure_unknown
from sincere.messages import Messages
from sincere.models.embedding import EmbeddingModel
from sincere.records.arrays import MAP, PER_IMAGE, EmbeddingMap, PerImage
from sincere.records.results import ClassRow, MarginAbout
from sincere.records.tensors import write_tensors
from sincere.settings.evaluation import EvaluationSettings
from sincere.workflows.arithmetic import Compute
from sincere.workflows.class_table import class_table, margin_about
from sincere.workflows.embedded_data import EmbeddedData, check_finite, embed_data, embed_part
from sincere.workflows.run_folder import EMBEDDINGS, PROBES

PROBE_BATCH, PROBE_WEIGHT_DECAY = 128, 1e-4  # the paper's
HELD_OUT = 0.1
THUMBNAIL = 32  # pixels


@dataclass(frozen=True, eq=False)
class Measured:
    """What was measured.

    Attributes:
        outputs: The outputs of the model on both parts, and its probes.
        measures: Metrics by name.
        classes: The table of classes.
        margin: Margin over all test images.
        data: The data set.
        notes: Notes for the reader.
        fpr95: Share of unknown images that score as 95% of the known ones do, by score; empty without unknown classes.
    """

    outputs: ModelOutputs
    measures: dict[str, Metric]
    classes: tuple[ClassRow, ...]
    margin: MarginAbout
    data: Dataset
    notes: tuple[str, ...]
    fpr95: dict[str, float]

    def per_image(self) -> PerImage:
        """Return the metrics of every test image."""
        test, train, neighbours = self.outputs.test, self.outputs.train, self.outputs.neighbours
        return PerImage(
            ids=test.ids.cpu().numpy(),
            labels=test.labels.cpu().numpy(),
            predictions=neighbours.predictions[1].cpu().numpy(),
            target_ids=train.ids[neighbours.target_position].cpu().numpy(),
            noise_ids=train.ids[neighbours.noise_position].cpu().numpy(),
            values={name: measure.values for name, measure in self.measures.items()},
        )

    def confusion(self) -> tuple[tuple[int, int, int], ...]:
        """Return the cells of the confusion matrix that are not 0: label, 1-NN prediction, test images."""
        pairs = torch.stack([self.outputs.test.labels, self.outputs.neighbours.predictions[1]], dim=1)
        cells, counts = pairs.cpu().unique(dim=0, return_counts=True)
        return tuple((i, j, n) for (i, j), n in zip(cells.tolist(), counts.tolist(), strict=True))

    def embedding_map(self) -> EmbeddingMap:
        """Return some of the test images in the plane."""
        chosen = sample_positions(len(self.data.test))
        images, texts = (self.data.origin or self.data).test, self.data.test.texts
        test, predictions = self.outputs.test, self.outputs.neighbours.predictions[1]
        positions = torch.from_numpy(chosen).to(test.ids.device)
        embeddings = test.embeddings[positions]
        points, method = project_2d(embeddings)
        return EmbeddingMap(
            ids=test.ids[positions].cpu().numpy(),
            labels=test.labels[positions].cpu().numpy(),
            predictions=predictions[positions].cpu().numpy(),
            points=points,
            neighbours=nearest_others(embeddings),
            thumbnails=None if images.are_features else thumbnails(images.subset(chosen)),
            method=method,
            texts=None if texts is None else texts[chosen],
        )

    def save(self, folder: Path, per_image: PerImage) -> dict[str, str]:
        """Write embeddings.safetensors, the probes, per_image.npz and map.npz; return the SHA-256 of the last two."""
        tensors = {
            f"{name}.{field}": getattr(part, field).cpu().numpy()
            for name, part in (("train", self.outputs.train), ("test", self.outputs.test))
            for field in ("embeddings", "features", "labels", "ids")
        }
        write_tensors(folder / EMBEDDINGS, tensors)
        for name, probe in self.outputs.probes.items():
            probe.save(folder / PROBES[name], self.data.class_names)
        return {PER_IMAGE: per_image.write(folder), MAP: self.embedding_map().write(folder)}


def check_measurable(settings: EvaluationSettings, data: Dataset, *, caller: str = "evaluate") -> None:
    """Raise for what the data do not allow to measure, before anything is trained or embedded.

    Raises:
        InputValueError: A k is larger than the number of training images, or the probe needs images.
        DataError: No class has the two training images that a linear probe needs.
    """
    if max(settings.ks) > len(data.train):
        requirement = f"ks must be at most {len(data.train)}, the training {data.noun} there are"
        raise InputValueError(checks.wording(caller, requirement, max(settings.ks)))
    images = data.origin or data
    if "linear" in settings.metrics and settings.probe != "fast" and images.train.are_features:
        requirement = "probe must be fast for features, because the paper's is trained on augmented images"
        raise InputValueError(checks.wording(caller, requirement, settings.probe))
    if "linear" in settings.metrics and np.bincount(data.train.labels).max() < 2:
        remedy = "leave it out: --metrics margin knn"
        raise DataError(f"{data.name}: linear needs a class with two training {data.noun}; {remedy}")


def measure(
    model: EmbeddingModel,
    data: Dataset,
    settings: EvaluationSettings,
    *,
    seed: int,
    device: torch.device,
    temperature: float,
    messages: Messages,
    embedded: EmbeddedData | None = None,
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
        embedded: What the model makes of the data; computed if None.

    Raises:
        DataError: An output of the model is not finite, or the data do not allow what is asked for.
        InputValueError: A k is larger than the number of training images.
    """
    check_measurable(settings, data)
    if embedded is None:
        messages.say(f"embedding {len(data.train):,} training and {len(data.test):,} test {data.noun}")
        embedded = embed_data(model, data, device)
    train, test = embedded.train, embedded.test
    for part in (train, test):
        check_finite(part)
    probes = {}
    if "linear" in settings.metrics:
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
            probes["linear_paper"] = _paper_probe(embedded.compute, images, model, settings, seed, device)
    outputs = ModelOutputs(train, test, settings.ks, probes, embedded.unknown)
    families = [load(METRICS[name]) for name in settings.metrics]
    measures: dict[str, Metric] = {}
    for family in families:
        measures |= family(outputs)
    rates: dict[str, float] = {}
    if outputs.unknown is not None:
        check_finite(outputs.unknown)
        unknown, rates = measure_unknown(outputs)
        measures |= unknown
    neighbours = outputs.neighbours
    target, noise = (x.cpu().numpy() for x in (neighbours.target_similarity, neighbours.noise_similarity))
    classes = class_table(outputs, data.class_names, temperature=temperature)
    return Measured(outputs, measures, classes, margin_about(margin(target, noise)), data, embedded.notes, rates)


def _probe_split(labels: NDArray[np.int64], seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the images to learn from and those held out to choose on; a class's only image is learned from."""
    several = np.flatnonzero(np.bincount(labels)[labels] >= 2)
    _, chosen = stratified_split(labels[several], HELD_OUT, seed=seed)
    held_out = several[chosen]
    return np.setdiff1d(np.arange(len(labels)), held_out), held_out


def _paper_probe(
    compute: Compute,
    data: Dataset,
    model: EmbeddingModel,
    settings: EvaluationSettings,
    seed: int,
    device: torch.device,
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
                yield compute(batch.inputs[:, 0])[:, dim:], batch.labels

        return epoch

    validation = embed_part(compute, held_out, model, device)
    return paper_probe(
        batches(learn),
        batches(data.train),
        lambda probe: float(probe.correct(validation.features, validation.labels).mean()),
        n_features=validation.features.shape[1],
        n_classes=len(data.class_names),
        epochs=settings.probe_epochs,
        weight_decay=PROBE_WEIGHT_DECAY,
    )


def thumbnails(images: Samples, side: int = THUMBNAIL) -> NDArray[np.uint8]:
    """Return small pixels (n, h, w, c); images that are small already stay as they are."""
    pixels = torch.cat([batch.inputs.cpu() for batch in plain_batches(images)])
    if max(pixels.shape[-2:]) > side:
        small = interpolate(pixels.float(), (side, side), mode="bilinear", antialias=True)
        pixels = small.round().clamp(0, 255).to(torch.uint8)
    return cast(NDArray[np.uint8], pixels.permute(0, 2, 3, 1).contiguous().numpy())
