"""Problems for every loss, and the oracle's answer to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize as unit

from sincere.loss_catalog import LOSSES
from sincere.losses import equations

PAIR_LOSSES: dict[str, Callable[..., Tensor]] = {
    "sincere": equations.sincere_pair,
    "supcon": equations.supcon_pair,
    "eps-supinfonce": partial(equations.eps_supinfonce_pair, epsilon=0.25),
    "infonce": equations.sincere_pair,
}
# The losses of the paper. All others, and these with label sets and weights, are in weighted_problems.py.
PLAIN = [name for name, loss in LOSSES.items() if loss.is_plain]
OVER_SETS = [name for name, loss in LOSSES.items() if loss.over_sets]  # whose oracle is `equations.set_losses`
PAIRWISE = [name for name in PLAIN if LOSSES[name].needs_labels]
SUPERVISED = [*PAIRWISE, *OVER_SETS]
KERNELS = ["dense", "tiled"]


@dataclass(frozen=True, eq=False)
class Problem:
    """Arguments of a loss: (n, d) or (n, views, d) embeddings, labels, and optionally keys."""

    embeddings: Tensor
    labels: Tensor
    keys: Tensor | None = None
    key_labels: Tensor | None = None
    anchor_index: Tensor | None = None
    temperature: float | Tensor = 0.1

    def to(self, dtype: torch.dtype) -> Problem:
        keys = None if self.keys is None else self.keys.to(dtype)
        return replace(self, embeddings=self.embeddings.to(dtype), keys=keys)

    def leaves(self) -> Problem:
        """The same problem with embeddings, keys and temperature as leaves that take gradients."""
        leaf = lambda x: x.detach().clone().requires_grad_()  # noqa: E731
        # Parameters stay in float32 where activations are in half precision.
        dtype = torch.promote_types(self.embeddings.dtype, torch.float32)
        return replace(
            self,
            embeddings=leaf(self.embeddings),
            keys=None if self.keys is None else leaf(self.keys),
            temperature=leaf(torch.as_tensor(self.temperature, dtype=dtype)),
        )

    @property
    def differentiable(self) -> list[Tensor]:
        tensors = [self.embeddings, self.keys, self.temperature]
        return [x for x in tensors if isinstance(x, Tensor) and x.requires_grad]


def loss_of(name: str, problem: Problem, **options: Any) -> Tensor:
    """Call the loss that the table holds under `name`."""
    normalize, reduction = options.pop("normalize", True), options.pop("reduction", "mean")
    if name in OVER_SETS:  # one kernel serves all sizes; the oracle is exact
        options.pop("kernel", None)
        options.setdefault("method", "exact")
    make = LOSSES[name].load()
    if name in ("k-positives", "targeted"):
        options.setdefault("draw", 3)
    contrasted = {"keys": problem.keys, "key_labels": problem.key_labels, "anchor_index": problem.anchor_index}
    if LOSSES[name].needs_classes:
        options |= {"n_classes": int(problem.labels.max()) + 1, "dim": problem.embeddings.shape[-1]}
        contrasted = {}
    criterion = make(problem.temperature, normalize=normalize, reduction=reduction, **options)
    arguments = (problem.embeddings, problem.labels) if LOSSES[name].needs_labels else (problem.embeddings,)
    result: Tensor = criterion(*arguments, **contrasted)
    return result


def oracle_losses(name: str, problem: Problem, *, normalize: bool = True) -> Tensor:
    """Each anchor's loss by the literal formulas, views as rows."""
    n = len(problem.embeddings)
    labels = torch.arange(n) if name == "infonce" else problem.labels
    rows, row_labels = _rows(problem.embeddings, labels, unlabelled_from=10_000)
    if normalize:
        rows = unit(rows, dim=1)
    losses = equations.set_losses if name in OVER_SETS else partial(equations.anchor_losses, PAIR_LOSSES[name])
    if problem.keys is None:
        return losses(rows, row_labels, problem.temperature)
    assert problem.key_labels is not None
    keys, key_labels = _rows(problem.keys, problem.key_labels, unlabelled_from=20_000)
    return losses(
        rows,
        row_labels,
        problem.temperature,
        keys=unit(keys, dim=1) if normalize else keys,
        key_labels=key_labels,
        anchor_index=None if problem.anchor_index is None else problem.anchor_index.flatten(),
    )


