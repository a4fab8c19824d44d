"""Weights that an encoder starts from: its ImageNet weights, or those of a file. Nothing in a file is executed."""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from sincere import checks
from sincere.catalog import ENCODERS, TIMM, load
from sincere.errors import DataError, InputValueError
from sincere.records.files import CHECKSUM, check_sha256, is_intact_zip, read_bytes
from sincere.records.model import ModelSpec
from sincere.records.tensors import checksum

ABOUT = "sincere"  # key of what a run's model.safetensors says of itself
SAFETENSORS = ".safetensors"
COUNTER = "num_batches_tracked"  # of a batch norm; not used with a fixed momentum, and missing in old files
CLASSIFIER = re.compile(r"(fc|classifier|head)\.")
PREFIX = re.compile(r"((module|encoder|backbone|model|_orig_mod)\.){0,4}")
NESTED = ("state_dict", "model")  # keys under which training scripts store the weights
SHOWN, LONGEST = 3, 80  # names in a message, characters of a name
LARGEST_SIZE = 4096  # pixels, of a run's input


@dataclass(frozen=True)
class EncoderWeights:
    """Tensors for an encoder, under the names of their file.

    Attributes:
        source: Where they come from, for messages.
        tensors: The tensors, by name.
        mean: Mean of each channel that they expect, as a fraction of 255; None if unknown.
        std: Standard deviation of each channel that they expect.
        about: What the file says of itself, if it is a run's.
    """

    source: str
    tensors: Mapping[str, Tensor]
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    about: RunDescription | None = None


@dataclass(frozen=True)
class RunDescription:
    """The encoder of a run, and the side of its input in pixels; None if an older file does not say it."""

    encoder: str
    size: int | None


def imagenet_weights(encoder: str) -> EncoderWeights:
    """Return the ImageNet weights of an encoder of the catalog.

    Raises:
        InputValueError: It has none.
        DataError: They cannot be downloaded, or are damaged.
        MissingPackageError: The package that holds them is not installed.
    """
    entry = ENCODERS[checks.choice("model", "encoder", encoder, ENCODERS)]
    if entry.weights is None:
        requirement = f"pretrained must be off for encoder {encoder}, which has no ImageNet weights"
        raise InputValueError(checks.wording("model", requirement, "on"))
    return EncoderWeights("ImageNet", load(entry.weights)(encoder), entry.mean, entry.std)


def read_weights(path: Path, encoder: str, *, sha256: str | None = None) -> EncoderWeights:
    """Read a file of weights: .safetensors, or what torch.save has made of plain tensors.

    A run's model.safetensors tells what input it expects; other files are taken to expect that of the encoder's
    ImageNet weights.

    Args:
        path: The file.
        encoder: Name of the encoder they are for.
        sha256: Content hash that the file must have; None for any.

    Raises:
        DataError: It is missing, damaged, not a file of tensors, or not the expected one.
    """
    try:
        data = read_bytes(path)
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; --weights says where the weights are") from error
    check_sha256(path, hashlib.sha256(data).hexdigest(), sha256)
    tensors, about = _safetensors(path, data) if path.suffix == SAFETENSORS else (_unpickled(path, data), {})
    if ABOUT in about:
        mean, std = _scaling(path, tensors, about)
        return EncoderWeights(str(path), tensors, mean, std, _described(about))
    if CHECKSUM in about:
        remedy = "give the run's model.safetensors"
        raise DataError(f"{path}: is damaged, or is another file of a run than its model; {remedy}")
    entry = ENCODERS.get(encoder)
    return EncoderWeights(str(path), tensors, entry.mean if entry else None, entry.std if entry else None)


