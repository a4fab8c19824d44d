"""What can be chosen by name: encoders, heads, augmentations, samplers, optimisers, metrics.

The losses are in `loss_catalog.py`. Every table is plain data. An implementation is named as "module:attribute" and
imported on first use, so that help texts, checks of names and completion start no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from sincere.checks import choice

PYTHON = "python:"  # prefix of the name of an object that a caller has given in Python


@dataclass(frozen=True)
class Encoder:
    """An encoder, as every other part of the package knows it.

    Attributes:
        module: "module:attribute" of the function that builds it: channels and image size in, an `nn.Module` out.
        about: What it is, in a few words; empty where its name says it.
        weights: "module:attribute" of the function that returns its ImageNet weights for its name; None without any.
        mean: Mean of each channel that those weights expect, as a fraction of 255.
        std: Standard deviation of each channel that they expect.
        stem: Name of the weight of its first convolution, which has the number of channels and the side of the stem.
        stem_sides: Sides of the stems it can be built with; empty if there is one only.
    """

    module: str | Callable[..., Any]
    about: str
    weights: str | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    stem: str = "stem.0.weight"
    stem_sides: tuple[int, ...] = ()

    def load(self) -> Any:
        """Import and return the function that builds it."""
        return load(self.module)


def _resnet(depth: int) -> Encoder:
    return Encoder(
        module=f"sincere.models.resnet:resnet{depth}",
        about="",
        weights="sincere.models.resnet:imagenet_weights",
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        stem="conv1.weight",
        stem_sides=(3, 7),
    )


ENCODERS: dict[str, Encoder] = {
    "small": Encoder("sincere.models.small:small", "a convolutional network for small images on a CPU"),
    "resnet18": _resnet(18),
    "resnet34": _resnet(34),
    "resnet50": _resnet(50),
    "resnet101": _resnet(101),
    "none": Encoder("torch.nn:Identity", "for ready-made features"),
    "lite0": Encoder(
        module="sincere.models.lite0:lite0",
        about="EfficientNet-Lite0, whose ImageNet weights need no download",
        weights="sincere.models.lite0:imagenet_weights",
        mean=(127 / 255,) * 3,  # (pixel - 127) / 128
        std=(128 / 255,) * 3,
        stem="conv_stem.weight",
    ),
}
READY_MADE = "none"  # the encoder of features
PHOTO_ENCODER = "lite0"  # for photos, unless another is named: frozen, with ImageNet weights
TIMM = "timm:"  # prefix of a name that timm knows
HEADS: dict[str, str] = {
    "mlp": "sincere.models.heads:mlp",
    "linear": "sincere.models.heads:linear",
    "none": "sincere.models.heads:none",
}

# Families of metrics: functions from a `ModelOutputs` to its `Metric`s, by name.
METRICS: dict[str, str] = {
    "margin": "sincere.evaluation.margins:measure",
    "knn": "sincere.evaluation.knn:measure",
    "linear": "sincere.evaluation.probe:measure",
    "retrieval": "sincere.evaluation.retrieval:measure",
    "classifiers": "sincere.evaluation.classifiers:measure",
    "geometry": "sincere.evaluation.geometry:measure",
    "long-tail": "sincere.evaluation.long_tail:measure",
    "multi-label": "sincere.evaluation.multi_label:measure",
}
DEFAULT_METRICS = ("margin", "knn", "linear", "classifiers", "geometry")
LONG_TAIL = "long-tail"  # measured by default, too, where `--imbalance` has made the training classes so
MULTI_LABEL = "multi-label"  # measured in place of all others where samples may have several labels


@dataclass(frozen=True)
class Classifier:
    """A way to classify embeddings.

    Attributes:
        about: What it does.
        target: Where it is, as "module:attribute"; None for the linear probe, which is stored with a run.
    """

    about: str
    target: str | None


CLASSIFIERS: dict[str, Classifier] = {
    "knn": Classifier(
        "votes of the 5 nearest training images, weighted by similarity", "sincere.evaluation.classifiers:KNN"
    ),
    "dino": Classifier(
        "votes of the 20 nearest, weighted by exp(similarity / 0.07)", "sincere.evaluation.classifiers:DINO"
    ),
    "lightly": Classifier(
        "votes of the 200 nearest, weighted by exp(similarity / 0.1)", "sincere.evaluation.classifiers:LIGHTLY"
    ),
    "means": Classifier("the nearest class mean", "sincere.evaluation.classifiers:MEANS"),
    "linear": Classifier("the linear probe that `sincere evaluate` has stored", None),
}

UNKNOWN_SCORES = ("nearest", "mahalanobis")  # how well an image fits the known classes


@dataclass(frozen=True)
class Augmentation:
    """A named set of random changes; 0, 1 or None leave one out.

    Attributes:
        crop_area: Smallest and largest fraction of the area that a crop keeps.
        crop_ratio: Smallest and largest width over height of a crop, uniform in the logarithm.
        flip: Probability of a horizontal flip.
        alternate_flips: Whether a coin decides about the first view of an image only, and every other one is flipped
            after that (Jordan 2024, https://arxiv.org/abs/2404.00498).
        jitter: Strength of brightness, contrast, saturation and hue changes.
        jitter_probability: Probability that an image is jittered at all.
        grey: Probability that an image loses its colours.
        rotation: Largest rotation, in degrees.
        shift: Largest shift, as a fraction of the side.
        whole_shift: Largest shift by whole pixels, as a fraction of the side; edges are reflected. Not together with
            crops, rotation, shift or zoom.
        zoom: Smallest and largest zoom.
        noise: Standard deviation of pixel noise, as a fraction of the full range.
    """

    crop_area: tuple[float, float] | None = None
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.0
    alternate_flips: bool = False
    jitter: tuple[float, float, float, float] | None = None
    jitter_probability: float = 0.8
    grey: float = 0.0
    rotation: float = 0.0
    shift: float = 0.0
    whole_shift: float = 0.0
    zoom: tuple[float, float] = (1.0, 1.0)
    noise: float = 0.0

    @property
    def is_resampled(self) -> bool:
        """Tell whether pixels move to places between others, so that values are interpolated."""
        geometry = (self.crop_area, self.flip, self.rotation, self.shift, self.zoom)
        return geometry != (None, 0.0, 0.0, 0.0, (1.0, 1.0)) and not self.whole_shift


@dataclass(frozen=True)
class CustomAugmentation:
    """An augmentation that a caller has given in Python.

    Attributes:
        augment: Maps a batch of uint8 images (n, c, h, w) and a random seed to views (n, c, size, size), uint8 or float
            in [0, 1].
        in_threads: Whether other threads may call it while the network computes. Not so if it takes its random numbers
            from a global generator, which the network uses, too.
    """

    augment: Callable[[Any, int], Any]
    in_threads: bool = True


AUGMENTATIONS: dict[str, Augmentation | CustomAugmentation] = {
    "paper": Augmentation(crop_area=(0.2, 1.0), flip=0.5, jitter=(0.4, 0.4, 0.4, 0.1), grey=0.2),
    "crops": Augmentation(crop_area=(0.2, 1.0), flip=0.5),
    "light": Augmentation(crop_area=(0.7, 1.0), flip=0.5),
    "shifts": Augmentation(whole_shift=1 / 16, flip=0.5, alternate_flips=True),
    "digits": Augmentation(rotation=12.0, shift=0.1, zoom=(0.9, 1.1), noise=0.05),
    "none": Augmentation(),
}
SCHEDULES = ("cosine", "linear")
SAMPLERS = ("auto", "shuffle", "balanced", "p-by-k")
LOGGERS = ("tensorboard", "wandb", "mlflow")  # of experiments


@dataclass(frozen=True)
class Optimizer:
    """Defaults of an optimiser."""

    learning_rate: float
    weight_decay: float


OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": Optimizer(learning_rate=0.5, weight_decay=1e-4),
    "muon": Optimizer(learning_rate=0.06, weight_decay=0.17),
    "adamw": Optimizer(learning_rate=1e-3, weight_decay=0.01),
}
DEVICES = ("auto", "cpu", "cuda")


def own_name(name: str) -> str:
    """Return the name of an object that was given in Python without its prefix and fingerprint; others as they are.

    Example:
        >>> own_name("python:my_loss@1f2e3d4c5b6a"), own_name("sincere")
        ('my_loss', 'sincere')
    """
    return name.removeprefix(PYTHON).partition("@")[0] if name.startswith(PYTHON) else name


def load(target: str | Callable[..., Any]) -> Any:
    """Import what "module:attribute" names; an object that a caller has given is returned as it is.

    Example:
        >>> load("math:sqrt")(9.0)
        3.0
    """
    if not isinstance(target, str):
        return target
    module, attribute = target.split(":")
    return getattr(import_module(module), attribute)


def load_named(table: Mapping[str, str], name: str, *, caller: str, argument: str) -> Any:
    """Import what a table holds under a name.

    Raises:
        InputValueError: There is no such name; the message lists the names and the nearest one.

    Example:
        >>> load_named({"root": "math:sqrt"}, "root", caller="demo", argument="function")(9.0)
        3.0
    """
    return load(table[choice(caller, argument, name, table)])
