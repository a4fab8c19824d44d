"""Replaces batch norms by group norms, which normalise each image independently of its batch."""

from __future__ import annotations

from math import gcd

from torch import nn

from sincere import checks
from sincere.errors import InputValueError

GROUPS = 32  # at most; the best number of Wu and He (2018), https://arxiv.org/abs/1803.08494


def with_group_norms(module: nn.Module) -> nn.Module:
    """Return the module with every 2-d batch norm replaced, also in submodules; weight and bias are kept.

    Raises:
        InputValueError: A batch norm is of a subclass that does more than normalise.
    """
    if isinstance(module, nn.BatchNorm2d):
        if type(module) is not nn.BatchNorm2d:  # those of timm include an activation, which would be lost
            requirement = f"norm must be batch for an encoder with {type(module).__name__}"
            raise InputValueError(checks.wording("model", requirement, "group"))
        norm = nn.GroupNorm(gcd(module.num_features, GROUPS), module.num_features, eps=module.eps, affine=module.affine)
        if module.affine:
            norm.weight, norm.bias = module.weight, module.bias
        return norm
    for name, part in module.named_children():
        setattr(module, name, with_group_norms(part))
    return module
