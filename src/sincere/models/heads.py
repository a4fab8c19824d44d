"""Projection heads: encoder features to embeddings."""

from __future__ import annotations

from torch import nn


def mlp(features: int, dim: int) -> nn.Module:
    """Return the paper's head: features -> features -> ReLU -> dim."""
    return nn.Sequential(nn.Linear(features, features), nn.ReLU(inplace=True), nn.Linear(features, dim))


def linear(features: int, dim: int) -> nn.Module:
    """Return one linear map."""
    return nn.Linear(features, dim)


def none(features: int, dim: int) -> nn.Module:
    """Return the features as they are."""
    return nn.Identity()
