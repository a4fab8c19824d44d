"""Learning rate schedules: linear warm-up, then decay, starting and ending at a thousandth of the peak."""

from __future__ import annotations

import math

FLOOR = 0.001  # fraction of the peak at the first and the last step


def warmup_steps(n_steps: int, steps_per_epoch: int, epochs: float | None = None) -> int:
    """Return the number of warm-up steps: of `epochs`, by default of 10 epochs but at most a tenth of all steps."""
    if epochs is not None:
        return max(0, min(round(epochs * steps_per_epoch), n_steps - 2))  # the last step ends at the floor
    return min(10 * steps_per_epoch, n_steps // 10)


def learning_rate_factor(step: int, n_steps: int, n_warmup: int, *, schedule: str = "cosine") -> float:
    """Return the learning rate at a step as a fraction of its peak.

    With W warm-up steps of n: 0.001 + 0.999 step / W, then decay from 1 at step W to 0.001 at step n - 1: by a cosine
    (Loshchilov and Hutter 2017, https://arxiv.org/abs/1608.03983) or, with schedule "linear", along a straight line.

    Example:
        >>> [round(learning_rate_factor(t, 101, 10), 4) for t in (0, 5, 10, 55, 100)]
        [0.001, 0.5005, 1.0, 0.5005, 0.001]
    """
    if step < n_warmup:
        return FLOOR + (1 - FLOOR) * step / n_warmup
    remaining = n_steps - 1 - n_warmup
    progress = (step - n_warmup) / remaining if remaining > 0 else 0.0
    height = 1 - progress if schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2
    return FLOOR + (1 - FLOOR) * height
