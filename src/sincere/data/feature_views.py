"""Views of features: dropout, and a choice among the cached versions of an image.

Every random number is a function of (seed, visit, id, view, purpose): see `counter_rng`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sincere.data.counter_rng import CounterRNG

LEVELS = 256  # probabilities of dropout are multiples of 1 / 256: a random 64-bit number decides on eight features


def make_feature_views(
    features: Tensor, ids: Tensor, visits: Tensor, *, dropout: float, seed: int, n_views: int
) -> Tensor:
    """Return views (n, n_views, d) of features (n, d), or of n samples with several versions each (n, versions, d).

    Each view takes one version of its sample at random, sets about a fraction `dropout` of its features to 0 and scales
    the others up, so that sums keep their expectation.
    """
    views = [
        one_feature_view(features, CounterRNG(seed, visits, ids, view), dropout=dropout) for view in range(n_views)
    ]
    return torch.stack(views, dim=1)


def plain_feature_views(features: Tensor, ids: Tensor, visits: Tensor, *, n_views: int) -> Tensor:
    """Return features (n, d) as they are as each of their views (n, n_views, d); of versions, those of the image."""
    plain = features[:, 0] if features.ndim == 3 else features
    return plain[:, None].expand(-1, n_views, -1)


def one_feature_view(features: Tensor, rng: CounterRNG, *, dropout: float) -> Tensor:
    """Return one view (n, d) of features (n, d) or (n, versions, d)."""
    if features.ndim == 3:
        n, n_versions, _ = features.shape
        version = (rng.uniform("version") * n_versions).long().clamp_(max=n_versions - 1)
        features = features[torch.arange(n, device=features.device), version]
    n_dropped = min(round(dropout * LEVELS), LEVELS - 1)  # of features that are all dropped nothing could be scaled up
    if not n_dropped:
        return features
    kept = _random_bytes(rng, features.shape[1]) >= n_dropped
    return features * kept * (LEVELS / (LEVELS - n_dropped))


def _random_bytes(rng: CounterRNG, n_features: int) -> Tensor:
    """Return random numbers from 0 to 255, (n, n_features), which do not depend on the other samples of the batch."""
    n_words = -(-n_features // 8)
    counters = (rng.ids[:, None] * n_words + torch.arange(n_words, device=rng.ids.device)).flatten()
    words = CounterRNG(rng.seed, rng.visits.repeat_interleave(n_words), counters, rng.view).bits("dropout")
    return words.view(torch.uint8).view(len(rng.ids), 8 * n_words)[:, :n_features]
