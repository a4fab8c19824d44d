"""Losses around SINCERE, as functions: what other papers change in the denominator, or in the choice of pairs.

All share the options of `sincere_loss`. With L_i the log-sum-exp over the negatives of anchor i and D_i that over all
other items, the loss of anchor i is:

    decoupled           mean_p (L_i - s_ip)                                     https://arxiv.org/abs/2110.06848
    supcon-in           D_i - log mean_p e^s_ip                                 https://arxiv.org/abs/2004.11362
    debiased            SINCERE's with another L_i, self-supervised             https://arxiv.org/abs/2007.00224
    k-positives         SupCon's over k positives drawn at random               https://openreview.net/forum?id=OqtLIabPTit
    nearest-neighbours  -log of the share of the positives among the nearest    https://arxiv.org/abs/2110.06014

Where positives stand in the denominator, `positives_in_denominator=False` leaves the others out, as SINCERE does.
"""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from sincere import checks
from sincere.errors import InputValueError
from sincere.loss_entry import Formula
from sincere.losses.compute import compute_loss, compute_self_supervised_loss
from sincere.losses.options import KeyOptions, LossOptions, ModuleOptions, lists_options


@lists_options(KeyOptions, ModuleOptions)
def decoupled_loss(
    embeddings: Tensor, labels: Tensor, *, temperature: float | Tensor = 0.1, **options: Unpack[LossOptions]
) -> Tensor:
    """Return the decoupled contrastive loss of Yeh et al., supervised: the denominator holds the negatives only.

    Paper: https://arxiv.org/abs/2110.06848. Its gradient does not fade as an anchor finds its positive, and its value
    has no lower bound. Anchors without a negative leave the mean, as those without a positive do.

    Args:
        embeddings: (n, d), or (n, views, d) for several augmented views of each image; any float type.
        labels: (n,) or (n, L), as in `sincere_loss`.
        temperature: Positive number, or a tensor with one element, which may take a gradient.
        **options: See `sincere.losses.options.LossOptions`; `help()` lists them here.

    Example:
        >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
        >>> decoupled_loss(z, torch.tensor([0, 0, 1, 1]), temperature=1.0)  # log 2 - 1
        tensor(-0.3069)
    """
    return compute_loss(decoupled_loss, Formula(decoupled=True), embeddings, labels, temperature, options)


@lists_options(KeyOptions, ModuleOptions)
def supcon_in_loss(
    embeddings: Tensor,
    labels: Tensor,
    *,
    positives_in_denominator: bool = True,
    temperature: float | Tensor = 0.1,
    **options: Unpack[LossOptions],
) -> Tensor:
    """Return the "in" form of Khosla et al.'s SupCon: the mean over the positives is inside the logarithm.

    Paper: https://arxiv.org/abs/2004.11362. The nearest positives get nearly all of the gradient, so that the others
    may stay where they are; Khosla et al. found it worse than the "out" form, `supcon_loss`.

    Args:
        embeddings: (n, d), or (n, views, d) for several augmented views of each image; any float type.
        labels: (n,) or (n, L), as in `sincere_loss`.
        positives_in_denominator: False for SINCERE's denominator: log(m + sum_n e^s_in) - log m, m = mean_p e^s_ip.
        temperature: Positive number, or a tensor with one element, which may take a gradient.
        **options: See `sincere.losses.options.LossOptions`; `help()` lists them here.

    Example:
        >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
        >>> supcon_in_loss(z, torch.tensor([0, 0, 1, 1]), temperature=1.0)  # one positive each: as SINCERE
        tensor(0.5514)
    """
    kept = checks.flag("supcon_in_loss", "positives_in_denominator", positives_in_denominator)
    formula = Formula(positives_in_denominator=kept, inside="mean")
    return compute_loss(supcon_in_loss, formula, embeddings, labels, temperature, options)


@lists_options(KeyOptions, ModuleOptions)
def debiased_loss(
    embeddings: Tensor, *, prior: float = 0.1, temperature: float | Tensor = 0.1, **options: Unpack[LossOptions]
) -> Tensor:
    """Return the debiased contrastive loss of Chuang et al., self-supervised: InfoNCE corrected for false negatives.

    Paper: https://arxiv.org/abs/2007.00224. Of N negatives, prior N are expected to be of the anchor's own class; what
    they would add to the denominator, by the mean over the anchor's positives, is subtracted:
    e^L_i = (sum_n e^s_in - prior N mean_p e^s_ip) / (1 - prior), at least N e^(-1 / temperature).

    Args:
        embeddings: (n, views, d) with at least 2 views. With `keys` also (n, d).
        prior: Probability that another image is of the anchor's class, at least 0 and below 1; 0 is InfoNCE.
        temperature: Positive number, or a tensor with one element, which may take a gradient.
        **options: See `sincere.losses.options.LossOptions`; `help()` lists them here. `key_weights` is refused.

    Example:
        >>> z = torch.tensor([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])
        >>> debiased_loss(z, prior=0.1, temperature=1.0)  # log(e + (2 - 0.2 e) / 0.9) - 1
        tensor(0.4671)
    """
    caller = "debiased_loss"
    value = checks.number(caller, "prior", prior, least=0.0)
    if value >= 1:
        raise InputValueError(checks.wording(caller, "prior must be a probability below 1", prior))
    return compute_self_supervised_loss(debiased_loss, Formula(prior=value), embeddings, temperature, options)


