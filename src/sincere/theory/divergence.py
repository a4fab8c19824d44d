"""How far each class is from the rest, as a lower bound read off held-out embeddings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sincere import checks
from sincere.errors import InputValueError
from sincere.losses.functional import sincere_loss
from sincere.records.estimates import Estimate
from sincere.theory.bounds import divergence_cap, divergence_lower_bound

CALLER = "class_divergence_bounds"
RESAMPLED_VALUES = 1_000_000  # at a time: bounds the memory


@dataclass(frozen=True)
class ClassDivergence:
    """A lower bound on the symmetrised KL divergence J between one class and the rest, in nats.

    Attributes:
        label: The class.
        n_anchors: Held-out items of the class; each is the anchor once.
        n_noise: Items of other classes that each anchor was compared with, |N|.
        loss: Mean SINCERE loss of the anchors, an estimate of the ideal loss at |N|.
        bound: The tighter bound (|N| + 1) / |N| (log(|N| + 1) - loss), with a 95% interval over anchors.
        paper_bound: The paper's log|N| - loss, never above it.
        cap: The largest bound that |N| items can show. Near it, only more noise items could tell more.
    """

    label: int
    n_anchors: int
    n_noise: int
    loss: float
    bound: Estimate
    paper_bound: float
    cap: float


def class_divergence_bounds(
    embeddings: Tensor,
    labels: Tensor,
    *,
    temperature: float = 0.1,
    n_noise: int | None = None,
    normalize: bool = True,
    n_resamples: int = 1000,
    seed: int = 0,
) -> list[ClassDivergence]:
    """Return, for each class in ascending order, how far it provably is from the other classes taken together.

    What is guaranteed: for any score function, in particular similarity to an anchor, the ideal loss L obeys
    J >= (|N| + 1) / |N| (log(|N| + 1) - L). What is estimated: L, by the mean over the held-out anchors, their partners
    and one set of noise items. The interval resamples anchors only (resampling items would make duplicates their own
    partners), so it does not cover the chance of having drawn these noise items; all anchors share them. The
    embeddings must be held out: on the data a model was trained on, the loss is too low and the bound no bound. The
    noise distribution is the mix of the other classes as they come in `labels`.

    Time O(n^2 d), memory O(n d): 50,000 x 128 embeddings take seconds.

    Args:
        embeddings: (n, d), held out.
        labels: (n,), integers. Items labelled -1 are left out.
        temperature: Divides the score s = z . z' / temperature. Any value gives a valid bound; the training
            temperature, or the one with the largest bound on other data, is a good choice.
        n_noise: |N|, drawn anew for each class. By default all items of other classes.
        normalize: Scale embeddings to unit length.
        n_resamples: Bootstrap resamples of the anchors.
        seed: Random seed of the noise draws and of the resamples.

    Raises:
        InputTypeError, InputValueError: Also for a class with fewer than 2 items, fewer than 2 classes, or more noise
            items than there are.

    Example:
        >>> z = torch.eye(2).repeat_interleave(50, dim=0)
        >>> first, second = class_divergence_bounds(z, torch.arange(100) // 50)
        >>> first.n_noise, round(first.bound.estimate, 2), round(first.cap, 2)
        (50, 4.01, 4.01)
    """
    checks.float_rows(CALLER, "embeddings", embeddings)
    if embeddings.ndim != 2:
        raise InputValueError(checks.wording(CALLER, "embeddings must have shape (n, d)", checks.shape(embeddings)))
    n = len(embeddings)
    form = f"(n,) with n = {n} embeddings"
    labels = checks.integers(CALLER, "labels", labels, expected=(n,), form=form, like=embeddings)
    checks.number(CALLER, "temperature", temperature, above=0.0)
    checks.count(CALLER, "n_resamples", n_resamples, least=1)
    checks.count(CALLER, "seed", seed, least=0)
    if not bool(embeddings.isfinite().all()):
        raise InputValueError(checks.wording(CALLER, "embeddings must be finite", "NaN or infinity"))
    embeddings, labels = embeddings[labels != -1].detach(), labels[labels != -1]
    classes, sizes = labels.unique(return_counts=True)
    _check_classes(classes, sizes, n_noise)
    if n_noise is None:
        with torch.no_grad():
            losses = sincere_loss(
                embeddings,
                labels,
                temperature=temperature,
                ignore_index=-1,  # none of these labels
                normalize=normalize,
                reduction="none",
                kernel="tiled",
            )
    else:
        losses = _losses_with_drawn_noise(embeddings, labels, classes, n_noise, seed, temperature, normalize)
    bounds = []
    for label, size in zip(classes.tolist(), sizes.tolist(), strict=True):
        noise = n_noise or len(labels) - size
        loss = _bootstrap_mean(losses[labels == label].cpu().numpy(), n_resamples, seed)
        estimate, low, high = (divergence_lower_bound(x, noise) for x in (loss.estimate, loss.high, loss.low))
        paper = divergence_lower_bound(loss.estimate, noise, tighter=False)
        cap = divergence_cap(noise)
        bounds.append(ClassDivergence(label, size, noise, loss.estimate, Estimate(estimate, low, high), paper, cap))
    return bounds


@torch.no_grad()
def _losses_with_drawn_noise(
    embeddings: Tensor, labels: Tensor, classes: Tensor, n_noise: int, seed: int, temperature: float, normalize: bool
) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    losses = torch.empty(len(labels), dtype=torch.promote_types(embeddings.dtype, torch.float32))
    for label in classes:
        members, others = ((labels == label).nonzero()[:, 0], (labels != label).nonzero()[:, 0])
        drawn = others[torch.randperm(len(others), generator=generator)[:n_noise].to(others.device)]
        items = torch.cat([members, drawn])
        each = sincere_loss(
            embeddings[members],
            labels[members],
            keys=embeddings[items],
            key_labels=labels[items],
            anchor_index=torch.arange(len(members), device=labels.device),
            temperature=temperature,
            normalize=normalize,
            reduction="none",
        )
        losses[members.cpu()] = each.to(losses.dtype).cpu()
    return losses.to(labels.device)


def _bootstrap_mean(values: NDArray[np.floating], n_resamples: int, seed: int) -> Estimate:
    """Return the mean with its 95% percentile interval, by NumPy alone: the theory needs no SciPy.

    The same numbers as `sincere.statistics.bootstrap.interval` of one run.
    """
    values = values.astype(np.float64)
    n, generator = len(values), np.random.default_rng(seed)
    at_once = max(1, RESAMPLED_VALUES // n)
    drawn = np.concatenate(
        [
            values[generator.integers(0, n, (min(at_once, n_resamples - start), n))].mean(axis=-1)
            for start in range(0, n_resamples, at_once)
        ]
    )
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Estimate(*(round(float(x), 12) + 0.0 for x in (values.mean(), low, high)))


def _check_classes(classes: Tensor, sizes: Tensor, n_noise: int | None) -> None:
    if len(classes) < 2:
        raise InputValueError(checks.wording(CALLER, "labels must hold at least 2 classes", len(classes)))
    smallest = int(sizes.argmin())
    if sizes[smallest] < 2:
        got = f"{int(sizes[smallest])} of class {int(classes[smallest])}"
        remedy = "Leave such classes out: an anchor needs a partner"
        raise InputValueError(checks.wording(CALLER, "every class must have at least 2 items", got, remedy))
    if n_noise is not None:
        available = int(sizes.sum() - sizes.max())
        if checks.count(CALLER, "n_noise", n_noise, least=1) > available:
            requirement = f"n_noise must be at most {available}, the items outside the largest class"
            raise InputValueError(checks.wording(CALLER, requirement, n_noise))
