"""The loss over sets: all positives of an anchor are predicted at once, instead of one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor

from sincere import checks
from sincere.loss_entry import Formula
from sincere.losses.distributed.collectives import GatherRows, ScaledGradient, TotalLoss
from sincere.losses.distributed.global_batch import LabelledRows, share_batch
from sincere.losses.distributed.groups import check_group, default_as_none, find_group
from sincere.losses.inputs import check_inputs, check_temperature
from sincere.losses.kernels.set_blocks import weighted_set_losses
from sincere.losses.label_inputs import check_label_options
from sincere.losses.loss_module import LossModule
from sincere.losses.options import DEFAULTS, REDUCTIONS, Reduction

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

Method: TypeAlias = Literal["auto", "exact", "saddle"]
METHODS = ("auto", "exact", "saddle")


def set_sincere_loss(
    embeddings: Tensor,
    labels: Tensor,
    *,
    temperature: float | Tensor = 0.1,
    method: Method = "auto",
    normalize: bool = True,
    reduction: Reduction = "mean",
    keys: Tensor | None = None,
    key_labels: Tensor | None = None,
    anchor_index: Tensor | None = None,
    ignore_index: int = -100,
    group: ProcessGroup | Literal["world"] | None = None,
) -> Tensor:
    """Return the SINCERE loss over sets: each anchor picks all its positives at once out of all other items.

    The future work of https://arxiv.org/abs/2309.14277. The naive computation for one anchor i with k positives:

        z = embeddings / embeddings.norm(dim=1, keepdim=True)
        s = z @ z.T / temperature
        sets = torch.stack([s[i, list(chosen)].sum() for chosen in itertools.combinations(others, k)])
        loss_i = (sets.logsumexp(0) - s[i, positives].sum()) / k

    Its exponentially many terms are not enumerated. With one positive per anchor it is `sincere_loss`. Beyond how many
    there are, it models no interaction between the members of a set.

    Time O(n m (d + k)) with the exact method, O(n m d) with the saddle point. Memory O((n + m) d) and a block, forward
    and backward: the gradient is computed together with the value. Under `torch.no_grad()` only the value is computed.

    Args:
        embeddings: (n, d), or (n, views, d) for several augmented views of each image; any float type.
        labels: (n,), any integer type; -1 means "no label", as in `sincere_loss`.
        temperature: Positive number, or a tensor with one element, which may take a gradient.
        method: "exact"; "saddle" for a saddle-point approximation, whose error is below 0.08 / k, and whose gradient is
            that of the approximation; or "auto": exact for anchors with fewer than 8 positives, the saddle point for
            all others.
        normalize: Scale embeddings and keys to unit length. A zero vector stays zero and gets a zero gradient.
        reduction: "mean" over the anchors that have a positive, "sum", or "none" for each anchor's loss in the
            embeddings' shape without d, 0 where an anchor has no positive.
        keys: (m, d) or (m, views, d). Contrast the embeddings with this set instead of with each other.
        key_labels: (m,), needed with `keys`. A key with label -1 is a negative for every anchor.
        anchor_index: (n,) or (n, views): for each anchor the row of `keys` (views counted one by one) that is the
            anchor itself and is left out; -1 for none.
        ignore_index: Rows with this label are neither anchor nor key.
        group: The processes whose batch it is, as in `sincere_loss`: value and gradients are those of one process that
            holds all of it. The rows of all processes are gathered in each. Cannot be combined with `keys`.

    Returns:
        The loss in float32, or float64 for float64 input. Anchors without negatives have a loss of 0. Without any
        positive: 0 with zero gradients.

    Raises:
        InputTypeError, InputValueError: `TypeError`s and `ValueError`s that say what was expected and what came.

    Example:
        >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> set_sincere_loss(z, torch.tensor([0, 0, 0, 1]), temperature=1.0)  # log((e^2 + 2 e) / e^2) / 2
        tensor(0.2757)
    """
    caller = "set_sincere_loss"
    checks.choice(caller, "method", method, METHODS)
    checks.choice(caller, "reduction", reduction, REDUCTIONS)
    checks.flag(caller, "normalize", normalize)
    options = check_label_options(caller, {**DEFAULTS, "ignore_index": ignore_index})
    contrasted: dict[str, Any] = {"keys": keys, "key_labels": key_labels, "anchor_index": anchor_index}
    processes = find_group(caller, {**DEFAULTS, **contrasted, "group": group})
    if processes is not None:
        labelled = LabelledRows(embeddings, labels, options=options)
        # A compiler cannot trace what processes exchange: the graph breaks once around it.
        run = torch.compiler.disable(_global_loss) if torch.compiler.is_compiling() else _global_loss
        return run(caller, labelled, temperature, processes, method, normalize, reduction)
    inputs = check_inputs(caller, Formula(), embeddings, labels, temperature, **contrasted, label_options=options)
    weights = inputs.contrast.weights(reduction)
    losses = weighted_set_losses(
        inputs.rows, inputs.key_rows, inputs.temperature, inputs.contrast, normalize, method, weights
    )
    return losses.view(inputs.shape) if reduction == "none" else losses


def _global_loss(
    caller: str,
    own: LabelledRows,
    temperature: float | Tensor,
    processes: ProcessGroup,
    method: str,
    normalize: bool,
    reduction: str,
) -> Tensor:
    """Return the loss of the batch of a group, with the rows of all processes gathered in each."""
    group = default_as_none(processes)
    rows, batch = share_batch(caller, Formula(), own, group)
    t = check_temperature(caller, temperature, rows.dtype).to(rows.device)
    weights = batch.contrast.weights(reduction)
    own_weights = None if weights is None else weights[batch.own]
    keys: Tensor = GatherRows.apply(rows, batch.sizes, group)
    contrast = batch.contrast.of_anchors(batch.own)
    losses = weighted_set_losses(rows, keys, t, contrast, normalize, method, own_weights)
    if reduction == "none":
        each: Tensor = ScaledGradient.apply(losses, dist.get_world_size(group))
        return each.view(own.embeddings.shape[:-1])
    total: Tensor = TotalLoss.apply(losses, group)
    return total


class SetSINCERELoss(LossModule):
    """`set_sincere_loss` as a module; the future work of https://arxiv.org/abs/2309.14277.

    Example:
        >>> criterion = SetSINCERELoss(temperature=0.1)
        >>> embeddings = torch.eye(4).repeat_interleave(2, dim=0)
        >>> round(criterion(embeddings, torch.arange(8) // 2).item(), 6)  # one positive each: SINCERE
        0.000272
    """

    function = staticmethod(set_sincere_loss)
    option_names = ("temperature", "method", "normalize", "reduction", "ignore_index", "group")

    def __init__(
        self,
        temperature: float | Tensor = 0.1,
        *,
        method: Method = "auto",
        normalize: bool = True,
        reduction: Reduction = "mean",
        ignore_index: int = -100,
        group: ProcessGroup | Literal["world"] | None = None,
    ) -> None:
        """Check and hold what every call of the loss uses.

        Args:
            temperature: Divides the similarities. A positive number, or an `nn.Parameter` with one element to learn it.
            method: "auto", "exact" or "saddle"; see `set_sincere_loss`.
            normalize: Scale embeddings and keys to unit length.
            reduction: "mean" over the anchors that have a positive, "sum" or "none".
            ignore_index: Rows with this label are neither anchor nor key.
            group: The processes whose batch it is; see `set_sincere_loss`.
        """
        super().__init__(temperature)
        caller = type(self).__name__
        self.method = checks.choice(caller, "method", method, METHODS)
        self.normalize = checks.flag(caller, "normalize", normalize)
        self.reduction = checks.choice(caller, "reduction", reduction, REDUCTIONS)
        self.ignore_index = check_label_options(caller, {**DEFAULTS, "ignore_index": ignore_index}).ignore_index
        check_group(caller, {**DEFAULTS, "group": group})
        self.group = group

    if TYPE_CHECKING:  # nn.Module hides what forward takes and returns

        def __call__(
            self,
            embeddings: Tensor,
            labels: Tensor,
            *,
            keys: Tensor | None = None,
            key_labels: Tensor | None = None,
            anchor_index: Tensor | None = None,
        ) -> Tensor:
            """Return the loss."""

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        *,
        keys: Tensor | None = None,
        key_labels: Tensor | None = None,
        anchor_index: Tensor | None = None,
    ) -> Tensor:
        """Return the loss.

        Args:
            embeddings: (n, d), or (n, views, d) for several augmented views of each image; any float type.
            labels: (n,), any integer type; -1 means "no label", as in `sincere_loss`.
            keys: (m, d) or (m, views, d). Contrast the embeddings with this set instead of with each other.
            key_labels: (m,), needed with `keys`. A key with label -1 is a negative for every anchor.
            anchor_index: (n,) or (n, views): for each anchor the row of `keys` that is the anchor itself; -1 for none.
        """
        contrasted: dict[str, Any] = {"keys": keys, "key_labels": key_labels, "anchor_index": anchor_index}
        return set_sincere_loss(embeddings, labels, **contrasted, **self.options())
