"""The paper's formulas, literally: one anchor and one partner at a time, in autograd, in any float type.

This is the oracle: slow on purpose, and what "correct" means for every kernel. Nothing but tests and readers
should need it.

Legend (paper, section 2): i anchor, p partner (same class; a positive elsewhere), n noise (another class; a negative
elsewhere), s_ij = z_i . z_j / tau.
A label equal to another means the same class, nothing else: -1 is no special case here.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

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


def decoupled_pair(s_p: Tensor, s_partners: Tensor, s_noise: Tensor) -> Tensor:
    """Yeh et al.: -log e^{s_ip} / (sum_n e^{s_in}); https://arxiv.org/abs/2110.06848."""
    return torch.logsumexp(s_noise, dim=0) - s_p


def targeted(
    pair_loss: PairLoss, s_partners: Tensor, s_noise: Tensor, s_target: Tensor, s_targets: Tensor, *, weight: float
) -> Tensor:
    """Li et al.: (sum_p l(i, p) + weight l(i, t)) / (|P| + 1), t the target of the anchor's class.

    Paper: https://arxiv.org/abs/2111.13998, where l is `supcon_pair`. The target is one more partner, the targets of
    all other classes are noise; weight 1 gives it the say of any other partner, as in the authors' code for CIFAR.

    Args:
        pair_loss: l.
        s_partners: Similarities of the anchor and its partners.
        s_noise: Those of the anchor and noise.
        s_target: That of the anchor and the target of its class.
        s_targets: Those of the anchor and all other targets.
        weight: Weight of the target.
    """
    partners, noise = torch.cat([s_partners, s_target[None]]), torch.cat([s_noise, s_targets])
    pairs = [pair_loss(s_p, partners, noise) for s_p in s_partners]
    return sum(pairs, weight * pair_loss(s_target, partners, noise)) / (len(s_partners) + 1)


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


# Weighted forms. For one anchor: similarities `s` to all keys but itself, with the logarithms of their weights (the
# prior of a selection: https://arxiv.org/abs/2309.14277, section 3), the weight w_p >= 0 of each as a partner, and the
# share q_j in [0, 1] with which each is noise.

AnchorLoss = Callable[[Tensor, Tensor, Tensor], Tensor]


def mean_over_partners(pair_loss: PairLoss) -> AnchorLoss:
    """Return the anchor's loss as the mean of its pair losses, weighted by w.

    For the pair losses noise with share q is noise whose similarity is s + log q.
    """

    def loss(s: Tensor, w: Tensor, q: Tensor) -> Tensor:
        noise = (s + q.log())[q > 0]
        pairs = [w[p] * pair_loss(s[p], s[w > 0], noise) for p in range(len(s)) if w[p] > 0]
        return torch.stack(pairs).sum() / w.sum()

    return loss


def supcon_out(s: Tensor, w: Tensor, q: Tensor) -> Tensor:
    """Khosla et al., "out" form, weighted: every key once in the denominator, whatever its share."""
    return (w * (torch.logsumexp(s, dim=0) - s)).sum() / w.sum()


def supcon_in(s: Tensor, w: Tensor, q: Tensor) -> Tensor:
    """Khosla et al., "in" form: -log (1 / |P| sum_p e^{s_ip}) / (sum_a e^{s_ia}); https://arxiv.org/abs/2004.11362."""
    return -torch.log((w * s.exp()).sum() / w.sum() / s.exp().sum())


def sincere_in(s: Tensor, w: Tensor, q: Tensor) -> Tensor:
    """The "in" form with SINCERE's denominator: m = 1 / |P| sum_p e^{s_ip}, -log m / (m + sum_n e^{s_in})."""
    mean = (w * s.exp()).sum() / w.sum()
    return -torch.log(mean / (mean + (q * s.exp()).sum()))


def debiased(s: Tensor, w: Tensor, q: Tensor, *, prior: float, temperature: float | Tensor) -> Tensor:
    """Chuang et al.: -log e^{s_ip} / (e^{s_ip} + N g), averaged over partners; https://arxiv.org/abs/2007.00224.

    g = max((1/N sum_n e^{s_in} - prior 1/|P| sum_p e^{s_ip}) / (1 - prior), e^{-1 / tau}).
    """
    n_noise = q.sum()
    mean_noise, mean_partner = (q * s.exp()).sum() / n_noise, (w * s.exp()).sum() / w.sum()
    least = torch.exp(-1 / torch.as_tensor(temperature, dtype=s.dtype))
    g = torch.maximum((mean_noise - prior * mean_partner) / (1 - prior), least)
    return (w * -torch.log(s.exp() / (s.exp() + n_noise * g))).sum() / w.sum()


