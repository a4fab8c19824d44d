"""Projection heads: encoder features to embeddings."""

from __future__ import annotations

from torch import nn


def mlp(features: int, dim: int, *, hidden: int | None = None) -> nn.Module:
    """Return a linear layer features -> hidden, ReLU, and a linear layer hidden -> dim.

    As in the paper, there are as many hidden units as features, unless another number is given.
    """
    hidden = hidden or features
    return nn.Sequential(nn.Linear(features, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, dim))


def linear(features: int, dim: int) -> nn.Module:
    """Return one linear layer."""
    return nn.Linear(features, dim)


def none(features: int, dim: int) -> nn.Module:
    """Return the identity: embeddings are the features."""
    return nn.Identity()
