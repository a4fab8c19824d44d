"""Settings of the network."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sincere.catalog import ENCODERS, HEADS, TIMM
from sincere.settings.record import Choices, Settings


class ModelSettings(Settings):
    """Encoder and projection head."""

    title: ClassVar[str] = "Model"

    encoder: Annotated[str, Choices(ENCODERS, prefix=TIMM)] = "small"
    """Network that turns an image into features. timm:NAME takes one of timm's (extra `timm`)."""
    head: Annotated[str, Choices(HEADS)] = "mlp"
    """Projection head between the encoder and the loss."""
    dim: int = Field(default=128, ge=1, le=65536)
    """Dimension of an embedding."""
    pretrained: bool = False
    """Start from ImageNet weights (ResNets and timm)."""
    norm: Literal["batch", "group"] = "batch"
    """Normalisation layers: batch norm, or group norm, which sees one image at a time."""
