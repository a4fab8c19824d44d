"""What a model is, besides its weights."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class ModelSpec(BaseModel):
    """All that is needed to build a model again and to prepare images for it.

    Attributes:
        encoder: Name in `ENCODERS`, or "timm:NAME".
        head: Name in `HEADS`.
        dim: Length of an embedding; without a head it is the encoder's.
        channels: 1 for grey images, 3 for colour.
        size: Side of the input, in pixels.
        mean: Mean of each channel, as a fraction of 255; subtracted from the pixels.
        std: Standard deviation of each channel; the pixels are divided by it.
        class_names: Names of the classes it was trained on, in label order.
        norm: "batch", or "group" where batch norms are replaced by group norms.
        stem: Side of the first convolution where the weights that the encoder started from have decided it; None where
            the image size does.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    encoder: str
    head: str = "mlp"
    dim: int = 128
    channels: int
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    class_names: tuple[str, ...] = ()
    norm: Literal["batch", "group"] = "batch"
    stem: int | None = None
