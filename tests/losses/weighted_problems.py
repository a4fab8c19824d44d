"""Label sets, weights of keys and ignored rows: problems, and their answer by brute force."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from sincere import (
    debiased_loss,
    decoupled_loss,
    eps_supinfonce_loss,
    info_nce_loss,
    k_positives_loss,
    nearest_neighbours_loss,
    sincere_loss,
    supcon_in_loss,
    supcon_loss,
)
from sincere.losses import equations
from sincere.losses.equations import mean_over_partners

IGNORED = -100
NEAR = {"nearest_positives": 2, "nearest_negatives": 3}
NEAREST = {"n_partners": 2, "n_noise": 3}


@dataclass(frozen=True)
class Form:
    """A way to call a loss, and its formula."""

    function: Callable[..., Tensor]
    oracle: Callable[..., Tensor]
    needs_noise: bool = False
    labelled: bool = True


FORMS: dict[str, Form] = {
    "sincere": Form(sincere_loss, mean_over_partners(equations.sincere_pair)),
    "supcon": Form(supcon_loss, equations.supcon_out),
    "eps-supinfonce": Form(
        partial(eps_supinfonce_loss, epsilon=0.4),
        mean_over_partners(partial(equations.eps_supinfonce_pair, epsilon=0.4)),
    ),
    "decoupled": Form(decoupled_loss, mean_over_partners(equations.decoupled_pair), needs_noise=True),
    "supcon-in": Form(supcon_in_loss, equations.supcon_in),
    "supcon-in, SINCERE's denominator": Form(
        partial(supcon_in_loss, positives_in_denominator=False), equations.sincere_in
    ),
    # As many as there are: what is drawn is tested by itself.
    "k-positives": Form(partial(k_positives_loss, n_positives=99), equations.supcon_out),
    "k-positives, SINCERE's denominator": Form(
        partial(k_positives_loss, n_positives=99, positives_in_denominator=False),
        mean_over_partners(equations.sincere_pair),
    ),
    "nearest-neighbours": Form(
        partial(nearest_neighbours_loss, **NEAR), partial(equations.nearest_neighbours, **NEAREST)
    ),
    "nearest-neighbours, SINCERE's denominator": Form(
        partial(nearest_neighbours_loss, **NEAR, positives_in_denominator=False),
        partial(equations.nearest_sincere, **NEAREST),
    ),
    "infonce": Form(info_nce_loss, mean_over_partners(equations.sincere_pair), labelled=False),
    "debiased": Form(partial(debiased_loss, prior=0.2), partial(equations.debiased, prior=0.2), labelled=False),
}


@dataclass(frozen=True, eq=False)
class WeightedProblem:
    """Arguments of a loss with label sets, weights and ignored rows."""

    embeddings: Tensor
    labels: Tensor
    keys: Tensor | None = None
    key_labels: Tensor | None = None
    anchor_index: Tensor | None = None
    key_weights: Tensor | None = None
    temperature: float | Tensor = 0.3
    soft: bool = False
    label_similarity: str = "overlap"

    def leaves(self) -> WeightedProblem:
        """The same with embeddings, keys and temperature as leaves that take gradients."""
        leaf = lambda x: x.detach().clone().requires_grad_()  # noqa: E731
        return replace(
            self,
            embeddings=leaf(self.embeddings),
            keys=None if self.keys is None else leaf(self.keys),
            temperature=leaf(torch.as_tensor(self.temperature, dtype=torch.float64)),
        )

    @property
    def differentiable(self) -> list[Tensor]:
        return [x for x in (self.embeddings, self.keys, self.temperature) if isinstance(x, Tensor) and x.requires_grad]


def loss_of(form: str, problem: WeightedProblem, **options: Any) -> Tensor:
    """Call the loss."""
    given = {
        name: getattr(problem, name)
        for name in ("temperature", "keys", "key_labels", "anchor_index", "key_weights", "soft", "label_similarity")
    }
    arguments = (problem.embeddings, problem.labels) if FORMS[form].labelled else (problem.embeddings,)
    return FORMS[form].function(*arguments, **given, **options)


def oracle(form: str, problem: WeightedProblem, *, reduction: str = "mean") -> Tensor:
    """The loss by brute force: pair by pair, with Python's own sets and sums."""
    s, weights, shares, present = oracle_pairs(form, problem)
    chosen = FORMS[form]
    anchor_loss = chosen.oracle
    if form == "debiased":
        anchor_loss = partial(anchor_loss, temperature=problem.temperature)
    losses = equations.weighted_anchor_losses(anchor_loss, s, weights, shares, present, needs_noise=chosen.needs_noise)
    if reduction == "none":
        return losses.view(problem.embeddings.shape[:-1])
    if reduction == "sum":
        return losses.sum()
    counted = [
        bool((w[there] > 0).any()) and (not chosen.needs_noise or bool((q[there] > 0).any()))
        for w, q, there in zip(weights, shares, present, strict=True)
    ]
    return losses.sum() / max(1, sum(counted))


