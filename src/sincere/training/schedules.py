"""The learning rate of each step: linear warm-up, then cosine, both from and to a thousandth of the peak."""

from __future__ import annotations

import math

FLOOR = 0.001  # of the peak, at the first and the last step


def warmup_steps(n_steps: int, steps_per_epoch: int, epochs: float | None = None) -> int:
    """Return the steps of warm-up: those of `epochs`, or of 10 epochs but at most a tenth of all steps."""
    if epochs is not None:
        return max(0, min(round(epochs * steps_per_epoch), n_steps - 2))  # the last step ends at the floor
    return min(10 * steps_per_epoch, n_steps // 10)


def learning_rate_factor(step: int, n_steps: int, n_warmup: int) -> float:
    """Return the share of the peak at step t of E with W of warm-up.

    .001 + .999 t / W, then cosine from 1 at W to .001 at E - 1.

    Example:
        >>> [round(learning_rate_factor(t, 101, 10), 4) for t in (0, 5, 10, 55, 100)]
        [0.001, 0.5005, 1.0, 0.5005, 0.001]
    """
    if step < n_warmup:
        return FLOOR + (1 - FLOOR) * step / n_warmup
    remaining = n_steps - 1 - n_warmup
    progress = (step - n_warmup) / remaining if remaining > 0 else 0.0
    return FLOOR + (1 - FLOOR) * (1 + math.cos(math.pi * progress)) / 2