@lists_options(KeyOptions, ModuleOptions)
def k_positives_loss(
    embeddings: Tensor,
    labels: Tensor,
    *,
    n_positives: int = 6,
    positives_in_denominator: bool = True,
    draw: int | None = None,
    temperature: float | Tensor = 0.1,
    **options: Unpack[LossOptions],
) -> Tensor:
    """Return the k-positive contrastive loss of Kang et al.: a few positives are drawn for each anchor.

    Paper: https://openreview.net/forum?id=OqtLIabPTit. So that no class has more to say than another through the
    number of its images: for imbalanced data. Anchors with fewer positives take all they have. (Kang et al. always take
    the anchor's other view and draw the rest; here all are drawn alike.)

    Args:
        embeddings: (n, d), or (n, views, d) for several augmented views of each image; any float type.
        labels: (n,) or (n, L), as in `sincere_loss`.
        n_positives: Positives that are drawn for each anchor, at least 1.
        positives_in_denominator: False for SINCERE's denominator: the drawn positive and the negatives.
        draw: Number that decides which positives are drawn; None takes one from torch's global generator.
        temperature: Positive number, or a tensor with one element, which may take a gradient.
        **options: See `sincere.losses.options.LossOptions`; `help()` lists them here.

    Example:
        >>> from sincere import supcon_loss
        >>> z, labels = torch.eye(4).repeat(2, 1), torch.arange(8) % 2
        >>> torch.allclose(k_positives_loss(z, labels, n_positives=3), supcon_loss(z, labels))  # no class has more
        True
    """
    caller = "k_positives_loss"
    kept = checks.flag(caller, "positives_in_denominator", positives_in_denominator)
    k = checks.count(caller, "n_positives", n_positives, least=1)
    number = int(torch.randint(2**31, ())) if draw is None else checks.count(caller, "draw", draw, least=0)
    formula = Formula(positives_in_denominator=kept, n_positives=k)
    return compute_loss(k_positives_loss, formula, embeddings, labels, temperature, options, draw=number)


@lists_options(KeyOptions, ModuleOptions)
def nearest_neighbours_loss(
    embeddings: Tensor,
    labels: Tensor,
    *,
    nearest_positives: int = 5,
    nearest_negatives: int = 50,
    positives_in_denominator: bool = True,
    temperature: float | Tensor = 0.1,
    **options: Unpack[LossOptions],
) -> Tensor:
    """Return a leave-one-out nearest-neighbour loss after Feng et al.: only the nearest items count.

    Paper: https://arxiv.org/abs/2110.06014. Minus the logarithm of the share that the positives have of the e^s of the
    nearest items, so that a class may consist of several clusters. (Feng et al. take the k nearest of all; here the
    nearest of the positives and of the negatives, so that no anchor is without one.)

    Args:
        embeddings: (n, d), or (n, views, d) for several augmented views of each image; any float type.
        labels: (n,) or (n, L), as in `sincere_loss`.
        nearest_positives: Positives that are taken for each anchor, at least 1.
        nearest_negatives: Negatives that are taken for each anchor, at least 1.
        positives_in_denominator: False for SINCERE's form: each of those positives against those negatives.
        temperature: Positive number, or a tensor with one element, which may take a gradient.
        **options: See `sincere.losses.options.LossOptions`; `help()` lists them here.

    Example:
        >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
        >>> labels = torch.tensor([0, 0, 1, 1])
        >>> nearest_neighbours_loss(z, labels, nearest_negatives=1, temperature=1.0)  # log(e + 1) - 1
        tensor(0.3133)
    """
    caller = "nearest_neighbours_loss"
    kept = checks.flag(caller, "positives_in_denominator", positives_in_denominator)
    positives = checks.count(caller, "nearest_positives", nearest_positives, least=1)
    negatives = checks.count(caller, "nearest_negatives", nearest_negatives, least=1)
    formula = Formula(
        positives_in_denominator=kept,
        inside="sum" if kept else "",
        nearest_positives=positives,
        nearest_negatives=negatives,
    )
    return compute_loss(nearest_neighbours_loss, formula, embeddings, labels, temperature, options)
