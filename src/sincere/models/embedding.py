"""The embedding model: how to prepare an image, an encoder, a head. On disk: safetensors and JSON.

Where the encoder is frozen, or there is none, the model also takes features in place of images.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.nn.functional import interpolate, normalize

from sincere import checks
from sincere.catalog import ENCODERS, HEADS, PYTHON, TIMM, load_named
from sincere.errors import DataError, InputValueError, MissingPackageError, first_line, missing_package
from sincere.models.norms import with_group_norms
from sincere.models.weights import (
    EncoderWeights,
    description,
    first_names,
    has_running_statistics,
    imagenet_weights,
    load_encoder,
    suited_spec,
    with_input,
)
from sincere.records.files import check_folder_exists, read_json, write_json
from sincere.records.model import ModelSpec
from sincere.records.tensors import read_tensors, write_tensors

WEIGHTS, SPEC = "model.safetensors", "model.json"
CLASSIFIER = "classifier."  # prefix of weights that serve the training only
# ITU-R 601-2 as in Pillow, which decodes grey training images. Its weights sum to 1: grey pixels stored as RGB keep
# their value. (Augmentations take torchvision's 0.2989 for red instead, see `data.colour`.)
_LUMA = (0.299, 0.587, 0.114)
REMEDY = "copy it again, or train again"
TRIAL_IMAGES = 2  # with which an encoder is tried


class Preparation(nn.Module):
    """Maps pixels to network input: scaled to [0, 1], grey or colour as in training, resized and normalised."""

    mean: Tensor
    std: Tensor

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.size = spec.size
        self.register_buffer("mean", torch.tensor(spec.mean)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(spec.std)[:, None, None], persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return network input (n, c, size, size) for images (n, c, h, w), uint8 or float in [0, 1]."""
        pixels = images.float().div(255) if images.dtype == torch.uint8 else images
        if pixels.shape[1] != len(self.mean):
            pixels = _convert_channels(pixels, len(self.mean))
        if pixels.shape[-2:] != (self.size, self.size):
            pixels = interpolate(pixels, (self.size, self.size), mode="bilinear", antialias=True, align_corners=False)
        return pixels.sub(self.mean).div_(self.std)


def _convert_channels(pixels: Tensor, n_channels: int) -> Tensor:
    """Return colour images as grey ones, or grey images as colour ones."""
    if n_channels == 1:
        return (pixels * pixels.new_tensor(_LUMA)[:, None, None]).sum(dim=1, keepdim=True)
    return pixels.expand(-1, n_channels, -1, -1)


class EmbeddingModel(nn.Module):
    """Maps images to embeddings: preparation, encoder and projection head.

    Args:
        spec: What the model is.
        encoder: Prepared images (n, c, size, size) to features (n, d).
        head: Features to embeddings (n, dim).
        origin: Where the initial weights came from, for `describe`; empty for random ones.
    """

    def __init__(self, spec: ModelSpec, encoder: nn.Module, head: nn.Module, *, origin: str = "") -> None:
        super().__init__()
        self.spec = spec
        self.origin = origin
        self.preparation = Preparation(spec)
        self.encoder = encoder
        self.head = head
        self.classifier: nn.Linear | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the output of the head (n, dim), not normalised; in training, that of the classifier behind it.

        Args:
            inputs: Images (n, c, h, w), uint8 or float in [0, 1], or features (n, d).
        """
        features = self.features(inputs)
        embeddings = self._project(features)
        if self.classifier is None or not self.training:
            return embeddings
        logits: Tensor = self.classifier(features / self.spec.feature_scale)
        return torch.cat([embeddings, logits], dim=1)

    def add_classifier(self, n_features: int, n_classes: int, *, seed: int) -> None:
        """Add a linear classifier on the output of the encoder, for a loss that has such a term; it is not stored."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.classifier = nn.Linear(n_features, n_classes)

    def features(self, inputs: Tensor) -> Tensor:
        """Return the output of the encoder (n, d) for images; features (n, d) are returned as they are."""
        if inputs.ndim == 2:
            return inputs
        output: Tensor = self.encoder(self.preparation(inputs))
        return output

    def _project(self, features: Tensor) -> Tensor:
        scale = self.spec.feature_scale
        output: Tensor = self.head(features if scale == 1 else features / scale)
        return output

    @torch.no_grad()
    def embed(self, inputs: Tensor) -> Tensor:
        """Return embeddings of unit length, without gradients."""
        return normalize(self(inputs).float(), dim=1)

    @torch.no_grad()
    def outputs(self, inputs: Tensor) -> Tensor:
        """Return embeddings of unit length and the input of linear probes, concatenated, without gradients.

        Probes take the output of the encoder (n, d); where that was frozen, the embeddings (n, dim).
        """
        features = self.features(inputs)
        embeddings = normalize(self._project(features).float(), dim=1)
        return torch.cat([embeddings, embeddings if self.spec.frozen else features.float()], dim=1)

    def at_size(self, size: int) -> EmbeddingModel:
        """Return the same network for input of another size; the encoder must take it.

        Raises:
            InputValueError: The model takes ready-made features.
        """
        if self.spec.n_features is not None:
            raise InputValueError(checks.wording("model", "size must not be set for ready-made features", size))
        model = EmbeddingModel(self.spec.model_copy(update={"size": size}), self.encoder, self.head, origin=self.origin)
        return model.train(self.training)

    def describe(self) -> str:
        """Return one line with the encoder, its size and stem, the input, the head and where its weights came from."""
        if self.spec.n_features is not None:
            return f"{self.spec.n_features:,} ready-made features; head {self.spec.head}, {self.spec.dim} dimensions"
        millions = sum(parameter.numel() for parameter in self.encoder.parameters()) / 1e6
        stem = getattr(self.encoder, "conv1", None)
        stem_text = f", {stem.kernel_size[0]} x {stem.kernel_size[0]} stem" if isinstance(stem, nn.Conv2d) else ""
        spec = self.spec
        if spec.stem is not None:
            stem_text += " (that of its weights)"
        if spec.norm == "group":
            stem_text += ", group norms"
        shape = f"{spec.size} x {spec.size} px, {'grey' if spec.channels == 1 else 'colour'}"
        head = f"head {spec.head}, {spec.dim} dimensions"
        origin = f"; {self.origin}" if self.origin else ""
        origin += "; frozen, only the head is trained" if spec.frozen else ""
        return f"{spec.encoder}: {millions:.2f}M parameters{stem_text} for {shape}; {head}{origin}"


