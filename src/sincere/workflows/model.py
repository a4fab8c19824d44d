"""A trained model in use: embeddings, labels and neighbours of new images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sincere import checks
from sincere.catalog import CLASSIFIERS, UNKNOWN_SCORES
from sincere.catalog import load as load_target
from sincere.data.decode import BadImageError
from sincere.data.given_images import GivenImages, given_images
from sincere.data.load_options import Progress
from sincere.errors import DataError, InputTypeError, InputValueError, MissingPackageError, missing_package
from sincere.evaluation.classifiers import Classifier
from sincere.evaluation.label_neighbours import K, label_scores
from sincere.evaluation.neighbours import nearest_references
from sincere.evaluation.probe import Probe
from sincere.evaluation.unknown import SCORES, Score, p_values
from sincere.models.embedding import SPEC, WEIGHTS, EmbeddingModel, load_model
from sincere.models.inference import for_inference
from sincere.records.model import ModelSpec
from sincere.records.reference import REFERENCE, Reference
from sincere.workflows.hardware import choose_device
from sincere.workflows.python_objects import given_encoder
from sincere.workflows.run_folder import PROBES

BATCH = 256  # rows of features that are given to the head at once
LINEAR = "linear"  # the classifier that is stored with a run's evaluation
LABELS_FROM = 0.5  # score from which on an image gets a label, where it may have several
SEPARATOR = ";"  # between the labels of an image, as in labels.csv


@dataclass(frozen=True, eq=False)
class Nearest:
    """The nearest training samples of n images, the nearest first.

    Attributes:
        similarities: Cosine similarities (n, k).
        labels: Name of the class of each (n, k); its labels with ; between them, where it may have several.
        names: File name or text of each (n, k), else its id with a #.
        positions: Position of each in the reference set (n, k).
    """

    similarities: Tensor
    labels: list[list[str]]
    names: list[list[str]]
    positions: Tensor


class Model:
    """The model of a run.

    Images may be paths, folders, PIL images, NumPy arrays or tensors of pixels, or lists of these. They are prepared as
    in evaluation, decoded in threads, and embedded in batches. A model of ready-made features takes features (n, d).

    Attributes:
        folder: Folder of the run.
        network: The `nn.Module`, for use in your own code.
        device: Where it computes.
    """

    def __init__(self, folder: Path, network: EmbeddingModel, device: torch.device) -> None:
        self.folder = folder
        self.network = network.to(device).to(memory_format=torch.channels_last).eval()
        self.device = device
        self._scores = dict[str, tuple[Score, Tensor]]()  # with those of the held-out samples

    def __repr__(self) -> str:
        return f"Model({str(self.folder)!r}, {self.network.describe()})"

    @property
    def spec(self) -> ModelSpec:
        """What the model is, besides its weights."""
        return self.network.spec

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes it was trained on."""
        return self.network.spec.class_names

    @cached_property
    def reference(self) -> Reference:
        """The training samples, which others are compared with.

        Raises:
            DataError: The run holds none, or they are damaged.
        """
        reference = Reference.read(self.folder)
        if reference.embeddings.shape[1] != self.spec.dim or reference.class_names != self.class_names:
            raise DataError(f"{self.folder}: its reference embeddings are of another model; evaluate the run again")
        return reference

    @cached_property
    def _references(self) -> tuple[Tensor, Tensor]:
        arrays = (self.reference.embeddings, self.reference.labels)
        embeddings, labels = (torch.from_numpy(array[self._order]).to(self.device) for array in arrays)
        return embeddings, labels

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        """Order of the reference set by class, so that ties go to the smaller label, as in evaluation."""
        if self.has_label_sets:
            return np.arange(len(self.reference))
        return np.argsort(self.reference.labels, kind="stable")

    @property
    def has_label_sets(self) -> bool:
        """Whether it was trained on images that may have several labels; not known without a reference set."""
        return (self.folder / REFERENCE).exists() and self.reference.have_label_sets

    @cached_property
    def _encoder(self) -> nn.Module | None:
        """A faster copy of a frozen encoder, as the one that its features were computed with."""
        if not self.spec.frozen:
            return None
        return for_inference(self.network.encoder, prepare=self.network.preparation).to(self.device)

    def embed(self, images: Any) -> Tensor:
        """Return embeddings of unit length (n, dim), in the order of the images.

        Raises:
            InputTypeError: The images are of a type that is not supported.
            DataError: A file is missing or no image, or values cannot be pixels.
        """
        parts = [outputs[:, : self.spec.dim] for outputs in self._outputs_of(images)]
        return torch.cat(parts).cpu() if parts else torch.zeros(0, self.spec.dim)

    def predict(self, images: Any, *, classifier: str = "knn") -> list[str]:
        """Return the name of the class of each image; see `predict_proba`.

        Where images may have several labels: those with a score of at least 0.5, or the best one, as "sea;sky".
        """
        return [SEPARATOR.join(names) for names in self.named(self.predict_proba(images, classifier=classifier))]

    def named(self, shares: Tensor) -> list[dict[str, float]]:
        """Return the class of each row of shares (n, n_classes), or its labels, with the share of each."""
        found = []
        for row in shares.tolist():
            labels = [label for label, share in enumerate(row) if share >= LABELS_FROM] if self.has_label_sets else []
            labels = sorted(labels, key=lambda label: -row[label]) or [row.index(max(row))]
            found.append({self.class_names[label]: row[label] for label in labels})
        return found

    def predict_proba(self, images: Any, *, classifier: str = "knn") -> Tensor:
        """Return how likely each class is for each image (n, n_classes); rows sum to 1.

        These are shares of votes or a softmax, not calibrated probabilities. Where images may have several labels, the
        score of each is the share of the 20 nearest training samples that have it, and rows do not sum to 1.

        Args:
            images: See the class.
            classifier: "knn": votes of the 5 nearest training samples, weighted by similarity; "dino": of 20, weighted
                by exp(similarity / 0.07); "lightly": of 200, by exp(similarity / 0.1); "means": softmax over the
                similarities to class means; "linear": the linear probe that `sincere evaluate` stores.

        Raises:
            InputTypeError: The images are of a type that is not supported.
            InputValueError: The classifier is unknown, or needs classes where images may have several labels.
            DataError: A file is missing or no image, values cannot be pixels, or the run lacks what the classifier
                needs; the message says which command makes it.
        """
        checks.choice("predict", "classifier", classifier, CLASSIFIERS)
        parts = [self.classify(outputs, classifier).cpu() for outputs in self._outputs_of(images)]
        return torch.cat(parts) if parts else torch.zeros(0, len(self.class_names), dtype=torch.float64)

    def p_known(self, images: Any, *, score: str = "nearest") -> Tensor:
        """Return how well each image fits the known classes (n,): conformal p-values.

        If k of the run's n test images fit no better, it is (k + 1) / (n + 1), so that with fewer than 19 test images
        none is 0.05 or less. Images with at most 0.05 are called unknown; of images of known classes, that is true for
        at most 5% or so.

        Args:
            images: See the class.
            score: "nearest": similarity to the nearest training sample; "mahalanobis": distance to the nearest class
                mean under a covariance that all classes share.

        Raises:
            InputTypeError: The images are of a type that is not supported.
            InputValueError: The score is unknown, or needs classes where images may have several labels.
            DataError: A file is missing or no image, or the run has no reference embeddings.
        """
        checks.choice("p_known", "score", score, UNKNOWN_SCORES)
        parts = [self.fit(outputs, score).cpu() for outputs in self._outputs_of(images)]
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)

    def _outputs_of(self, images: Any) -> Iterator[Tensor]:
        """Yield the outputs of all images, batch by batch."""
        try:
            for _, outputs in self.outputs(self.given(images)):
                yield outputs
        except BadImageError as error:  # no row may be missing from a result
            raise BadImageError(error.problem, "leave it out") from None

    def fit(self, outputs: Tensor, score: str) -> Tensor:
        """Return the p-values of `p_known` for outputs of `outputs`."""
        if score not in self._scores:
            self._check_classes("score", score, "nearest")
            score_of = SCORES[score](*self._references)
            self._scores[score] = score_of, score_of(torch.from_numpy(self.reference.held_out).to(self.device))
        score_of, held_out = self._scores[score]
        return p_values(score_of(outputs[:, : self.spec.dim]), held_out)

    def too_few_to_reject(self, false_alarms: float) -> tuple[str, ...]:
        """Return a note if the run has too few test images to call any image unknown at a rate of false alarms."""
        n = len(self.reference.held_out)
        if false_alarms * (n + 1) >= 1:
            return ()
        few = f"{n} test images are too few to call an image unknown"
        return (f"{few} at a false-alarm rate of {false_alarms:g}; choose a higher --false-alarms",)

    def nearest(self, images: Any, k: int = 5) -> Nearest:
        """Return the k nearest training samples of each image.

        Raises:
            InputTypeError: The images are of a type that is not supported.
            InputValueError: k is not between 1 and the number of training samples.
            DataError: A file is missing or no image, or the run has no reference embeddings.
        """
        return self.neighbours(self.embed(images), checks.count("nearest", "k", k, least=1))

    def neighbours(self, embeddings: Tensor, k: int) -> Nearest:
        """Return the k nearest training samples of embeddings (n, dim)."""
        references, labels = self._references
        similarities, ranks = (x.cpu() for x in nearest_references(embeddings.to(self.device), references, k))
        classes, positions = labels.cpu()[ranks].tolist(), torch.from_numpy(self._order)[ranks]
        return Nearest(
            similarities,
            [[self._text(label) for label in row] for row in classes],
            [[self.reference.name(position) for position in row] for row in positions.tolist()],
            positions,
        )

    def classify(self, outputs: Tensor, classifier: str) -> Tensor:
        """Return the probabilities of the classes for outputs of `outputs`."""
        self._check_classes("classifier", classifier, "knn")
        embeddings, features = outputs[:, : self.spec.dim], outputs[:, self.spec.dim :]
        if self.has_label_sets:
            references, labels = self._references
            found = nearest_references(embeddings, references, min(K, len(references)))
            return label_scores(*found, labels)
        if (target := CLASSIFIERS[classifier].target) is None:
            return torch.softmax(self._probe.logits(features), dim=1)
        references, labels = self._references
        method: Classifier = load_target(target)
        return method.probabilities(embeddings, references, labels, len(self.class_names))

    def _check_classes(self, argument: str, value: str, allowed: str) -> None:
        if self.has_label_sets and value != allowed:
            requirement = f"{argument} must be {allowed} for a run on label sets, because others need classes"
            raise InputValueError(checks.wording(str(self.folder), requirement, value))

    def _text(self, label: int | list[int]) -> str:
        """Return the name of a class, or the names of the labels in a label set."""
        if isinstance(label, int):
            return self.class_names[label]
        return SEPARATOR.join(name for name, has in zip(self.class_names, label, strict=True) if has)

    @cached_property
    def _probe(self) -> Probe:
        path = self.folder / PROBES[LINEAR]
        if not path.exists():
            raise DataError(f"{self.folder}: holds no linear classifier; `sincere evaluate {self.folder}` writes it")
        probe, names = Probe.load(path)
        if names != self.class_names:
            raise DataError(f"{path}: is of other classes than the model; evaluate the run again")
        return Probe(probe.weight.to(self.device), probe.bias.to(self.device), probe.chosen)

    def given(self, value: Any) -> GivenImages | Tensor:
        """Return what a user has given, checked: images, or features (n, d) for a model that takes those.

        Raises:
            InputTypeError: It is of a type that is not supported.
            DataError: A path does not exist, or values cannot be pixels or features.
        """
        if self.spec.n_features is None:
            return given_images(value)
        try:
            features = value if isinstance(value, Tensor) else torch.from_numpy(np.asarray(value, dtype=np.float32))
        except (TypeError, ValueError) as error:
            requirement = "must be features, an array or a tensor (n, d): the model was trained on features"
            raise InputTypeError(checks.wording("images", requirement, type(value).__name__)) from error
        if features.ndim != 2 or features.shape[1] != self.spec.n_features:
            requirement = f"features must have shape (n, {self.spec.n_features}): the model was trained on features"
            raise DataError(checks.wording("images", requirement, tuple(features.shape)))
        if not bool(torch.isfinite(features).all()):
            raise DataError(checks.wording("images", "features must be finite", "NaN or infinite values"))
        return features.float()

    def given_files(self, paths: Sequence[Path]) -> GivenImages:
        """Return the image files that a command was given.

        Raises:
            DataError: A path does not exist, a folder holds no images, or the model takes features.
        """
        if self.spec.n_features is not None:
            remedy = "embed features in Python, with sincere.load(run).embed(features)"
            raise DataError(f"{self.folder}: was trained on ready-made features, not on images; {remedy}")
        return given_images(list(paths))

    def outputs(
        self, given: GivenImages | Tensor, *, skip_bad: bool = False, progress: Progress | None = None
    ) -> Iterator[tuple[list[int], Tensor]]:
        """Yield positions, and embeddings beside the input of linear probes (k, dim + f), batch by batch.

        Args:
            given: What `given` returned.
            skip_bad: Whether to leave out images that cannot be read.
            progress: Called with (done, total).

        Raises:
            BadImageError: An image cannot be read, and `skip_bad` is off.
        """
        if isinstance(given, Tensor):
            for start in range(0, len(given), BATCH):
                rows = given[start : start + BATCH]
                yield list(range(start, start + len(rows))), self.network.outputs(rows.to(self.device))
            return
        spec = self.spec
        shape = spec.image_shape or (spec.channels, spec.size, spec.size)
        for positions, pixels in given.batches(shape, skip_bad=skip_bad, progress=progress):
            yield positions, self._outputs(pixels.to(self.device))

    @torch.inference_mode()
    def _outputs(self, pixels: Tensor) -> Tensor:
        inputs = pixels if self._encoder is None else self._encoder(pixels).float()
        return self.network.outputs(inputs)

    def export(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the model as an ONNX file that takes decoded pixels of any height and width.

        Where onnxruntime is installed, its embeddings of a few images are compared with those of PyTorch first.

        Raises:
            InputValueError: The path does not end with .onnx.
            DataError: The file exists.
            MissingPackageError: onnx or onnxscript is not installed.
            UnsupportedError: The encoder cannot be exported, or the embeddings differ by more than 1e-4.
        """
        from sincere.workflows.export import export_onnx

        export_onnx(self, Path(path), overwrite=overwrite)
        return Path(path)

    def save_pretrained(self, folder: str | Path, *, reference: bool = True, **options: Any) -> str | None:
        """Write a folder as on the Hugging Face hub, with a model card; a README.md that is there stays.

        Args:
            folder: Folder to write to.
            reference: Whether to write what classifies new images: embeddings, labels and file names of the training
                images.
            options: Those of `huggingface_hub.ModelHubMixin.save_pretrained`, such as push_to_hub and repo_id.

        Returns:
            Address of the commit on the hub, if it was pushed.

        Raises:
            MissingPackageError: huggingface_hub is not installed.
            DataError: The folder is that of a run.
        """
        address: str | None = (
            _hub("save_pretrained").HubModel(self, reference=reference).save_pretrained(folder, **options)
        )
        return address

    def push_to_hub(self, repo_id: str, *, reference: bool = True, **options: Any) -> str:
        """Upload what `save_pretrained` writes; return the address of the commit.

        Args:
            repo_id: Name of the repository, such as "user/name".
            reference: See `save_pretrained`: the file names of the training images become public, too.
            options: Those of `huggingface_hub.ModelHubMixin.push_to_hub`, such as private.

        Raises:
            MissingPackageError: huggingface_hub is not installed.
        """
        address: str = _hub("push_to_hub").HubModel(self, reference=reference).push_to_hub(repo_id, **options)
        return address

    @staticmethod
    def from_pretrained(
        name: str | Path, *, encoder: nn.Module | None = None, device: str = "auto", **options: Any
    ) -> Model:
        """Return the model in a folder that `save_pretrained` has written, or in a repository on the hub.

        Args:
            name: The folder, or the name of the repository, such as "user/name".
            encoder: See `load`.
            device: See `load`.
            options: Those of `huggingface_hub.ModelHubMixin.from_pretrained`, such as revision and local_files_only.

        Raises:
            MissingPackageError: huggingface_hub is not installed.
            DataError: There is no such model, it cannot be downloaded, or it is damaged.
        """
        model: Model = _hub("from_pretrained").from_hub(name, encoder=encoder, device=device, **options)
        return model


def _hub(caller: str) -> ModuleType:
    """Return the module that needs huggingface_hub, which need not be installed for anything else."""
    try:
        return import_module("sincere.workflows.hub")
    except ModuleNotFoundError as error:
        raise MissingPackageError(missing_package(caller, error)) from error


def load(run: str | Path, *, encoder: nn.Module | None = None, device: str | torch.device = "auto") -> Model:
    """Return the model of a run, ready to embed and classify images.

    Args:
        run: Folder of the run, or its model.safetensors.
        encoder: A module like the one that the run was given in Python, if it was; the weights are those of the run.
        device: Where to compute: "auto", "cpu", "cuda" or a torch.device.

    Raises:
        DataError: There is none in that folder, or it is damaged.
        InputValueError: The encoder was given in Python and is not given now, or the other way round.
    """
    folder = Path(run)
    if folder.name in (WEIGHTS, SPEC) and folder.is_file():
        folder = folder.parent
    with given_encoder(folder, encoder):
        network = load_model(folder)
    return Model(folder, network, choose_device(device, caller="load") if isinstance(device, str) else device)
