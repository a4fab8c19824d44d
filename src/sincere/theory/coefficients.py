"""What the losses do to each pair: gradient coefficients, and the meter for repulsion within a class.

Per-anchor scale throughout: the derivative of the loss of anchor i, which is already averaged over its partners (the
paper's word for positives, as noise is for negatives), with respect to the similarity s_ij = z_i . z_j / temperature.
Below 0 attracts, above 0 repels. The paper's range [-1, 0] for SINCERE is on the scale of one pair loss: times |P_i|.
Paper: https://arxiv.org/abs/2309.14277.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sincere import checks
from sincere.errors import InputValueError
from sincere.loss_entry import Formula
from sincere.losses.denominators import Denominators, log_denominators
from sincere.losses.inputs import check_formula, check_labelled_loss
from sincere.losses.kernels.pair_terms import to_coefficients


@torch.no_grad()
def gradient_coefficients(
    embeddings: Tensor,
    labels: Tensor,
    *,
    loss: str = "sincere",
    temperature: float = 0.1,
    normalize: bool = True,
    **hyper_parameters: float,
) -> Tensor:
    """Return the matrix of d loss_i / d s_ij: for each anchor (row) its pull on partners and its push on noise.

    SINCERE: -sigma_ip / |P_i| for a partner, (sum_p sigma_ip / |P_i|) e^{s_in - L_i} for noise.
    eps-SupInfoNCE: the same, where sigma_ip is the sigmoid of L_i + eps - s_ip.
    SupCon: e^{s_ip - D_i} - 1 / |P_i| for a partner, e^{s_in - D_i} for noise.
    Rows of anchors without a partner are 0. Memory O(n^2): to look at a batch.

    Args:
        embeddings: (n, d) or (n, views, d).
        labels: (n,), integers; -1 means "no label".
        loss: A loss of `sincere.loss_catalog.LOSSES` that takes labels.
        temperature: Positive number.
        normalize: Scale embeddings to unit length.
        **hyper_parameters: Those of the loss, such as `epsilon`, in place of its defaults.

    Example:
        >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> gradient_coefficients(z, torch.tensor([0, 0, 0, 1]), loss="supcon", temperature=1.0)[0]
        tensor([ 0.0000, -0.0777, -0.0777,  0.1554])
    """
    caller = "gradient_coefficients"
    formula = _formula(caller, loss, hyper_parameters)
    at = log_denominators(caller, formula, embeddings, labels, temperature=temperature, normalize=normalize)
    with torch.autocast(at.z.device.type, enabled=False):
        s = at.z @ at.z.T * at.inverse_temperature
    same = at.ids[:, None] == at.ids
    partners = same & ~torch.eye(len(s), dtype=torch.bool, device=s.device)
    counts = partners.sum(dim=1, keepdim=True, dtype=s.dtype).clamp_min(1)
    pulls = torch.where(partners, to_coefficients(s.clone(), at.log_denominators[:, None], counts, formula), 0.0)
    if formula.positives_in_denominator:
        pushes = torch.exp(s - at.log_denominators[:, None])
    else:
        pushes = -pulls.sum(dim=1, keepdim=True) * torch.exp(s - at.log_denominators[:, None])
    coefficients = torch.where(same, pulls, pushes)
    return coefficients * partners.any(dim=1, keepdim=True)


@dataclass(frozen=True)
class Repulsion:
    """How much of a set of same-class pairs a loss pushes apart.

    Attributes:
        share: Unordered same-class pairs whose two ordered coefficients sum to more than 0, beyond rounding, as a
            fraction. NaN if an embedding is.
        strength: Mean of that sum over those pairs; 0 if there are none.
        n_pairs: Unordered same-class pairs.
    """

    share: float
    strength: float
    n_pairs: int


@dataclass(frozen=True)
class RepulsionMeter:
    """Repulsion over all classes and in each class that has a pair, by label."""

    overall: Repulsion
    by_class: dict[int, Repulsion]


@torch.no_grad()
def repulsion_meter(
    embeddings: Tensor,
    labels: Tensor,
    *,
    loss: str = "supcon",
    temperature: float = 0.1,
    normalize: bool = True,
    **hyper_parameters: float,
) -> RepulsionMeter:
    """Return the share of same-class pairs that a loss would push apart, and how strongly.

    The force on a pair {i, j} is the sum of both ordered coefficients. Under SINCERE none is ever positive: its meter
    reads exactly 0. The pairs of each class are taken in blocks; memory O(n d). Unlabelled items (-1) are noise.

    Args:
        embeddings: (n, d).
        labels: (n,), integers; -1 means "no label".
        loss: A loss of `sincere.loss_catalog.LOSSES` that takes labels.
        temperature: Positive number.
        normalize: Scale embeddings to unit length.
        **hyper_parameters: Those of the loss, such as `epsilon`, in place of its defaults.

    Example:
        >>> z, labels = torch.eye(64), torch.arange(64) % 2
        >>> repulsion_meter(z, labels, temperature=1.0).overall.share  # all equally far: every pair attracts
        0.0
    """
    caller = "repulsion_meter"
    formula = _formula(caller, loss, hyper_parameters)
    checks.float_rows(caller, "embeddings", embeddings)
    if embeddings.ndim != 2:
        raise InputValueError(checks.wording(caller, "embeddings must have shape (n, d)", checks.shape(embeddings)))
    checks.tensor(caller, "labels", labels)
    # A batch is small, and positions of classes are needed on the CPU.
    rows, classes = embeddings.detach().cpu(), labels.cpu()
    at = log_denominators(caller, formula, rows, classes, temperature=temperature, normalize=normalize)
    sizes = torch.bincount(at.ids)
    pairs = sizes * (sizes - 1) // 2
    with torch.autocast("cpu", enabled=False):
        repelled, force = _repelled(at, sizes, formula)
    names = torch.empty_like(sizes).scatter_(0, at.ids, classes.long())
    by_class = {
        label: _summary(r, f, p)
        for label, r, f, p in zip(names.tolist(), repelled.tolist(), force.tolist(), pairs.tolist(), strict=True)
        if p > 0
    }
    overall = _summary(int(repelled.sum()), float(force.sum()), int(pairs.sum()))
    return RepulsionMeter(overall, by_class)


def _formula(caller: str, loss: str, hyper_parameters: dict[str, float]) -> Formula:
    check_labelled_loss(caller, loss)
    return check_formula(caller, loss, hyper_parameters)


def _repelled(at: Denominators, sizes: Tensor, formula: Formula) -> tuple[Tensor, Tensor]:
    """Return, for each class, the number of repelled pairs and the sum of their forces."""
    repelled, force = torch.zeros_like(sizes), torch.zeros(len(sizes), dtype=at.z.dtype)
    # e^{s - D} is known to about eps |D|, and 1/|P| is subtracted from it twice: less than that has no sign.
    largest = at.log_denominators.abs().nan_to_num(nan=0.0, posinf=0.0).max()
    rounding = 8 * torch.finfo(at.z.dtype).eps * (1 + largest)
    for block in at.class_blocks():
        rows, columns = block.anchors, block.members
        s = torch.bmm(at.z[rows] * at.inverse_temperature, at.z[columns].mT)
        classes = at.ids[rows[:, 0]]
        counts = (sizes[classes] - 1).to(s.dtype)[:, None, None]
        own, others = at.log_denominators[rows][..., None], at.log_denominators[columns][:, None]
        if block.on_diagonal:  # both orders of each pair stand in the block already
            one_way = to_coefficients(s, own, counts, formula)
            both, times = one_way + one_way.mT, 2
        else:
            both, times = to_coefficients(s.clone(), own, counts, formula), 1
            both += to_coefficients(s, others, counts, formula)
        block.leave_out(both, 0.0)
        positive = torch.gt(both, rounding / counts, out=s)
        both.mul_(positive)
        repelled.index_add_(0, classes, positive.sum(dim=(1, 2)).to(repelled.dtype) // times)
        force.index_add_(0, classes, both.sum(dim=(1, 2)) / times)
    return repelled, force


def _summary(repelled: int, force: float, n_pairs: int) -> Repulsion:
    if math.isnan(force):  # NaN embeddings: not hidden in a share of 0
        return Repulsion(math.nan, math.nan, n_pairs)
    return Repulsion(repelled / max(1, n_pairs), force / max(1, repelled), n_pairs)
