"""What a model is, besides its weights."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator


class ModelSpec(BaseModel):
    """All that is needed to build a model again and to prepare images for it.

    Attributes:
        encoder: Name in `ENCODERS`, or "timm:NAME".
        head: Name in `HEADS`.
        dim: Length of an embedding; without a head it is the encoder's.
        channels: 1 for grey images, 3 for colour, 0 for ready-made features.
        size: Side of the input, in pixels; 0 for ready-made features.
        mean: Mean of each channel, as a fraction of 255; subtracted from the pixels.
        std: Standard deviation of each channel; the pixels are divided by it.
        class_names: Names of the classes it was trained on, in label order.
        norm: "batch", or "group" where batch norms are replaced by group norms.
        stem: Side of the first convolution where the weights that the encoder started from have decided it; None where
            the image size does.
        image_shape: Channels, height and width of the images as they are stored, before the model converts and resizes
            them; None for ready-made features, and for models of earlier versions.
        n_features: Number of ready-made features that are the input in place of an image; None for images.
        feature_scale: Features are divided by it before the head: the root mean square of the training features where
            the encoder is frozen or there is none, so that any scale of features trains alike.
        frozen: Whether only the head was trained. Linear probes then take the embeddings, because the features would be
            the same for every loss.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    encoder: str
    head: str = "mlp"
    dim: int = 128
    channels: int = 0
    size: int = 0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    class_names: tuple[str, ...] = ()
    norm: Literal["batch", "group"] = "batch"
    stem: int | None = None
    image_shape: tuple[int, int, int] | None = None
    n_features: int | None = None
    feature_scale: float = 1.0
    frozen: bool = False

    @model_validator(mode="after")
    def _has_input(self) -> Self:
        if self.n_features is None and not (self.channels > 0 and self.size > 0 and self.mean and self.std):
            raise ValueError("channels, size, mean and std must be set for images")
        return self