def check_encoder(name: str) -> str:
    """Return the name of an encoder if it exists.

    Raises:
        InputValueError: It does not, and the message suggests the nearest name.
        MissingPackageError: It needs timm, which is not installed.
    """
    if name.startswith(PYTHON) and name not in ENCODERS:
        requirement = "encoder was given in Python and must be given again, as encoder="
        raise InputValueError(checks.wording("model", requirement, name))
    if not name.startswith(TIMM):
        return checks.choice("model", "encoder", name, ENCODERS)
    try:
        import timm
    except ModuleNotFoundError as error:
        raise MissingPackageError(missing_package(f"model: the encoder {name}", error, extra="timm")) from error
    except ImportError as error:
        raise MissingPackageError(f"model: timm cannot be imported ({first_line(error)})") from error
    short = name.removeprefix(TIMM)
    if not timm.is_model(short):
        near = timm.list_models(f"*{short.split('_')[0]}*")[:5]
        hint = f"Near: {', '.join(near)}" if near else ""
        raise InputValueError(checks.wording("model", "encoder must be a name that timm knows", repr(short), hint))
    return name


def build_model(
    spec: ModelSpec, *, seed: int = 0, pretrained: bool = False, weights: EncoderWeights | None = None
) -> EmbeddingModel:
    """Build a model with weights initialised from `seed`; the encoder may start from others.

    Without a head, `spec.dim` becomes that of the encoder. With `pretrained` or `weights`, the spec gets the stem, the
    channels and the input scaling that they expect.

    Raises:
        InputValueError: A name is unknown, the encoder does not support this image size, or the weights do not fit it.
        DataError: ImageNet weights cannot be read or downloaded.
    """
    make_head = load_named(HEADS, spec.head, caller="model", argument="head")
    check_encoder(spec.encoder)
    channels = spec.channels
    if pretrained and spec.encoder.startswith(TIMM):
        spec = _timm_input(spec)
    elif pretrained:
        weights = imagenet_weights(spec.encoder)
    if weights is not None:
        spec = suited_spec(spec, weights)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = _encoder(spec, pretrained)
        encoder, ignored = _started(encoder, spec, weights)
        features = _n_features(encoder, spec)
        head = make_head(features, spec.dim)
    if spec.head == "none":
        spec = spec.model_copy(update={"dim": features})
    source = "ImageNet" if pretrained else weights.source if weights is not None else None
    return EmbeddingModel(spec, encoder, head, origin=_origin(source, ignored, channels, spec.channels))


def _started(encoder: nn.Module, spec: ModelSpec, weights: EncoderWeights | None) -> tuple[nn.Module, tuple[str, ...]]:
    """Return an encoder with its norms and initial weights, and the names of the tensors that were not used."""
    late = weights is not None and spec.norm == "group" and not has_running_statistics(weights)
    ignored: tuple[str, ...] = ()
    if weights is not None and not late:
        ignored = load_encoder(encoder, weights, name=spec.encoder)
    if spec.norm == "group":
        encoder = with_group_norms(encoder)
    if weights is not None and late:  # of an encoder that had group norms already
        ignored = load_encoder(encoder, weights, name=spec.encoder)
    return encoder, ignored


