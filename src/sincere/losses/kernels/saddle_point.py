r"""The probability that exactly as many of many independent events happen as do on average, from three sums.

With q_j the probability of event j and v_j = q_j (1 - q_j), the number of events has the characteristic function
prod_j (1 - q_j + q_j e^{i theta}), whose factors have the modulus (1 - 4 v_j sin^2(theta/2))^(1/2). The model keeps

    V = sum v_j      the variance
    W = sum v_j^2    w = W / V, the typical v_j, 1/4 at most
    T = sum v_j (1 - 2 q_j)      the third cumulant

and replaces the product by one of V / w equal factors, and the phase by that of a Poisson variable with this T:

    P = 1/pi  int_0^pi  (1 - 4 w sin^2(theta/2))^(V / 2w)  cos(T (theta - sin theta))  d theta

Many small v_j with T = 0 give the limit i0e(V), which tends to the usual 1 / sqrt(2 pi V) for large V. The integrand is
smooth and periodic, so the trapezoidal rule with 17 nodes is exact to 1e-10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

_N_STEPS = 16
_REACH = 14.0  # standard deviations of the integrand, beyond which it is 0; up to a variance of 20 that is beyond pi


@dataclass(frozen=True, eq=False)
class LogProbability:
    """log P of each row, and its derivatives with respect to V, W and T; all (rows,)."""

    value: Tensor
    by_variance: Tensor
    by_squares: Tensor
    by_skew: Tensor


def log_probability(V: Tensor, W: Tensor, T: Tensor) -> LogProbability:
    """Return log P from the sums of each row, (rows,).

    Example:
        >>> half = torch.tensor([0.25], dtype=torch.float64)
        >>> log_probability(2 * half, 2 * half**2, 0 * half).value.exp()  # one of two coins: 1/2
        tensor([0.5000], dtype=torch.float64)
    """
    w = (W / V).clamp_(1e-10, 0.25)[:, None]
    reach = (_REACH / V.sqrt()).clamp_max_(math.pi)[:, None]
    nodes = torch.arange(_N_STEPS + 1, dtype=V.dtype, device=V.device) / _N_STEPS
    theta = reach * nodes
    x = (theta / 2).sin_().square_()
    rest = (1 - 4 * w * x).clamp_min_(1e-12)  # 0 for fair coins at theta = pi, where the integrand is 0, too
    logs = (-4 * w * x).clamp_min_(-1 + 1e-12).log1p_() / w
    phase = theta - theta.sin()
    weights = (V[:, None] / 2 * logs).exp_() * torch.where((nodes == 0) | (nodes == 1), 0.5, 1.0)
    values = weights * (T[:, None] * phase).cos_()
    total = values.sum(dim=1)
    by_V = logs + 2 * x / rest
    by_W = -(logs / 2 + 2 * x / rest) / w
    dot = torch.linalg.vecdot
    sine = weights * (T[:, None] * phase).sin_()
    value = (total * reach[:, 0] / (math.pi * _N_STEPS)).log_()
    return LogProbability(value, dot(values, by_V) / total, dot(values, by_W) / total, -dot(sine, phase) / total)


class SaddlePoint:
    """The model for events of two kinds: items that are chosen and should not be, and that are not and should be.

    All events are independent, and equally many of each kind happen on average. P is the probability that equally many
    of each kind happen, so the second kind counts backwards.

    Args:
        q_first: Probabilities of the first kind, (rows, m).
        q_second: Probabilities of the second kind, (rows, width).
    """

    def __init__(self, q_first: Tensor, q_second: Tensor) -> None:
        self.q = (q_first, q_second)
        self.v = tuple(torch.addcmul(q, q, q, value=-1.0) for q in self.q)
        dot, dtype = torch.linalg.vecdot, q_first.dtype
        variances = [v.sum(dim=1) for v in self.v]
        skews = [variance - 2 * dot(v, q) for variance, v, q in zip(variances, self.v, self.q, strict=True)]
        V = (variances[0] + variances[1]).clamp_min_(torch.finfo(dtype).tiny)
        squares = [torch.linalg.vector_norm(v, dim=1).square_() for v in self.v]
        W, T = squares[0] + squares[1], skews[0] - skews[1]
        # A few numbers per row can afford the wider type, which MPS does not have.
        wide = torch.float64 if q_first.device.type != "mps" else dtype
        self.V, self.result = V, log_probability(V.to(wide), W.to(wide), T.to(wide))

    @property
    def log_probability(self) -> Tensor:
        """Return log P of each row, (rows,)."""
        return self.result.value.to(self.V.dtype)

    def push_and_pull(self) -> tuple[Tensor, Tensor]:
        """Return the derivatives of sum softplus + log P with respect to the logits of each kind; overwrites q.

        A common number, added to the logits of the first kind and subtracted from those of the second, keeps the
        averages equal; it depends on all of them, and so do V, W and T through it.
        """
        derivatives = (self.result.by_variance, self.result.by_squares, self.result.by_skew)
        by_V, by_W, by_T = (x.to(self.V.dtype)[:, None] for x in derivatives)
        signs = (1.0, -1.0)
        directions = []  # d log P / d logit is v times this, apart from the common number
        for q, v, sign in zip(self.q, self.v, signs, strict=True):
            u = torch.rsub(q, sign, alpha=2 * sign)  # +-(1 - 2 q)
            direction = (u * (2 * by_W)).sub_(6 * by_T).mul_(v)
            directions.append(direction.addcmul_(u, by_V))
        totals = [torch.linalg.vecdot(v, direction) for v, direction in zip(self.v, directions, strict=True)]
        common = ((totals[0] + totals[1]) / self.V)[:, None]
        # by_T is the same for all items, so it cancels in the difference.
        push, pull = (
            q.addcmul_(v, direction.sub_(common), value=sign)
            for q, v, direction, sign in zip(self.q, self.v, directions, signs, strict=True)
        )
        return push, pull
