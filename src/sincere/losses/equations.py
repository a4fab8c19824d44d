"""The paper's formulas, literally: one anchor and one partner at a time, in autograd, in any float type.

This is the oracle: slow on purpose, and what "correct" means for every kernel. Nothing but tests and readers
should need it.

Legend (paper, section 2): i anchor, p partner (same class; a positive elsewhere), n noise (another class; a negative
elsewhere), s_ij = z_i . z_j / tau.
A label equal to another means the same class, nothing else: -1 is no special case here.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sincere.shapes import AnchorIds, KeyIds, KeyRows, PerAnchor, Rows

PairLoss = Callable[[Tensor, Tensor, Tensor], Tensor]


def sincere_pair(s_p: Tensor, s_partners: Tensor, s_noise: Tensor) -> Tensor:
    """SINCERE: -log e^{s_ip} / (e^{s_ip} + sum_n e^{s_in}). Self-supervised InfoNCE where |P| = 1.

    Papers: https://arxiv.org/abs/2309.14277, https://arxiv.org/abs/1807.03748 (InfoNCE).
    """
    return eps_supinfonce_pair(s_p, s_partners, s_noise, epsilon=0.0)


def eps_supinfonce_pair(s_p: Tensor, s_partners: Tensor, s_noise: Tensor, *, epsilon: float) -> Tensor:
    """Barbano et al.: -log e^{s_ip} / (e^{s_ip - eps} + sum_n e^{s_in}); https://arxiv.org/abs/2211.05568."""
    return torch.logsumexp(torch.cat([(s_p - epsilon)[None], s_noise]), dim=0) - s_p


def supcon_pair(s_p: Tensor, s_partners: Tensor, s_noise: Tensor) -> Tensor:
    """Khosla et al., "out" form: -log e^{s_ip} / (sum over all partners and noise of e^{s_ia}).

    Paper: https://arxiv.org/abs/2004.11362.
    """
    return torch.logsumexp(torch.cat([s_partners, s_noise]), dim=0) - s_p


def anchor_losses(
    pair_loss: PairLoss,
    z: Rows,
    labels: AnchorIds,
    temperature: float | Tensor,
    *,
    keys: KeyRows | None = None,
    key_labels: KeyIds | None = None,
    anchor_index: AnchorIds | None = None,
) -> PerAnchor:
    """Each anchor's pair loss averaged over its partners; 0 for an anchor without one.

    Args:
        pair_loss: One of the `*_pair` functions above.
        z: Embeddings (n, d), used as they are (not normalised).
        labels: Class of each row.
        temperature: tau.
        keys: What the anchors are contrasted with; the rows themselves if None.
        key_labels: Class of each key.
        anchor_index: For each anchor the key that is itself, -1 for none.
    """
    if keys is None:
        keys, key_labels, anchor_index = z, labels, torch.arange(len(z))
    assert key_labels is not None
    classes = key_labels.tolist()
    itself = anchor_index.tolist() if anchor_index is not None else [-1] * len(z)
    losses = []
    for i, label in enumerate(labels.tolist()):
        s_i = keys @ z[i] / temperature
        others = [a for a in range(len(keys)) if a != itself[i]]
        partners = s_i[[a for a in others if classes[a] == label]]
        noise = s_i[[a for a in others if classes[a] != label]]
        pairs = [pair_loss(s_p, partners, noise) for s_p in partners]
        losses.append(torch.stack(pairs).mean() if pairs else 0.0 * z[i].sum())
    return torch.stack(losses)
