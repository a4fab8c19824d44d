"""How loss, bounds and divergence move with the task: rows for the figures of docs/explanation/theory.md."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.distributions import Independent, Normal

from sincere.loss_catalog import COMPARED_LOSSES, LOSSES
from sincere.theory.bounds import sincere_bound, symmetrised_kl, tighter_sincere_bound
from sincere.theory.generative import GenerativeModel
from sincere.theory.selection import ideal_loss

DEFAULTS = {"n_noise": 64, "dimension": 4, "separation": 0.5}
SWEEPS: dict[str, tuple[float, ...]] = {
    "n_noise": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
    "dimension": (1, 2, 4, 8, 16, 32),
    "separation": (0.0, 0.125, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5),
}


def gaussian_sweep(*, n_draws: int = 4000, seed: int = 0) -> list[dict[str, Any]]:
    """Return rows (varied, value, quantity, nats, standard_error) for two Gaussians of unit covariance.

    Their means differ by `separation` in each of `dimension` coordinates, so J = dimension x separation^2. One setting
    varies at a time, the others stay at `DEFAULTS`. The loss is that of the best score, the log density ratio.
    """
    rows = []
    for varied, values in SWEEPS.items():
        for value in values:
            setting = {**DEFAULTS, varied: value}
            dimension, n_noise = int(setting["dimension"]), int(setting["n_noise"])
            target, noise = (
                Independent(Normal(torch.full((dimension,), mean), 1.0), 1) for mean in (setting["separation"], 0.0)
            )
            model = GenerativeModel(target, noise, n_targets=2, n_noise=n_noise)
            with torch.random.fork_rng():  # leaves the caller's generator as it is
                torch.manual_seed(seed)
                loss = ideal_loss(model, model.log_ratio, n_draws=n_draws)
            divergence = symmetrised_kl(target, noise).estimate
            quantities = {
                "loss": loss.estimate,
                "bound (paper)": sincere_bound(divergence, n_noise),
                "bound (tighter)": tighter_sincere_bound(divergence, n_noise),
                "symmetrised KL": divergence,
            }
            for quantity, nats in quantities.items():
                error = loss.standard_error if quantity == "loss" else 0.0
                rows.append(
                    {"varied": varied, "value": value, "quantity": quantity, "nats": nats, "standard_error": error}
                )
    return rows


def coefficient_ranges(n_partners: Iterable[int] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)) -> list[dict[str, Any]]:
    """Return rows (loss, n_partners, low, high): the range of the scalar on a partner, on the per-anchor scale."""
    return [
        {
            "loss": loss.title,
            "n_partners": p,
            "low": -1 / p,
            "high": 1 - 1 / p if loss.positives_in_denominator else 0.0,
        }
        for p in n_partners
        for loss in (LOSSES[name] for name in COMPARED_LOSSES if not LOSSES[name].hyper_parameters)
    ]
