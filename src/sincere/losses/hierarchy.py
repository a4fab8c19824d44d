"""Labels at several levels, such as species and family: one loss per level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sincere import checks
from sincere.errors import InputTypeError, InputValueError
from sincere.losses.functional import sincere_loss


def hierarchical_loss(
    embeddings: Tensor,
    labels: Tensor,
    *,
    level_weights: Sequence[float],
    loss: Callable[..., Tensor] = sincere_loss,
    **options: Any,
) -> Tensor:
    """Return the weighted sum of one loss per level of a hierarchy of classes.

    Args:
        embeddings: (n, d) or (n, views, d).
        labels: (n, levels), any integer type: the class of each image at each level. -1 and `ignore_index` mean the
            same as in one level alone, so that an image may be labelled at some levels only.
        level_weights: Weight of each level, a number of at least 0.
        loss: A loss function of this package that takes labels, or a module of it.
        **options: Options of the loss, such as `temperature`.

    Raises:
        InputTypeError, InputValueError: Labels and weights do not fit, or an argument of the loss is wrong.

    Example:
        >>> import torch
        >>> animals = torch.tensor([[0, 0], [1, 0], [2, 1], [3, 1]])  # species and family
        >>> z = torch.eye(4).repeat(2, 1)
        >>> hierarchical_loss(z, animals.repeat(2, 1), level_weights=[1.0, 0.5])
        tensor(0.5368)
    """
    caller = "hierarchical_loss"
    levels = checks.tensor(caller, "labels", labels)
    if levels.is_floating_point() or levels.dtype == torch.bool:
        raise InputTypeError(checks.wording(caller, "labels must have an integer type", levels.dtype))
    if levels.ndim != 2 or levels.shape[1] != len(level_weights):
        requirement = f"labels must have shape (n, levels) with levels = {len(level_weights)} level_weights"
        raise InputValueError(checks.wording(caller, requirement, checks.shape(levels)))
    weights = [checks.number(caller, "level_weights", weight, least=0.0) for weight in level_weights]
    terms = [w * loss(embeddings, column, **options) for w, column in zip(weights, levels.unbind(dim=1), strict=True)]
    return torch.stack(terms).sum(dim=0)