def _origin(source: str | None, ignored: tuple[str, ...], given: int, taken: int) -> str:
    """Return in words where the weights came from, which tensors were ignored, and how images are converted."""
    if source is None:
        return ""
    notes = [f"{first_names(ignored)} ignored"] if ignored else []
    if given != taken:
        notes.append("grey images taken as colour" if taken == 3 else "colour images taken as grey")
    return f"starts from {source} weights" + (f" ({'; '.join(notes)})" if notes else "")


def _encoder(spec: ModelSpec, pretrained: bool) -> nn.Module:
    if not spec.encoder.startswith(TIMM):
        entry = ENCODERS[spec.encoder]
        stem = {"stem": spec.stem} if spec.stem in entry.stem_sides else {}
        encoder: nn.Module = entry.load()(channels=spec.channels, size=spec.size, **stem)
        return encoder
    import timm

    name = spec.encoder.removeprefix(TIMM)
    options: dict[str, Any] = {"num_classes": 0, "in_chans": spec.channels, "pretrained": pretrained}
    try:
        try:
            network: nn.Module = timm.create_model(name, img_size=spec.size, **options)
        except TypeError:  # models without a fixed input size do not take it
            network = timm.create_model(name, **options)
    except (OSError, RuntimeError) as error:
        if not pretrained:
            raise
        raise DataError(f"{spec.encoder}: its weights could not be downloaded ({first_line(error)})") from error
    return network


def _timm_input(spec: ModelSpec) -> ModelSpec:
    """Return the spec with the input that timm's own weights expect: colour, with their mean and standard deviation."""
    import timm

    config = timm.get_pretrained_cfg(spec.encoder.removeprefix(TIMM))
    colour = spec.model_copy(update={"channels": 3})
    return with_input(colour, config.mean, config.std) if config is not None else with_input(colour, None, None)


@torch.no_grad()
def _n_features(encoder: nn.Module, spec: ModelSpec) -> int:
    """Return the dimension of the encoder's output, from two black images.

    Raises:
        InputValueError: It does not take such images, or does not return features (2, d).
    """
    if spec.n_features is not None:
        return spec.n_features
    training = encoder.training
    shape = (TRIAL_IMAGES, spec.channels, spec.size, spec.size)
    try:
        output: Tensor = encoder.eval()(torch.zeros(shape))
    except (RuntimeError, AssertionError) as error:
        requirement = f"encoder {spec.encoder} must take images of shape {shape}"
        raise InputValueError(checks.wording("model", requirement, first_line(error))) from error
    finally:
        encoder.train(training)
    got = f"{output.dtype} of shape {tuple(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
    sound = isinstance(output, Tensor) and output.ndim == 2 and len(output) == TRIAL_IMAGES and output.shape[1] > 0
    if not sound or not output.is_floating_point():
        requirement = f"encoder {spec.encoder} must return floating-point features of shape ({TRIAL_IMAGES}, d) here"
        raise InputValueError(checks.wording("model", requirement, got))
    return output.shape[1]


def save_model(model: EmbeddingModel, folder: Path) -> None:
    """Write model.safetensors and model.json."""
    states = model.state_dict().items()
    arrays = {name: value.cpu().numpy() for name, value in states if not name.startswith(CLASSIFIER)}
    write_tensors(folder / WEIGHTS, arrays, description(model.spec))
    save_spec(model.spec, folder)


def save_spec(spec: ModelSpec, folder: Path) -> None:
    """Write model.json."""
    write_json(folder / SPEC, spec.model_dump(mode="json"))


def load_spec(folder: Path) -> ModelSpec:
    """Read model.json.

    Raises:
        DataError: It is missing or damaged.
    """
    try:
        return ModelSpec.model_validate(read_json(folder / SPEC, remedy=REMEDY))
    except FileNotFoundError as error:
        check_folder_exists(folder)
        raise DataError(f"{folder}: holds no model; {SPEC} is missing") from error
    except ValidationError as error:
        reason = first_line(error)
        raise DataError(f"{folder}: its model is damaged ({reason})") from error


def load_model(folder: Path) -> EmbeddingModel:
    """Read a model, in evaluation mode; nothing in the files is executed.

    Raises:
        DataError: A file is missing, damaged or of another model.
    """
    spec = load_spec(folder)
    try:
        arrays, _ = read_tensors(folder / WEIGHTS, remedy=REMEDY)
    except FileNotFoundError as error:
        remedy = f"a run has it when it is finished: `sincere train --resume --out {folder}`"
        raise DataError(f"{folder}: holds no model; {WEIGHTS} is missing; {remedy}") from error
    weights = {name: torch.from_numpy(array) for name, array in arrays.items()}
    model = build_model(spec)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise DataError(f"{folder}: {WEIGHTS} does not fit {SPEC}") from error
    return model.eval()
