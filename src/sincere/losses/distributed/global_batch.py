"""The exact loss of a batch that is spread over processes.

Each process holds its own rows; the rows of all processes are the keys. Value and gradients are those of one process
on the whole batch, in order of rank.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor

from sincere import checks
from sincere.catalog import LOSSES, Formula
from sincere.errors import InputValueError, UnsupportedError
from sincere.losses.distributed.collectives import GatherRows, Group, TotalLoss, gather, sizes_of
from sincere.losses.distributed.ring import RingShare, Spread
from sincere.losses.functional import weighted_losses
from sincere.losses.inputs import check_temperature
from sincere.losses.pairs import SINCERE, SUPCON, Contrast, class_ids

VARIANTS = ("auto", "gather", "ring")
GATHERED_BYTES = 2**30  # of keys and their gradient in each process, up to which `auto` gathers
CALLER = "global_batch_loss"


def global_batch_loss(
    embeddings: Tensor,
    labels: Tensor | None = None,
    *,
    loss: str = "sincere",
    temperature: float | Tensor = 0.1,
    epsilon: float = 0.25,
    normalize: bool = True,
    variant: Literal["auto", "gather", "ring"] = "auto",
    group: Group = None,
) -> Tensor:
    """Return the mean loss over the anchors of all processes, the same number in every process.

    Call it in every process of the group, each with its own part of the batch; parts may differ in size. The result is
    the mean over all anchors that have a partner in any process. Gradients are right after DDP's averaging: what
    flows back in a process is the gradient of the loss for its own rows times the number of processes, which DDP
    divides by. Without DDP, divide by it yourself.

    Args:
        embeddings: (n, d) or (n, views, d), this process's part. All processes need the same d and number of views.
        labels: (n,), integers; -1 for "no label", which never matches another image's, in this process or another. None
            only for InfoNCE.
        loss: A name in `LOSSES`.
        temperature: As in `sincere_loss`; a learned one must be the same in every process, as DDP keeps it.
        epsilon: Of eps-supinfonce.
        normalize: Scale embeddings to unit length.
        variant: "gather" holds the keys of all processes in each; "ring" sends blocks around and holds two at a time,
            for 1.5 times the traffic (docs/scaling.md). "auto" gathers up to 1 GiB.
        group: The processes; all of them by default.

    Raises:
        InputValueError: An argument is wrong, or processes disagree on d, views or type.
        UnsupportedError: There is no process group.
    """
    if not dist.is_initialized():
        raise UnsupportedError(f"{CALLER}: torch.distributed is not initialised; one process uses the plain losses")
    checks.choice(CALLER, "loss", loss, LOSSES)
    checks.choice(CALLER, "variant", variant, VARIANTS)
    rows, ids, sizes = _spread_rows(embeddings, labels, loss, group)
    spread = Spread(_formula(loss, epsilon), ids, _partner_counts(ids, rows.dtype), sizes, group)
    has_partner = (spread.partner_counts > 0).to(rows.dtype)
    weights = has_partner / has_partner.sum().clamp_min(1.0)
    t = check_temperature(CALLER, temperature, rows.dtype).to(rows.device)
    wants_gradient = torch.is_grad_enabled() and (rows.requires_grad or t.requires_grad)
    if variant == "auto":
        keys_bytes = 2 * sum(sizes) * rows.shape[1] * rows.element_size()
        variant = "gather" if keys_bytes <= GATHERED_BYTES else "ring"
    with torch.autocast(rows.device.type, enabled=False):
        if variant == "ring":
            share: Tensor = RingShare.apply(rows, t, spread, normalize, weights, wants_gradient)
        else:
            share = _gathered_share(rows, t, spread, normalize, weights)
        total: Tensor = TotalLoss.apply(share, group)
    return total


def _gathered_share(rows: Tensor, temperature: Tensor, spread: Spread, normalize: bool, weights: Tensor) -> Tensor:
    own = spread.own
    keys: Tensor = GatherRows.apply(rows, spread.sizes, spread.group)
    itself = torch.arange(own.start, own.stop, device=rows.device)
    contrast = Contrast(spread.formula, spread.ids[own], spread.ids, itself, spread.partner_counts[own])
    return weighted_losses(rows, keys, temperature, contrast, normalize, weights[own], "auto")


def _formula(loss: str, epsilon: float) -> Formula:
    if loss == "supcon":
        return SUPCON
    return (
        Formula(epsilon=checks.number(CALLER, "epsilon", epsilon, least=0.0)) if loss == "eps-supinfonce" else SINCERE
    )


def _spread_rows(
    embeddings: Tensor, labels: Tensor | None, loss: str, group: Group
) -> tuple[Tensor, Tensor, list[int]]:
    """Return this process's rows, the class of every row of every process, and how many rows each process holds."""
    checks.float_rows(CALLER, "embeddings", embeddings)
    n, n_views = len(embeddings), embeddings.shape[1] if embeddings.ndim == 3 else 1
    if loss == "infonce":
        if n_views < 2:
            requirement = "embeddings must have shape (n, views, d) with at least 2 views for infonce"
            raise InputValueError(checks.wording(CALLER, requirement, checks.shape(embeddings)))
        labels = torch.full((n,), -1, device=embeddings.device)
    if labels is None:
        raise InputValueError(checks.wording(CALLER, f"labels must be given for {loss}", "None"))
    form = f"(n,) with n = {n} embeddings"
    labels = checks.integers(CALLER, "labels", labels, expected=(n,), form=form, like=embeddings)
    dtype = torch.float64 if embeddings.dtype == torch.float64 else torch.float32
    form_of = {"d": embeddings.shape[-1], "views": n_views, "bytes of a number": dtype.itemsize}
    _check_agreed(form_of, group, embeddings.device)
    sizes = sizes_of(n, group, embeddings.device)
    ids = class_ids(gather(labels.long(), sizes, group)).repeat_interleave(n_views)
    return embeddings.flatten(0, -2).to(dtype), ids, [size * n_views for size in sizes]


def _check_agreed(mine: dict[str, int], group: Group, device: torch.device) -> None:
    values = torch.tensor([list(mine.values())], device=device)
    everyone = gather(values, [1] * dist.get_world_size(group), group)
    for name, column in zip(mine, everyone.T, strict=True):
        if bool((column != column[0]).any()):
            requirement = f"every process must have the same {name}"
            raise InputValueError(checks.wording(CALLER, requirement, column.tolist()))


def _partner_counts(ids: Tensor, dtype: torch.dtype) -> Tensor:
    members = torch.zeros(len(ids), dtype=dtype, device=ids.device)
    members.index_add_(0, ids, members.new_ones(len(ids)))
    return members[ids] - 1