def nearest_neighbours(s: Tensor, w: Tensor, q: Tensor, *, n_partners: int, n_noise: int) -> Tensor:
    """Feng et al., among the nearest: -log (sum_p w_p e^{s_ip}) / (sum_p e^{s_ip} + sum_n e^{s_in}).

    Paper: https://arxiv.org/abs/2110.06014.
    """
    partners, noise = _nearest(s, w > 0, n_partners), _nearest(s, w == 0, n_noise)
    in_denominator = torch.cat([s[partners], s[noise]])
    return -torch.log((w[partners] * s[partners].exp()).sum() / in_denominator.exp().sum())


def nearest_sincere(s: Tensor, w: Tensor, q: Tensor, *, n_partners: int, n_noise: int) -> Tensor:
    """SINCERE among the nearest partners and the nearest noise."""
    partners, noise = _nearest(s, w > 0, n_partners), _nearest(s, w == 0, n_noise)
    kept = torch.zeros_like(q)
    kept[noise] = q[noise]
    weights = torch.zeros_like(w)
    weights[partners] = w[partners]
    return mean_over_partners(sincere_pair)(s, weights, kept)


def _nearest(s: Tensor, among: Tensor, k: int) -> list[int]:
    """Return the positions of the k most similar, all of them where there are fewer."""
    positions = [int(j) for j in among.nonzero()]
    return sorted(positions, key=lambda j: -s[j].item())[:k]


def weighted_anchor_losses(
    anchor_loss: AnchorLoss,
    s: Tensor,
    pair_weights: Tensor,
    noise_shares: Tensor,
    present: Tensor,
    *,
    needs_noise: bool = False,
) -> PerAnchor:
    """Each anchor's loss; 0 for one without a partner, or without noise where a formula needs some.

    Args:
        anchor_loss: One of the functions above.
        s: Similarities of anchors and keys (n, m), divided by tau, with the logarithms of key weights.
        pair_weights: Weight of each key as a partner (n, m).
        noise_shares: Share with which each key is noise (n, m).
        present: Which pairs there are (n, m): not an anchor with itself, nor what is ignored.
        needs_noise: Whether an anchor without noise is left out.
    """
    losses = []
    for s_i, w, q, there in zip(s, pair_weights, noise_shares, present, strict=True):
        s_i, w, q = s_i[there], w[there], q[there]
        taken = bool((w > 0).any()) and (not needs_noise or bool((q > 0).any()))
        losses.append(anchor_loss(s_i, w, q) if taken else 0.0 * s_i.sum())
    return torch.stack(losses)


def set_loss(s_partners: Tensor, s_noise: Tensor) -> Tensor:
    """SINCERE over sets: -log( prod_{p in P} e^{s_ip} / sum_A prod_{a in A} e^{s_ia} ) / |P|, A all sets of |P| items.

    The sets are enumerated, so this is for a dozen items. The future work of https://arxiv.org/abs/2309.14277.
    """
    size = len(s_partners)
    s_all = torch.cat([s_partners, s_noise])
    sets = torch.tensor(list(combinations(range(len(s_all)), size)))  # (sets, |P|)
    return (torch.logsumexp(s_all[sets].sum(dim=1), dim=0) - s_partners.sum()) / size


def set_losses(
    z: Rows,
    labels: AnchorIds,
    temperature: float | Tensor,
    *,
    keys: KeyRows | None = None,
    key_labels: KeyIds | None = None,
    anchor_index: AnchorIds | None = None,
) -> PerAnchor:
    """Each anchor's loss over sets; 0 for an anchor without a partner. The arguments are those of `anchor_losses`."""
    if keys is None:
        keys, key_labels, anchor_index = z, labels, torch.arange(len(z))
    assert key_labels is not None
    itself = anchor_index.tolist() if anchor_index is not None else [-1] * len(z)
    losses = []
    for i, label in enumerate(labels.tolist()):
        s_i = keys @ z[i] / temperature
        others = torch.arange(len(keys)) != itself[i]
        partners, noise = s_i[others & (key_labels == label)], s_i[others & (key_labels != label)]
        losses.append(set_loss(partners, noise) if len(partners) else 0.0 * z[i].sum())
    return torch.stack(losses)