def oracle_pairs(form: str, problem: WeightedProblem) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Similarities, weights of partners, shares of noise, and which pairs there are, each (n, m)."""
    d = problem.embeddings.shape[-1]
    if not FORMS[form].labelled:
        problem = replace(problem, labels=torch.full((len(problem.embeddings),), -1))
    rows, row_labels = problem.embeddings.reshape(-1, d), _repeated(problem.labels, problem.embeddings)
    if problem.keys is None:
        keys, key_labels, itself = rows, row_labels, list(range(len(rows)))
        views = problem.embeddings.shape[1] if problem.embeddings.ndim == 3 else 1
        same_image = lambda i, j: i // views == j // views  # noqa: E731
        key_views = views
    else:
        keys, key_labels = problem.keys.reshape(-1, d), _repeated(problem.key_labels, problem.keys)
        itself = [-1] * len(rows) if problem.anchor_index is None else problem.anchor_index.flatten().tolist()
        same_image = lambda i, j: False  # noqa: E731
        key_views = problem.keys.shape[1] if problem.keys.ndim == 3 else 1
    s = normalize(rows, dim=1) @ normalize(keys, dim=1).T / problem.temperature
    if problem.key_weights is not None:
        s = s + problem.key_weights.double().log().repeat_interleave(key_views)
    n, m = len(rows), len(keys)
    weights, shares = torch.zeros(n, m, dtype=torch.float64), torch.zeros(n, m, dtype=torch.float64)
    present = torch.zeros(n, m, dtype=torch.bool)
    for i in range(n):
        for j in range(m):
            present[i, j] = j != itself[i] and not _ignored(row_labels[i]) and not _ignored(key_labels[j])
            w = _pair_weight(problem, row_labels[i], key_labels[j], same_image(i, j))
            weights[i, j] = w
            shares[i, j] = max(0.0, 1 - w) if problem.soft else float(w == 0)
    return s, weights, shares, present


def _pair_weight(problem: WeightedProblem, a: Any, b: Any, same_image: bool) -> float:
    if not isinstance(a, list):
        return float((a == b and a != -1) or (a == -1 and b == -1 and same_image))
    if not any(a) and not any(b):
        return float(same_image)
    shared = sum(x * y for x, y in zip(a, b, strict=True))
    if problem.label_similarity == "overlap":
        return shared
    either = sum(x * x for x in a) + sum(x * x for x in b) - shared
    return shared / either if shared else 0.0


def _ignored(label: Any) -> bool:
    return all(x == IGNORED for x in label) if isinstance(label, list) else label == IGNORED


def _repeated(labels: Tensor, embeddings: Tensor) -> list[Any]:
    views = embeddings.shape[1] if embeddings.ndim == 3 else 1
    return [label for label in labels.tolist() for _ in range(views)]


def weighted_problems() -> dict[str, WeightedProblem]:
    """Problems of odd shapes that together use every argument. Float64."""
    generator = torch.Generator().manual_seed(3)
    normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    n, m, d = 9, 11, 4
    labels = torch.tensor([3, 0, 3, -1, 0, IGNORED, 3, 9, 0])
    key_labels = torch.tensor([0, 3, -1, IGNORED, 7, 0, 0, 5, 3, -1, IGNORED])
    weights, key_weights = (torch.rand(size, generator=generator, dtype=torch.float64) + 0.3 for size in (n, m))
    sets = (torch.rand(n, 5, generator=generator) < 0.35).long()
    sets[2], sets[4] = 0, IGNORED
    key_sets = (torch.rand(m, 5, generator=generator) < 0.35).long()
    key_sets[0], key_sets[5] = 0, IGNORED
    probabilities, key_probabilities = (
        torch.rand(size, 3, generator=generator, dtype=torch.float64).square() for size in (n, m)
    )
    probabilities /= probabilities.sum(dim=1, keepdim=True)
    key_probabilities /= key_probabilities.sum(dim=1, keepdim=True)
    probabilities[1], probabilities[3] = 0, torch.tensor([0.0, 1.0, 0.0])
    index = torch.randint(-1, m, (n,), generator=generator)
    return {
        "ignored rows": WeightedProblem(normal(n, d), labels),
        "ignored views": WeightedProblem(normal(n, 2, d), labels),
        "weights": WeightedProblem(normal(n, 2, d), labels, key_weights=weights),
        "keys": WeightedProblem(normal(n, d), labels, normal(m, d), key_labels, index, key_weights),
        "sets": WeightedProblem(normal(n, d), sets),
        "views of sets": WeightedProblem(normal(n, 2, d), sets, key_weights=weights),
        "tanimoto": WeightedProblem(normal(n, 2, d), sets, label_similarity="tanimoto"),
        "keys of sets": WeightedProblem(normal(n, d), sets, normal(m, 2, d), key_sets, index, key_weights),
        "probabilities": WeightedProblem(normal(n, 2, d), probabilities, soft=True),
        "keys of probabilities": WeightedProblem(
            normal(n, d), probabilities, normal(m, d), key_probabilities, index, key_weights, soft=True
        ),
        "small temperature": WeightedProblem(normal(n, 2, d), sets, temperature=0.03),
    }


PROBLEMS = weighted_problems()


def suits(form: str, problem: WeightedProblem) -> bool:
    """Self-supervised losses take views and no labels; a debiased one takes no weights."""
    if FORMS[form].labelled:
        return not (problem.soft and form.startswith("nearest"))
    plain = problem.labels.ndim == 1 and problem.keys is None and problem.embeddings.ndim == 3
    return plain and (problem.key_weights is None or form == "infonce")


CASES = [(form, case) for form in FORMS for case, problem in PROBLEMS.items() if suits(form, problem)]