def _safetensors(path: Path, data: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        tensors = safetensors.torch.load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    except Exception as error:  # damaged headers make it raise almost anything
        raise DataError(f"{path}: is truncated, damaged or not a safetensors file") from error
    return tensors, header.get("__metadata__") or {}


def _unpickled(path: Path, data: bytes) -> dict[str, Tensor]:
    is_archive = data.startswith(b"PK")
    if (is_archive and not is_intact_zip(data)) or not (is_archive or data.startswith(b"\x80")):
        raise DataError(f"{path}: is truncated, damaged or not a file of torch.save")
    try:
        with warnings.catch_warnings(action="ignore"):  # about pickles that it refuses next
            content: Any = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # damaged pickles make it raise almost anything
        remedy = "only plain tensors are read, no code is executed; save the state_dict, or use .safetensors"
        raise DataError(f"{path}: cannot be loaded with weights_only; {remedy}") from error
    if isinstance(content, dict):
        content = next((content[key] for key in NESTED if isinstance(content.get(key), dict)), content)
    if not isinstance(content, dict) or not content or not all(isinstance(name, str) for name in content):
        raise DataError(f"{path}: holds no tensors by name; save the state_dict of the network")
    if not all(isinstance(value, Tensor) for value in content.values()):
        raise DataError(f"{path}: holds more than tensors by name; save the state_dict of the network alone")
    return content


def _scaling(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> list[tuple[float, ...]]:
    """Return the mean and the standard deviation that a run's own file names, after a check of its content."""
    stored = {name: value for name, value in about.items() if name != CHECKSUM}
    try:
        intact = checksum({name: value.numpy() for name, value in tensors.items()}, stored) == about[CHECKSUM]
        scaling = json.loads(about[ABOUT])
        mean, std = (tuple(map(float, scaling[name])) for name in ("mean", "std"))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: is damaged; copy it again") from error
    if not intact or not all(map(math.isfinite, mean + std)) or not all(value > 0 for value in std):
        raise DataError(f"{path}: was damaged or changed: its checksum does not match; copy it again")
    return [mean, std]


def description(spec: ModelSpec) -> dict[str, str]:
    """Return what a run's model.safetensors says of itself, as its metadata."""
    about = {"encoder": spec.encoder, "size": spec.size or None, "mean": spec.mean, "std": spec.std}
    return {ABOUT: json.dumps(about)}


def run_description(path: Path) -> RunDescription | None:
    """Return what a run's model.safetensors says of itself; None for other files, and for those that cannot be read."""
    if path.suffix != SAFETENSORS:
        return None
    try:
        with safetensors.safe_open(path, "numpy") as file:
            return _described(file.metadata() or {})
    except Exception:  # missing or damaged files make it raise almost anything; `read_weights` says what is wrong
        return None


def _described(about: Mapping[str, str]) -> RunDescription | None:
    try:
        stored = json.loads(about[ABOUT])
        encoder, size = stored["encoder"], stored.get("size")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return None
    sound = isinstance(encoder, str) and (size is None or (type(size) is int and 0 < size <= LARGEST_SIZE))
    return RunDescription(encoder, size) if sound else None


def suited_spec(spec: ModelSpec, weights: EncoderWeights) -> ModelSpec:
    """Return the spec with the stem, the channels and the input scaling that the weights expect.

    So that the weights of the stem are not lost, images are converted to its channels.
    """
    changes: dict[str, Any] = {}
    shape = _stem_shape(spec.encoder, weights.tensors)
    if shape is not None and shape[1] in (1, 3):
        changes["channels"] = shape[1]
        if spec.encoder in ENCODERS and shape[2] in ENCODERS[spec.encoder].stem_sides:
            changes["stem"] = shape[2]
    return with_input(spec.model_copy(update=changes), weights.mean, weights.std)


def with_input(spec: ModelSpec, mean: tuple[float, ...] | None, std: tuple[float, ...] | None) -> ModelSpec:
    """Return the spec with this input scaling, or its own if None, for each of its channels."""
    values = {"mean": mean or spec.mean, "std": std or spec.std}
    fitting = {
        name: value if len(value) == spec.channels else (sum(value) / len(value),) * spec.channels
        for name, value in values.items()
    }
    return spec.model_copy(update=fitting)


def _stem_shape(encoder: str, tensors: Mapping[str, Tensor]) -> tuple[int, ...] | None:
    """Return the shape of the first convolution's weight, None if it is not there."""
    if encoder in ENCODERS:
        stem = ENCODERS[encoder].stem
    else:
        import timm

        config = timm.get_pretrained_cfg(encoder.removeprefix(TIMM))
        stem = f"{config.first_conv}.weight" if config is not None else ""
    names = [name for name in tensors if name.endswith(stem) and PREFIX.fullmatch(name.removesuffix(stem))]
    shape = tuple(tensors[min(names, key=len)].shape) if names else ()
    return shape if len(shape) == 4 else None


def load_encoder(encoder: nn.Module, weights: EncoderWeights, *, name: str) -> tuple[str, ...]:
    """Load weights into an encoder; return the names of tensors that were ignored, those of a classifier or a head.

    Names may have a prefix in common (module., encoder., backbone., model.).

    Raises:
        InputValueError: Names or shapes do not fit; one line with the first few.
    """
    expected = {key: value for key, value in encoder.state_dict().items() if not key.endswith(COUNTER)}
    prefix = _common_prefix(weights.tensors, expected)
    fitting, ignored, unexpected = dict[str, Tensor](), list[str](), list[str]()
    for key, value in sorted(weights.tensors.items()):  # safetensors keeps no order
        short = key.removeprefix(prefix)
        if key.startswith(prefix) and short in expected:
            fitting[short] = value
        elif CLASSIFIER.match(PREFIX.sub("", key, count=1)):
            ignored.append(key)
        elif not key.endswith(COUNTER):
            unexpected.append(key)
    problems = {
        "missing": [key for key in expected if key not in fitting],
        "unexpected": unexpected,
        "of another shape or type": [
            f"{key} {tuple(value.shape)} in place of {tuple(expected[key].shape)}"
            for key, value in fitting.items()
            if not _fits(value, expected[key])
        ],
        "not finite": [
            key for key, value in fitting.items() if _fits(value, expected[key]) and not value.isfinite().all()
        ],
    }
    if any(problems.values()):
        shown = "; ".join(f"{len(keys)} {kind} ({first_names(keys)})" for kind, keys in problems.items() if keys)
        requirement = f"{weights.source} must hold the {len(expected)} tensors of encoder {name}"
        about, remedy = weights.about, ""
        if about is not None:
            at = f" --size {about.size}" if about.size is not None else ""
            remedy = f"It is of a run with --encoder {about.encoder}{at}"
        raise InputValueError(checks.wording("weights", requirement, shown, remedy))
    encoder.load_state_dict(fitting, strict=False)  # without the counters
    return tuple(ignored)


def has_running_statistics(weights: EncoderWeights) -> bool:
    """Tell whether the weights are those of a network with batch norms."""
    return any(name.endswith("running_mean") for name in weights.tensors)


def _common_prefix(names: Collection[str], expected: Collection[str]) -> str:
    """Return the prefix under which most of the expected names are, the shortest of several."""
    known = {match[0] for name in names if (match := PREFIX.match(name))}
    candidates = {
        "",
        *(prefix[:end] for prefix in known for end in range(len(prefix) + 1) if prefix[:end].endswith(".")),
    }
    counts = {prefix: sum(f"{prefix}{name}" in names for name in expected) for prefix in candidates}
    return min(candidates, key=lambda prefix: (-counts[prefix], len(prefix)))


def _fits(value: Tensor, expected: Tensor) -> bool:
    plain = value.layout is torch.strided and value.device.type == "cpu"
    return plain and value.shape == expected.shape and value.is_floating_point() == expected.is_floating_point()


def first_names(names: Sequence[str]) -> str:
    """Return the first few of some names, for a message."""
    shown = [name if len(name) <= LONGEST else f"{name[:LONGEST]}..." for name in names[:SHOWN]]
    return ", ".join([*shown, *(["..."] if len(names) > SHOWN else [])])