def oracle_loss(name: str, problem: Problem, *, normalize: bool = True, reduction: str = "mean") -> Tensor:
    """The reduced loss: the mean is over the anchors that have a positive."""
    losses = oracle_losses(name, problem, normalize=normalize)
    if reduction == "none":
        return losses.view(problem.embeddings.shape[:-1])
    if reduction == "sum":
        return losses.sum()
    has_positive = [_has_positive(name, problem, i) for i in range(len(losses))]
    return losses.sum() / max(1, sum(has_positive))


def _has_positive(name: str, problem: Problem, row: int) -> bool:
    views = problem.embeddings.shape[1] if problem.embeddings.ndim == 3 else 1
    image = row // views
    label = image if name == "infonce" else int(problem.labels[image])
    if problem.keys is None:
        labels = list(range(len(problem.embeddings))) if name == "infonce" else problem.labels.tolist()
        others = [j for j, other in enumerate(labels) if other == label and j != image and label != -1]
        return views > 1 or bool(others)
    assert problem.key_labels is not None
    key_views = problem.keys.shape[1] if problem.keys.ndim == 3 else 1
    itself = -1 if problem.anchor_index is None else int(problem.anchor_index.flatten()[row])
    key_rows = [k for k in problem.key_labels.tolist() for _ in range(key_views)]
    return any(k == label and label != -1 and j != itself for j, k in enumerate(key_rows))


def _rows(embeddings: Tensor, labels: Tensor, *, unlabelled_from: int) -> tuple[Tensor, Tensor]:
    views = embeddings.shape[1] if embeddings.ndim == 3 else 1
    own = torch.where(labels == -1, unlabelled_from + torch.arange(len(labels)), labels.long())
    return embeddings.reshape(-1, embeddings.shape[-1]), own.repeat_interleave(views)


def problems() -> dict[str, Problem]:
    """Problems of odd shapes that together use every argument. Float64."""
    generator = torch.Generator().manual_seed(1)
    normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    labels = torch.tensor([3, 0, 3, 7, -1, 0, 3, 3, 9, -1, 0, 7, 3])  # a singleton (9), two without label
    key_labels = torch.tensor([0, 3, -1, 3, 7, 0, 0, 5, 3, -1, 7, 11, 3, 3, 1, 2, 0])
    n, m, d = len(labels), len(key_labels), 5
    anchor_index = torch.randint(-1, m, (n,), generator=generator)
    return {
        "rows": Problem(normal(n, d), labels),
        "views": Problem(normal(n, 3, d), labels),
        "one class": Problem(normal(7, d), torch.full((7,), 4)),
        "large class": Problem(normal(23, d), torch.tensor([1] * 20 + [2] * 2 + [3])),
        "keys": Problem(normal(n, d), labels, normal(m, d), key_labels),
        "keys that hold the anchors": Problem(normal(n, d), labels, normal(m, d), key_labels, anchor_index),
        "views and key views": Problem(normal(n, 2, d), labels, normal(m, 2, d), key_labels),
        "one-hot rows": Problem(torch.eye(d, dtype=torch.float64)[torch.arange(n) % d] * 3, labels),
        "one dimension": Problem(normal(n, 1), labels),
        # Past the range of the symmetric tiles, also in float64.
        "small temperature": Problem(normal(n, d), labels, temperature=0.002),
        # Small enough to enumerate all sets of positives.
        "few views": Problem(normal(5, 2, d), labels[2:7]),
        "few views and key views": Problem(normal(4, 2, d), labels[:4], normal(6, 2, d), key_labels[:6]),
    }


PROBLEMS = problems()


def suits(name: str, problem: Problem) -> bool:
    """InfoNCE needs views, or keys that show its images; the oracle of a loss over sets enumerates them."""
    if name in OVER_SETS:
        views = problem.embeddings if problem.keys is None else problem.keys
        return views.ndim == 2 or len(views) <= 6
    return name != "infonce" or problem.keys is not None or problem.embeddings.ndim == 3


CASES = [(loss, case) for loss in (*PLAIN, *OVER_SETS) for case, problem in PROBLEMS.items() if suits(loss, problem)]
