"""From the arguments of a public loss to its value: check them, choose a kernel, reduce; here or across processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from sincere import checks
from sincere.errors import InputValueError, UnsupportedError
from sincere.loss_entry import Formula
from sincere.losses.distributed.exchange import global_loss
from sincere.losses.distributed.groups import find_group
from sincere.losses.inputs import check_inputs, count_views
from sincere.losses.kernels.select import weighted_losses
from sincere.losses.label_inputs import check_label_options
from sincere.losses.options import KERNELS, KEY_DEFAULTS, REDUCTIONS, complete_options


def compute_loss(
    function: Callable[..., Tensor],
    formula: Formula,
    embeddings: Tensor,
    labels: Tensor,
    temperature: float | Tensor,
    given: Mapping[str, Any],
    draw: int = 0,
) -> Tensor:
    """Return the loss of a formula.

    Args:
        function: The public function, whose name and arguments are in messages.
        formula: What it computes.
        embeddings: (n, d) or (n, views, d).
        labels: (n,) or (n, L).
        temperature: Divides the similarities.
        given: Options that were given.
        draw: Number of the random draw, for formulas that draw positives.
    """
    caller, options = function.__name__, complete_options(function, given)
    reduction = checks.choice(caller, "reduction", options["reduction"], REDUCTIONS)
    kernel = checks.choice(caller, "kernel", options["kernel"], KERNELS)
    normalize = checks.flag(caller, "normalize", options["normalize"])
    label_options = check_label_options(caller, options)
    if label_options.soft and formula.nearest_negatives:
        raise UnsupportedError(f"{caller}: soft=True is not supported: a probability makes no nearest negative")
    group = find_group(caller, options)
    if group is not None:
        # A compiler cannot trace what processes exchange: the graph breaks once around it.
        run = torch.compiler.disable(global_loss) if torch.compiler.is_compiling() else global_loss
        return run(
            caller,
            formula,
            embeddings,
            labels,
            temperature,
            group=group,
            exchange=options["exchange"],
            normalize=normalize,
            reduction=reduction,
            kernel=kernel,
            key_weights=options["key_weights"],
            label_options=label_options,
            draw=draw,
        )
    contrasted = {name: options[name] for name in KEY_DEFAULTS}
    inputs = check_inputs(
        caller, formula, embeddings, labels, temperature, **contrasted, label_options=label_options, draw=draw
    )
    weights = inputs.contrast.weights(reduction)
    losses = weighted_losses(
        inputs.rows,
        inputs.key_rows,
        inputs.temperature,
        inputs.contrast,
        normalize,
        weights,
        kernel,
        inputs.operand_dtype,
    )
    return losses.view(inputs.shape) if reduction == "none" else losses


def compute_self_supervised_loss(
    function: Callable[..., Tensor],
    formula: Formula,
    embeddings: Tensor,
    temperature: float | Tensor,
    given: Mapping[str, Any],
) -> Tensor:
    """Return the loss of a formula where each image is a class of its own, and its views are its positives."""
    caller = function.__name__
    checks.float_rows(caller, "embeddings", embeddings)
    keys = given.get("keys")
    if keys is None and count_views(embeddings) < 2:
        requirement = "embeddings must have shape (n, views, d) with at least 2 views"
        raise InputValueError(checks.wording(caller, requirement, checks.shape(embeddings)))
    n, device = len(embeddings), embeddings.device
    # -1: each image is a class of its own, also among the images of all processes.
    images = torch.full((n,), -1, device=device) if keys is None else torch.arange(n, device=device)
    return compute_loss(function, formula, embeddings, images, temperature, given)
