"""The result that the walks over all pairs share."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from sincere.shapes import KeyRows, PerAnchor, Rows


@dataclass(frozen=True, eq=False)
class Walk:
    """What a walk over all pairs yields; the gradients are None unless asked for.

    Attributes:
        losses: Loss of each anchor, 0 where it has no partner.
        log_denominators: Log-sum-exp over the denominator, without an anchor's partner: L_i, or D_i for SupCon.
        anchors: d(weights . losses)/d anchors, times the temperature. Where the anchors are the keys, both parts.
        keys: The same for separate keys.
        similarity: sum_ij dLoss/ds_ij s_ij, from which the temperature's gradient follows.
    """

    losses: PerAnchor
    log_denominators: PerAnchor
    anchors: Rows | None = None
    keys: KeyRows | None = None
    similarity: Tensor | None = None
