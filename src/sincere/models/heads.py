"""Projection heads: encoder features to embeddings."""

from __future__ import annotations

from torch import nn


def mlp(features: int, dim: int) -> nn.Module:
    """Return the head of the paper: a linear layer features -> features, ReLU, a linear layer features -> dim."""
    return nn.Sequential(nn.Linear(features, features), nn.ReLU(inplace=True), nn.Linear(features, dim))


def linear(features: int, dim: int) -> nn.Module:
    """Return one linear layer."""
    return nn.Linear(features, dim)


def none(features: int, dim: int) -> nn.Module:
    """Return the identity: embeddings are the features."""
    return nn.Identity()
