"""The losses as functions: check the input, say who is compared with whom, choose a kernel, reduce.

All share one signature. Per anchor i with partners P_i (same class, not i) and noise N_i (other classes), with
s_ij = z_i . z_j / temperature, the loss of a pair (i, p) is, as in the paper's section 2 and 3:

    sincere         log(e^s_ip         + sum_{n in N_i} e^s_in) - s_ip
    eps-supinfonce  log(e^(s_ip - eps) + sum_{n in N_i} e^s_in) - s_ip
    supcon          log(sum_{a != i} e^s_ia) - s_ip
    infonce         sincere, where each image is its own class and its views are the partners

averaged over the partners of each anchor, then over the anchors that have a partner.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from sincere import checks
from sincere.catalog import Formula
from sincere.errors import InputValueError, UnsupportedError
from sincere.losses.inputs import Inputs, check_inputs
from sincere.losses.kernels.dense import dense_losses
from sincere.losses.kernels.select import KERNELS, select
from sincere.losses.kernels.tiled import TiledLosses
from sincere.losses.pairs import SINCERE, SUPCON, Contrast

Reduction: TypeAlias = Literal["mean", "sum", "none"]
Kernel: TypeAlias = Literal["auto", "dense", "tiled"]
REDUCTIONS = ("mean", "sum", "none")


def sincere_loss(
    embeddings: Tensor,
    labels: Tensor,
    *,
    temperature: float | Tensor = 0.1,
    keys: Tensor | None = None,
    key_labels: Tensor | None = None,
    anchor_index: Tensor | None = None,
    normalize: bool = True,
    reduction: Reduction = "mean",
    kernel: Kernel = "auto",
) -> Tensor:
    """Return the SINCERE loss: each anchor picks its partner out of the partner and the noise.

    The naive computation for one anchor i, which every kernel reproduces exactly:

        z = embeddings / embeddings.norm(dim=1, keepdim=True)
        s = z @ z.T / temperature
        noise = s[i, labels != labels[i]].logsumexp(0)
        partners = s[i, (labels == labels[i]) & (arange != i)]
        loss_i = softplus(noise - partners).mean()

    Time O(n m d). Memory O((n + m) d) forward and backward with the tiled kernel, which computes the gradient
    together with the value; O(n m) with the dense one. Under `torch.no_grad()` only the value is computed.

    Args:
        embeddings: (n, d), or (n, views, d) for several augmented views of each image; any float type.
        labels: (n,), any integer type. -1 means "no label": the image is a class of its own, so its other views are
            its only partners, as in InfoNCE. It still is noise for every other image, also for those that share its
            unknown class (the sampling bias of self-supervised losses).
        temperature: Positive number, or a tensor with one element, which may take a gradient. A tensor's value is
            not checked, so that an accelerator need not wait.
        keys: (m, d) or (m, views, d). Contrast the embeddings with this set (a memory queue, a teacher, the batch
            of all processes) instead of with each other.
        key_labels: (m,), needed with `keys`. A key with label -1 is noise for every anchor.
        anchor_index: (n,), or (n, views): for each anchor the row of `keys` (views counted one by one) that is the
            anchor itself and is left out; -1 for none.
        normalize: Scale embeddings and keys to unit length. A zero vector stays zero and gets a zero gradient.
        reduction: "mean" over the anchors that have a partner, "sum", or "none" for each anchor's loss in the
            embeddings' shape without d, 0 where an anchor has no partner.
        kernel: "auto", "dense" (autograd, small batches, second derivatives) or "tiled" (nothing n x m stored).

    Returns:
        The loss in float32, or float64 for float64 input. Without any partner: 0 with zero gradients.

    Raises:
        InputTypeError, InputValueError: `TypeError`s and `ValueError`s that say what was expected and what came.

    Example:
        >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
        >>> sincere_loss(z, torch.tensor([0, 0, 1, 1]), temperature=1.0)  # log(e + 2) - 1
        tensor(0.5514)
    """
    inputs = check_inputs("sincere_loss", SINCERE, embeddings, labels, temperature, keys, key_labels, anchor_index)
    return _compute(inputs, normalize, reduction, kernel)


def supcon_loss(
    embeddings: Tensor,
    labels: Tensor,
    *,
    temperature: float | Tensor = 0.1,
    keys: Tensor | None = None,
    key_labels: Tensor | None = None,
    anchor_index: Tensor | None = None,
    normalize: bool = True,
    reduction: Reduction = "mean",
    kernel: Kernel = "auto",
) -> Tensor:
    """Return the SupCon loss of Khosla et al. ("out" form): the denominator holds every other item.

    Its partners compete with each other, so members of one class can repel; `sincere_loss` is the remedy. Arguments,
    result, time and memory are those of `sincere_loss`.

    Example:
        >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
        >>> supcon_loss(z, torch.tensor([0, 0, 1, 1]), temperature=1.0)  # one partner each: as SINCERE
        tensor(0.5514)
    """
    inputs = check_inputs("supcon_loss", SUPCON, embeddings, labels, temperature, keys, key_labels, anchor_index)
    return _compute(inputs, normalize, reduction, kernel)


def eps_supinfonce_loss(
    embeddings: Tensor,
    labels: Tensor,
    *,
    epsilon: float = 0.25,
    temperature: float | Tensor = 0.1,
    keys: Tensor | None = None,
    key_labels: Tensor | None = None,
    anchor_index: Tensor | None = None,
    normalize: bool = True,
    reduction: Reduction = "mean",
    kernel: Kernel = "auto",
) -> Tensor:
    """Return the eps-SupInfoNCE loss of Barbano et al.: SINCERE with a margin on the partner in the denominator.

    Its smallest value is -epsilon. Arguments besides `epsilon` (at least 0; 0 is SINCERE), result, time and memory are
    those of `sincere_loss`.

    Example:
        >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> eps_supinfonce_loss(z, torch.tensor([0, 0]), epsilon=0.5)  # one class, no noise
        tensor(-0.5000)
    """
    caller = "eps_supinfonce_loss"
    formula = Formula(epsilon=checks.number(caller, "epsilon", epsilon, least=0.0))
    inputs = check_inputs(caller, formula, embeddings, labels, temperature, keys, key_labels, anchor_index)
    return _compute(inputs, normalize, reduction, kernel)


def info_nce_loss(
    embeddings: Tensor,
    *,
    temperature: float | Tensor = 0.1,
    keys: Tensor | None = None,
    key_labels: Tensor | None = None,
    anchor_index: Tensor | None = None,
    normalize: bool = True,
    reduction: Reduction = "mean",
    kernel: Kernel = "auto",
) -> Tensor:
    """Return the self-supervised InfoNCE loss: the other views of an image are the partners of a view.

    Args:
        embeddings: (n, views, d) with at least 2 views. With `keys` also (n, d).
        temperature: As in `sincere_loss`, and so are the arguments not listed here.
        keys: As in `sincere_loss`.
        key_labels: (m,): which image 0 to n - 1 each key shows; -1 for none of them, as in a memory queue.
        anchor_index: As in `sincere_loss`.
        normalize: As in `sincere_loss`.
        reduction: As in `sincere_loss`.
        kernel: As in `sincere_loss`.

    Example:
        >>> z = torch.tensor([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])
        >>> info_nce_loss(z, temperature=1.0)
        tensor(0.5514)
    """
    caller = "info_nce_loss"
    checks.float_rows(caller, "embeddings", embeddings)
    if keys is None and (embeddings.ndim == 2 or embeddings.shape[1] < 2):
        requirement = "embeddings must have shape (n, views, d) with at least 2 views"
        raise InputValueError(checks.wording(caller, requirement, checks.shape(embeddings)))
    images = torch.arange(len(embeddings), device=embeddings.device)
    inputs = check_inputs(caller, SINCERE, embeddings, images, temperature, keys, key_labels, anchor_index)
    return _compute(inputs, normalize, reduction, kernel)


def _compute(inputs: Inputs, normalize: bool, reduction: str, kernel: str) -> Tensor:
    """Choose a kernel, run it in full precision, reduce."""
    checks.choice(inputs.caller, "reduction", reduction, REDUCTIONS)
    checks.choice(inputs.caller, "kernel", kernel, KERNELS)
    checks.flag(inputs.caller, "normalize", normalize)
    rows, keys, temperature, contrast = inputs.rows, inputs.key_rows, inputs.temperature, inputs.contrast
    has_partner = (contrast.partner_counts > 0).to(rows.dtype)
    weights = has_partner / has_partner.sum().clamp_min(1.0) if reduction == "mean" else has_partner
    given = None if reduction == "none" else weights
    losses = weighted_losses(rows, keys, temperature, contrast, normalize, given, kernel)
    return losses.view(inputs.shape) if reduction == "none" else losses


def weighted_losses(
    rows: Tensor,
    keys: Tensor | None,
    temperature: Tensor,
    contrast: Contrast,
    normalize: bool,
    weights: Tensor | None,
    kernel: str,
) -> Tensor:
    """Return weights . losses, or each anchor's loss where there are no weights, by the kernel asked for."""
    losses: Tensor
    if select(kernel, n_anchors=len(rows), n_keys=contrast.n_keys, device=rows.device) == "tiled":
        differentiable = [x for x in (rows, keys, temperature) if x is not None and x.requires_grad]
        gradient = torch.is_grad_enabled() and bool(differentiable)
        # A compiler would unroll the walk block by block: it runs as it is, and the graph breaks once around it.
        # Not a decorator: that alone would load the compiler with the package, which takes two seconds.
        run = torch.compiler.disable(_run_tiled) if torch.compiler.is_compiling() else _run_tiled
        losses = run(rows, keys, temperature, contrast, normalize, weights, gradient)
    else:
        with torch.autocast(rows.device.type, enabled=False):
            losses = dense_losses(rows, keys, temperature, contrast, normalize=normalize)
            losses = losses if weights is None else torch.dot(losses, weights)
    return losses


def _run_tiled(*arguments: Any) -> Tensor:
    try:
        losses: Tensor = TiledLosses.apply(*arguments)
    except RuntimeError as error:
        if "setup_context" in str(error):  # what torch says inside torch.func's transformations
            raise UnsupportedError('the tiled kernel does not run under torch.func; use kernel="dense"') from error
        raise
    return losses
