"""Settings of the network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from sincere.catalog import ENCODERS, HEADS, PYTHON, READY_MADE, TIMM
from sincere.settings.record import Choices, Settings

WEIGHT_FILES = (".safetensors", ".pth", ".pt")


class ModelSettings(Settings):
    """Encoder and projection head."""

    title: ClassVar[str] = "Model"

    encoder: Annotated[str | None, Choices(ENCODERS, prefix=TIMM)] = None
    """Network that turns an image into features. Default: small; lite0 for photos, with pretrained and with freeze.
    ResNets are torchvision's, timm:NAME is timm's (extra `timm`)."""
    head: Annotated[str, Choices(HEADS)] = "mlp"
    """Projection head between the encoder and the loss."""
    dim: int = Field(default=128, ge=1, le=65536)
    """Dimension of an embedding."""
    pretrained: bool | None = None
    """Start from ImageNet weights. Those of lite0 need no download; small has none. Default: on for photos if no
    encoder is chosen, and with freeze if there is no file of weights."""
    freeze: bool | None = None
    """Train the head only: the features of every image are computed once by the encoder, which stays as it is, and kept
    in the cache. Default: on for photos if no encoder is chosen."""
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
            own = self.encoder is not None and (self.encoder == READY_MADE or self.encoder.startswith(PYTHON))
            if self.freeze and self.pretrained is False and not own:
                raise ValueError("freeze needs weights: leave out --no-pretrained, or set weights to a file")
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

    @property
    def wants_frozen(self) -> bool | None:
        """Whether the encoder is to be frozen; None where that depends on the data."""
        chosen = self.encoder is not None or self.weights is not None or self.pretrained is False
        return self.freeze if self.freeze is not None or not chosen else False
