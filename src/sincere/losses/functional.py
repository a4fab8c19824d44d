"""The losses as functions: check the input, say who is a positive of whom, choose a kernel, reduce.

All share one set of options (`losses/options.py`). Per anchor i with positives P_i (same class, not i) and negatives
N_i (other classes), which the paper calls partners and noise, with s_ij = z_i . z_j / temperature, the loss of a pair
(i, p) is:

    sincere         log(e^s_ip         + sum_{n in N_i} e^s_in) - s_ip       https://arxiv.org/abs/2309.14277
    eps-supinfonce  log(e^(s_ip - eps) + sum_{n in N_i} e^s_in) - s_ip       https://arxiv.org/abs/2211.05568
    supcon          log(sum_{a != i} e^s_ia) - s_ip                          https://arxiv.org/abs/2004.11362
    infonce         sincere, where each image is its own class               https://arxiv.org/abs/1807.03748

averaged over the positives of each anchor, then over the anchors that have a positive.
"""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from sincere import checks
from sincere.loss_entry import Formula
from sincere.losses.compute import compute_loss, compute_self_supervised_loss
from sincere.losses.options import KeyOptions, LossOptions, ModuleOptions, lists_options


@lists_options(KeyOptions, ModuleOptions)
def sincere_loss(
    embeddings: Tensor, labels: Tensor, *, temperature: float | Tensor = 0.1, **options: Unpack[LossOptions]
) -> Tensor:
    """Return the SINCERE loss: each anchor picks its positive out of that positive and the negatives.

    Paper: https://arxiv.org/abs/2309.14277. The naive computation for one anchor i, which every kernel reproduces
    exactly:

        z = embeddings / embeddings.norm(dim=1, keepdim=True)
        s = z @ z.T / temperature
        negatives = s[i, labels != labels[i]].logsumexp(0)
        positives = s[i, (labels == labels[i]) & (arange != i)]
        loss_i = softplus(negatives - positives).mean()

    Time O(n m d). Memory O((n + m) d) forward and backward with the tiled kernel, which computes the gradient
    together with the value; O(n m) with the dense one. Under `torch.no_grad()` only the value is computed.

    Args:
        embeddings: (n, d), or (n, views, d) for several augmented views of each image; any float type.
        labels: (n,), any integer type. -1 means "no label": the image is a class of its own, so its other views are
            its only positives, as in InfoNCE. It still is a negative for every other image, also for those that share
            its unknown class (the sampling bias of self-supervised losses). Or (n, L) for several labels per image,
            multi-hot or, with `soft=True`, probabilities: images that share a label are positives, weighted by
            `label_similarity`; a row of zeros means "no label".
        temperature: Positive number, or a tensor with one element, which may take a gradient. A tensor's value is
            not checked, so that an accelerator need not wait. Across processes it must be the same in each.
        **options: See `sincere.losses.options.LossOptions`; `help()` lists them here.

    Returns:
        The loss in float32, or float64 for float64 input. Without any positive: 0 with zero gradients.

    Raises:
        InputTypeError, InputValueError: `TypeError`s and `ValueError`s that say what was expected and what came.
        UnsupportedError: A combination of options that does not exist; the message names one that does.

    Example:
        >>> import torch
        >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
        >>> sincere_loss(z, torch.tensor([0, 0, 1, 1]), temperature=1.0)  # log(e + 2) - 1
        tensor(0.5514)
    """
    return compute_loss(sincere_loss, Formula(), embeddings, labels, temperature, options)


@lists_options(KeyOptions, ModuleOptions)
def supcon_loss(
    embeddings: Tensor, labels: Tensor, *, temperature: float | Tensor = 0.1, **options: Unpack[LossOptions]
) -> Tensor:
    """Return the SupCon loss of Khosla et al. ("out" form): the denominator holds every other item.

    Paper: https://arxiv.org/abs/2004.11362. The positives of an anchor compete with each other, so members of one
    class can repel; `sincere_loss` is the remedy. Result, errors, time and memory are those of `sincere_loss`.

    Args:
        embeddings: (n, d), or (n, views, d) for several augmented views of each image; any float type.
        labels: (n,) or (n, L), as in `sincere_loss`.
        temperature: Positive number, or a tensor with one element, which may take a gradient.
        **options: See `sincere.losses.options.LossOptions`; `help()` lists them here.

    Example:
        >>> import torch
        >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
        >>> supcon_loss(z, torch.tensor([0, 0, 1, 1]), temperature=1.0)  # one positive each: as SINCERE
        tensor(0.5514)
    """
    formula = Formula(positives_in_denominator=True)
    return compute_loss(supcon_loss, formula, embeddings, labels, temperature, options)


@lists_options(KeyOptions, ModuleOptions)
def eps_supinfonce_loss(
    embeddings: Tensor,
    labels: Tensor,
    *,
    epsilon: float = 0.25,
    temperature: float | Tensor = 0.1,
    **options: Unpack[LossOptions],
) -> Tensor:
    """Return the eps-SupInfoNCE loss of Barbano et al.: SINCERE with a margin on the positive in the denominator.

    Paper: https://arxiv.org/abs/2211.05568. Its smallest value is -epsilon. Result, errors, time and memory are those
    of `sincere_loss`.

    Args:
        embeddings: (n, d), or (n, views, d) for several augmented views of each image; any float type.
        labels: (n,) or (n, L), as in `sincere_loss`.
        epsilon: The margin, at least 0; 0 is SINCERE.
        temperature: Positive number, or a tensor with one element, which may take a gradient.
        **options: See `sincere.losses.options.LossOptions`; `help()` lists them here.

    Example:
        >>> import torch
        >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> eps_supinfonce_loss(z, torch.tensor([0, 0]), epsilon=0.5)  # one class, no negatives
        tensor(-0.5000)
    """
    formula = Formula(epsilon=checks.number("eps_supinfonce_loss", "epsilon", epsilon, least=0.0))
    return compute_loss(eps_supinfonce_loss, formula, embeddings, labels, temperature, options)


@lists_options(KeyOptions, ModuleOptions)
def info_nce_loss(embeddings: Tensor, *, temperature: float | Tensor = 0.1, **options: Unpack[LossOptions]) -> Tensor:
    """Return the self-supervised InfoNCE loss: the other views of an image are the positives of a view.

    Paper: https://arxiv.org/abs/1807.03748. Result, errors, time and memory are those of `sincere_loss`.

    Args:
        embeddings: (n, views, d) with at least 2 views. With `keys` also (n, d).
        temperature: Positive number, or a tensor with one element, which may take a gradient.
        **options: See `sincere.losses.options.LossOptions`; `help()` lists them here.

    Example:
        >>> import torch
        >>> z = torch.tensor([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])
        >>> info_nce_loss(z, temperature=1.0)
        tensor(0.5514)
    """
    return compute_self_supervised_loss(info_nce_loss, Formula(), embeddings, temperature, options)
