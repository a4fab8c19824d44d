"""Encoders, heads, and the two together with how to prepare an image. This file holds only the registries."""

from __future__ import annotations

ENCODERS: dict[str, str] = {
    "small": "sincere.models.small:small",
    "resnet18": "sincere.models.resnet:resnet18",
    "resnet34": "sincere.models.resnet:resnet34",
    "resnet50": "sincere.models.resnet:resnet50",
    "resnet101": "sincere.models.resnet:resnet101",
}
HEADS: dict[str, str] = {
    "mlp": "sincere.models.heads:mlp",
    "linear": "sincere.models.heads:linear",
    "none": "sincere.models.heads:none",
}
TIMM = "timm:"  # prefix of a name that timm knows
