"""Lower bounds on the losses from the divergence of target and noise, and on the divergence from a loss.

J is the symmetrised divergence KL(p+ || p-) + KL(p- || p+), |N| the number of noise items (negatives), |P| that of
partners (positives). docs/explanation/theory.md proves the tighter bound. Paper: https://arxiv.org/abs/2309.14277.
"""

from __future__ import annotations

from math import inf, log

import torch
from torch.distributions import Distribution, kl_divergence

from sincere import checks
from sincere.records.estimates import MonteCarlo
from sincere.theory.distributions import check_pair


def sincere_bound(divergence: float, n_noise: int) -> float:
    """Return the paper's bound on the ideal SINCERE loss: log|N| - J, or 0 where that is negative (Theorem 2)."""
    n = checks.count("sincere_bound", "n_noise", n_noise, least=1)
    return max(0.0, log(n) - _divergence("sincere_bound", divergence))


def tighter_sincere_bound(divergence: float, n_noise: int) -> float:
    """Return log(|N| + 1) - |N| / (|N| + 1) J, or 0: never below the paper's bound, and exact where p+ = p-.

    Jensen's inequality over all |N| + 1 terms of the denominator instead of the |N| noise terms.

    Example:
        >>> sincere_bound(0.0, 1), round(tighter_sincere_bound(0.0, 1), 4)  # p+ = p-: the loss is log 2
        (0.0, 0.6931)
    """
    n = checks.count("tighter_sincere_bound", "n_noise", n_noise, least=1)
    return max(0.0, log(n + 1) - n / (n + 1) * _divergence("tighter_sincere_bound", divergence))


def supcon_bound(divergence: float, n_noise: int, n_partners: int) -> float:
    """Return the bound on SupCon's ideal loss: log(|N| + |P| - 1) - |N| / (|N| + |P| - 1) J, or 0.

    Never below SINCERE's, equal at |P| = 1 (paper, appendix; its title says "looser", the inequality is this one).
    """
    n = checks.count("supcon_bound", "n_noise", n_noise, least=1)
    p = checks.count("supcon_bound", "n_partners", n_partners, least=1)
    return max(0.0, log(n + p - 1) - n / (n + p - 1) * _divergence("supcon_bound", divergence))


def divergence_lower_bound(loss: float, n_noise: int, *, tighter: bool = True) -> float:
    """Return a lower bound on J from an (ideal) SINCERE loss with |N| noise items: the corollary of Theorem 2.

    The paper's: log|N| - L. The tighter: (|N| + 1) / |N| (log(|N| + 1) - L), which is never below it. Both are at
    least 0, as J is. The largest value that |N| items can show is reached at L = 0: see `divergence_cap`.

    Example:
        >>> round(divergence_lower_bound(0.3, 1000), 3), round(divergence_lower_bound(0.3, 1000, tighter=False), 3)
        (6.615, 6.608)
    """
    n = checks.count("divergence_lower_bound", "n_noise", n_noise, least=1)
    value = checks.number("divergence_lower_bound", "loss", loss)
    return max(0.0, (n + 1) / n * (log(n + 1) - value) if tighter else log(n) - value)


def divergence_cap(n_noise: int, *, tighter: bool = True) -> float:
    """Return the largest bound that |N| noise items can show, whatever the true divergence."""
    return divergence_lower_bound(0.0, checks.count("divergence_cap", "n_noise", n_noise, least=1), tighter=tighter)


def symmetrised_kl(p: Distribution, q: Distribution, *, n_samples: int = 100_000) -> MonteCarlo:
    """Return KL(p || q) + KL(q || p): in closed form where torch has one, else by Monte Carlo with a standard error.

    Example:
        >>> from torch.distributions import Normal
        >>> symmetrised_kl(Normal(0.0, 1.0), Normal(2.0, 1.0))
        MonteCarlo(estimate=4.0, standard_error=0.0)
    """
    check_pair("symmetrised_kl", p=p, q=q)
    n_samples = checks.count("symmetrised_kl", "n_samples", n_samples, least=2)
    try:
        return MonteCarlo(float(kl_divergence(p, q) + kl_divergence(q, p)), 0.0)
    except NotImplementedError:
        pass
    total, variance = 0.0, 0.0
    for a, b in ((p, q), (q, p)):
        x = a.sample(torch.Size([n_samples]))
        if b.support is not None and not bool(b.support.check(x).all()):
            return MonteCarlo(inf, 0.0)  # one has mass where the other has none
        difference = (a.log_prob(x) - b.log_prob(x)).double()
        total += difference.mean().item()
        variance += difference.var().item() / n_samples
    return MonteCarlo(total, variance**0.5)


def _divergence(caller: str, value: float) -> float:
    return inf if value == inf else checks.number(caller, "divergence", value, least=0.0)
