"""Settings of the network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from sincere.catalog import ENCODERS, HEADS, PHOTO_ENCODER, PYTHON, READY_MADE, TIMM
from sincere.settings.record import Choices, Settings

WEIGHT_FILES = (".safetensors", ".pth", ".pt")


class ModelSettings(Settings):
    """Encoder and projection head."""

    title: ClassVar[str] = "Model"

    encoder: Annotated[str | None, Choices(ENCODERS, prefix=TIMM)] = None
    """Network that turns an image into features. Default: that of the run whose weights are given; lite0 for photos,
    with pretrained and with freeze; else small. ResNets are torchvision's, timm:NAME is timm's (extra `timm`)."""
    head: Annotated[str | None, Choices(HEADS)] = None
    """Projection head between encoder and loss. Default: linear for small above 16 px, else mlp, the paper's."""
    dim: int = Field(default=128, ge=1, le=65536)
    """Dimension of an embedding."""
    pretrained: bool | None = None
    """Start from ImageNet weights. Those of lite0 need no download; small has none. Default: on for lite0, and with
    freeze if there is no file of weights."""
    freeze: bool | None = None
    """Train the head only: the features of every image are computed once by the encoder, which stays as it is, and kept
    in the cache. Default: on for photos with lite0, unless encoder-lr is set."""
    weights: Path | None = None
    """Start the encoder from the weights in this file: model.safetensors of a run, or any .safetensors or .pth file
    with the encoder's names. The head starts afresh."""
    weights_sha256: str | None = None
    """Content hash that the file of weights must have. Default: what it has when the run begins."""
    norm: Literal["batch", "group"] = "batch"
    """Normalisation layers: batch norm, or group norm, which sees one image at a time."""

    @model_validator(mode="after")
    def _one_start(self) -> Self:
        if self.weights is None:
            if self.weights_sha256 is not None:
                raise ValueError("weights_sha256 needs a file of weights: set weights")
            self._check_frozen()
            return self
        if self.weights_sha256 is not None and not re.fullmatch("[0-9a-f]{64}", self.weights_sha256):
            raise ValueError(f"weights_sha256 must be a SHA-256 in hexadecimal; got {self.weights_sha256!r}")
        if self.pretrained:
            raise ValueError("weights and pretrained exclude each other")
        if self.weights.suffix not in WEIGHT_FILES:
            raise ValueError(
                f"weights must be a file that ends with {', '.join(WEIGHT_FILES)}; got {str(self.weights)!r}"
            )
        return self

    def _check_frozen(self) -> None:
        """Raise if the encoder should stay as it is, without any weights.

        Raises:
            ValueError: It has none.
        """
        if not self.freeze or self.encoder == READY_MADE or self.is_python:
            return
        if self.encoder in ENCODERS and ENCODERS[self.encoder].weights is None:
            remedy = f"set weights to a file, or choose another encoder, such as {PHOTO_ENCODER}"
            raise ValueError(f"freeze needs weights, and {self.encoder} has no ImageNet weights; {remedy}")
        if self.pretrained is False:
            raise ValueError("freeze needs weights: leave out --no-pretrained, or set weights to a file")

    @property
    def is_python(self) -> bool:
        """Whether the encoder is an object that a caller has given in Python."""
        return self.encoder is not None and self.encoder.startswith(PYTHON)

    @property
    def may_be_default(self) -> bool:
        """Whether the encoder is left open, or is named as it would be chosen for photos."""
        return self.encoder in (None, PHOTO_ENCODER) and self.weights is None and self.pretrained is not False
