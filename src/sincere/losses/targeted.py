"""A loss with a target for each class: points spread over the sphere, which the classes are pulled to.

Li et al. 2022, "Targeted Supervised Contrastive Learning for Long-Tailed Recognition",
https://arxiv.org/abs/2111.13998.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sincere import checks, host
from sincere.errors import InputValueError
from sincere.loss_entry import Formula
from sincere.losses.distributed.collectives import GatherRows, Group, ScaledGradient, TotalLoss, gather
from sincere.losses.distributed.global_batch import share_facts
from sincere.losses.distributed.groups import check_group, default_as_none, find_group
from sincere.losses.inputs import (
    FIRST_UNLABELLED,
    check_temperature,
    count_views,
    statistics_dtype,
    without_ignored,
)
from sincere.losses.kernels.normalize import unit_rows
from sincere.losses.kernels.select import weighted_losses
from sincere.losses.label_inputs import check_label_options
from sincere.losses.label_sets import LabelOptions
from sincere.losses.loss_module import LossModule
from sincere.losses.options import DEFAULTS, KERNELS, REDUCTIONS, Kernel, Reduction
from sincere.losses.pairs import Contrast, contrast_with_keys
from sincere.losses.targets import best_assignment, uniform_targets

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

MOMENTUM = 0.9  # of the class means, as in the authors' code


def targeted_loss(
    embeddings: Tensor,
    labels: Tensor,
    *,
    targets: Tensor,
    target_weight: float = 1.0,
    n_positives: int = 6,
    positives_in_denominator: bool = True,
    draw: int | None = None,
    temperature: float | Tensor = 0.1,
    ignore_index: int = -100,
    normalize: bool = True,
    reduction: Reduction = "mean",
    kernel: Kernel = "auto",
    group: ProcessGroup | Literal["world"] | None = None,
) -> Tensor:
    """Return the targeted contrastive loss of Li et al.: the target of its class is one more positive of each anchor.

    Paper: https://arxiv.org/abs/2111.13998. With P_i up to `n_positives` positives of anchor i, drawn at random, t the
    target of its class, and D_i the log-sum-exp over all other items and all targets, the loss of an anchor is

        (sum_p (D_i - s_ip) + target_weight (D_i - s_it)) / (|P_i| + 1)

    The targets of other classes are negatives. So that classes with few images have as much room as those with many:
    for imbalanced data. `TargetedLoss` finds the targets and decides which class has which.

    Args:
        embeddings: (n, d), or (n, views, d) for several augmented views of each image; any float type.
        labels: (n,), any integer type, 0 to C - 1; -1 means "no label", as in `sincere_loss`: no target, either.
        targets: (C, d): the target of each class. Takes no gradient.
        target_weight: Weight of the target, at least 0; 1 for that of any other positive.
        n_positives: Positives that are drawn for each anchor besides the target, at least 1.
        positives_in_denominator: False for SINCERE's denominator: the positive at hand, negatives, and other targets.
        draw: Number that decides which positives are drawn; None takes one from torch's global generator.
        temperature: Positive number, or a tensor with one element, which may take a gradient.
        ignore_index: Rows with this label are neither anchor nor key.
        normalize: Scale embeddings and targets to unit length.
        reduction: "mean" over the anchors that have a positive, "sum", or "none" for each anchor's loss.
        kernel: "auto", "dense" or "tiled", as in `sincere_loss`.
        group: The processes whose batch it is, as in `sincere_loss`: value and gradients are those of one process that
            holds all of it. The draw is that of the first process.

    Raises:
        InputTypeError, InputValueError: `TypeError`s and `ValueError`s that say what was expected and what came.

    Example:
        >>> z, labels = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]), torch.tensor([0, 0, 1])
        >>> targets = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
        >>> targeted_loss(z, labels, targets=targets, temperature=1.0)  # log(2 e + 2 / e) - 1 for all but the last
        tensor(0.9106)
    """
    caller = "targeted_loss"
    checks.choice(caller, "reduction", reduction, REDUCTIONS)
    checks.choice(caller, "kernel", kernel, KERNELS)
    checks.flag(caller, "normalize", normalize)
    formula = Formula(
        positives_in_denominator=checks.flag(caller, "positives_in_denominator", positives_in_denominator),
        n_positives=checks.count(caller, "n_positives", n_positives, least=1),
        target_weight=checks.number(caller, "target_weight", target_weight, least=0.0),
    )
    number = int(torch.randint(2**31, ())) if draw is None else checks.count(caller, "draw", draw, least=0)
    options = check_label_options(caller, {**DEFAULTS, "ignore_index": ignore_index})
    classes = check_classes(caller, embeddings, labels, targets, options)
    processes = find_group(caller, {**DEFAULTS, "group": group})
    # A compiler cannot trace what processes exchange: the graph breaks once around it.
    share = torch.compiler.disable(share_rows) if torch.compiler.is_compiling() else share_rows
    batch = share(caller, embeddings, classes, options, processes, number)
    contrast = _contrast(formula, batch, len(targets), options)
    # Of W = |P| + weight in the kernel's mean; the equation divides by |P| + 1.
    labelled = ((batch.own_ids < FIRST_UNLABELLED) & (batch.own_ids != ignore_index)).to(batch.dtype)
    others = (contrast.positive_counts - labelled).clamp_max(n_positives)
    scale = (others + formula.target_weight * labelled) / (others + labelled).clamp_min(1.0)
    if formula.target_weight == 0:
        contrast = replace(contrast, positive_counts=contrast.positive_counts - labelled)
    weights = None
    if reduction != "none":
        counted = (contrast.positive_counts > 0).to(batch.dtype)
        weights = counted * scale
        if reduction == "mean":
            n_counted = counted.sum()
            if processes is not None:
                dist.all_reduce(n_counted, group=batch.group)
            weights = weights / n_counted.clamp_min(1.0)
    keys = torch.cat([batch.all_rows, targets.detach().to(batch.all_rows)])
    t = check_temperature(caller, temperature, batch.dtype)
    t = t.to(keys.device) if isinstance(temperature, Tensor) else t
    losses = weighted_losses(batch.rows, keys, t, contrast, normalize, weights, kernel)
    if reduction == "none":
        losses = (losses * scale).view(embeddings.shape[:-1])
        each: Tensor = losses if processes is None else ScaledGradient.apply(losses, dist.get_world_size(batch.group))
        return each
    if processes is None:
        return losses
    total: Tensor = TotalLoss.apply(losses, batch.group)
    return total


@dataclass(frozen=True, eq=False)
class SharedRows:
    """The rows of this process among those of all, each view a row.

    Attributes:
        rows: This process's rows (n, d), zero where an image is ignored.
        all_rows: Those of all processes, in order of rank; their gradients flow back to the process they are from.
        ids: Class of each row of `all_rows`; one of its own for each image without a label.
        first: Position of this process's first row.
        draw: Number of the random draw.
        group: The processes; None for the default group, or without one.
    """

    rows: Tensor
    all_rows: Tensor
    ids: Tensor
    first: int
    draw: int
    group: Group

    @property
    def own_ids(self) -> Tensor:
        """Class of each of this process's rows."""
        return self.ids[self.first : self.first + len(self.rows)]

    @property
    def dtype(self) -> torch.dtype:
        """Type in which the loss is computed."""
        return self.rows.dtype


def check_classes(caller: str, embeddings: Tensor, labels: Tensor, targets: Tensor, options: LabelOptions) -> Tensor:
    """Return the labels of embeddings, int64, after a check of them and of the targets."""
    checks.float_rows(caller, "embeddings", embeddings)
    n, d = len(embeddings), embeddings.shape[-1]
    form = f"(n,) with n = {n} embeddings"
    classes = checks.integers(caller, "labels", labels, expected=(n,), form=form, like=embeddings)
    if checks.tensor(caller, "targets", targets).ndim != 2 or targets.shape[1] != d or not targets.is_floating_point():
        requirement = f"targets must be floating-point numbers of shape (C, d) with d = {d} as the embeddings have"
        raise InputValueError(checks.wording(caller, requirement, f"{targets.dtype} of shape {checks.shape(targets)}"))
    checks.same_device(caller, "targets", targets, embeddings)
    # Elsewhere this would wait for the device; a compiler cannot trace it.
    if host.reads_back(classes.device):
        wrong = ((classes < -1) | (classes >= len(targets))) & ~options.ignored(classes)
        if bool(wrong.any()):
            requirement = f"labels must be 0 to {len(targets) - 1}, a class with a target, or -1"
            raise InputValueError(checks.wording(caller, requirement, int(classes[wrong][0])))
    return classes


def share_rows(
    caller: str,
    embeddings: Tensor,
    classes: Tensor,
    options: LabelOptions,
    processes: ProcessGroup | None,
    draw: int = 0,
) -> SharedRows:
    """Return the rows of this process among those of all processes of a group, or alone."""
    n_views, dtype = count_views(embeddings), statistics_dtype(embeddings.dtype)
    rows = without_ignored(embeddings, options.ignored(classes), dtype)
    group = None if processes is None else default_as_none(processes)
    everyone, all_rows, first = classes, rows, 0
    if processes is not None:
        facts = {"d": embeddings.shape[-1], "views": n_views, "dtype size in bytes": dtype.itemsize}
        sizes, draw = share_facts(caller, facts, group, n=len(classes), draw=draw)
        everyone = gather(classes, sizes, group)
        all_rows = GatherRows.apply(rows, [size * n_views for size in sizes], group)
        first = sum(sizes[: dist.get_rank(group)]) * n_views
    # Each image without a label is a class of its own.
    alone = (everyone == -1) & ~options.ignored(everyone)
    ids = torch.where(alone, FIRST_UNLABELLED + torch.arange(len(everyone), device=everyone.device), everyone)
    return SharedRows(rows, all_rows, ids.repeat_interleave(n_views), first, draw, group)


def _contrast(formula: Formula, batch: SharedRows, n_targets: int, options: LabelOptions) -> Contrast:
    """Contrast the rows of this process with those of all processes and the targets."""
    device = batch.ids.device
    key_ids = torch.cat([batch.ids, torch.arange(n_targets, device=device)])
    itself = batch.first + torch.arange(len(batch.rows), device=device)
    shared: dict[str, Any] = {"n_views": 1, "n_key_views": 1, "dtype": batch.dtype, "options": options}
    contrast = contrast_with_keys(formula, batch.own_ids, key_ids, itself, **shared)
    return replace(contrast, draw=batch.draw, first_anchor=batch.first, n_targets=n_targets)


class TargetedLoss(LossModule):
    """`targeted_loss` as a module that finds the targets and matches them to classes; https://arxiv.org/abs/2111.13998.

    Targets are as far from each other as they can be, `sincere.losses.targets.uniform_targets`. Each call in training
    mode moves the running means of the classes in the batch and matches targets to means anew, such that the sum of
    their similarities is the largest; in evaluation mode nothing changes. All of it is in `state_dict()`, so that
    training resumes exactly. Matching takes O(C^2) time for C classes, on the CPU, once most classes keep their target.

    Attributes:
        targets: (C, dim), in any order.
        assignment: (C,): the row of `targets` that each class has.
        means: (C, dim): running mean of the embeddings of each class, of unit length; 0 for one that was not seen yet.
        prices: (C,): where the next matching starts.

    Example:
        >>> criterion = TargetedLoss(n_classes=4, dim=4)
        >>> embeddings = torch.eye(4).repeat_interleave(2, dim=0)
        >>> _ = criterion(embeddings, torch.arange(8) // 2)
        >>> sorted(criterion.assignment.tolist())
        [0, 1, 2, 3]
    """

    function = staticmethod(targeted_loss)
    option_names = (
        *("temperature", "target_weight", "n_positives", "positives_in_denominator", "draw"),
        *("ignore_index", "normalize", "reduction", "kernel", "group"),
    )
    targets: Tensor
    assignment: Tensor
    means: Tensor
    prices: Tensor

    def __init__(
        self,
        temperature: float | Tensor = 0.1,
        *,
        n_classes: int,
        dim: int,
        target_weight: float = 1.0,
        n_positives: int = 6,
        positives_in_denominator: bool = True,
        draw: int | None = None,
        ignore_index: int = -100,
        normalize: bool = True,
        reduction: Reduction = "mean",
        kernel: Kernel = "auto",
        group: ProcessGroup | Literal["world"] | None = None,
    ) -> None:
        """Check and hold what every call of the loss uses, and find the targets.

        Args:
            temperature: Divides the similarities. A positive number, or an `nn.Parameter` with one element to learn it.
            n_classes: Number of classes, at least 2.
            dim: Dimension of an embedding.
            target_weight: Weight of the target, at least 0; 1 for that of any other positive.
            n_positives: Positives that are drawn for each anchor besides the target, at least 1.
            positives_in_denominator: False for SINCERE's denominator.
            draw: Number that decides which positives are drawn; None takes one from torch's global generator at each
                call.
            ignore_index: Rows with this label are neither anchor nor key.
            normalize: Scale embeddings to unit length.
            reduction: "mean" over the anchors that have a positive, "sum" or "none".
            kernel: "auto", "dense" or "tiled", as in `sincere_loss`.
            group: The processes whose batch it is, as in `sincere_loss`; all have the same means and targets.
        """
        super().__init__(temperature)
        caller = type(self).__name__
        self.target_weight = checks.number(caller, "target_weight", target_weight, least=0.0)
        self.n_positives = checks.count(caller, "n_positives", n_positives, least=1)
        self.positives_in_denominator = checks.flag(caller, "positives_in_denominator", positives_in_denominator)
        self.draw = None if draw is None else checks.count(caller, "draw", draw, least=0)
        self.ignore_index = check_label_options(caller, {**DEFAULTS, "ignore_index": ignore_index}).ignore_index
        self.normalize = checks.flag(caller, "normalize", normalize)
        self.reduction = checks.choice(caller, "reduction", reduction, REDUCTIONS)
        self.kernel = checks.choice(caller, "kernel", kernel, KERNELS)
        check_group(caller, {**DEFAULTS, "group": group})
        self.group = group
        targets = uniform_targets(n_classes, dim, caller=caller)
        self.register_buffer("targets", targets.to(torch.get_default_dtype()))
        self.register_buffer("assignment", torch.arange(len(targets)))
        self.register_buffer("means", torch.zeros_like(self.targets))
        self.register_buffer("prices", torch.zeros(len(targets)))

    if TYPE_CHECKING:  # nn.Module hides what forward takes and returns

        def __call__(self, embeddings: Tensor, labels: Tensor) -> Tensor:
            """Return the loss."""

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Return the loss; in training mode, after means and targets were updated.

        Args:
            embeddings: (n, dim), or (n, views, dim) for several augmented views of each image; any float type.
            labels: (n,), any integer type, 0 to C - 1; -1 means "no label".
        """
        if self.training:
            update = torch.compiler.disable(self.update) if torch.compiler.is_compiling() else self.update
            update(embeddings, labels)
        return targeted_loss(embeddings, labels, targets=self.class_targets(), **self.options())

    def class_targets(self) -> Tensor:
        """Return the target of each class (C, dim)."""
        return self.targets[self.assignment]

    @torch.no_grad()
    def update(self, embeddings: Tensor, labels: Tensor) -> None:
        """Move the means of the classes in a batch, of all processes, and match targets to means anew."""
        caller = type(self).__name__
        options = LabelOptions(ignore_index=self.ignore_index)
        classes = check_classes(caller, embeddings, labels, self.targets, options)
        processes = find_group(caller, {**DEFAULTS, "group": self.group})
        # Every process has the rows of all, and computes the same.
        batch = share_rows(caller, embeddings, classes, options, processes)
        rows = unit_rows(batch.all_rows)[0] if self.normalize else batch.all_rows
        members = (batch.ids == torch.arange(len(self.means), device=batch.ids.device)[:, None]).to(rows.dtype)
        if 0 <= self.ignore_index < len(members):
            members[self.ignore_index] = 0.0
        with torch.autocast(rows.device.type, enabled=False):
            now = nn.functional.normalize(members @ rows, dim=1).to(self.means)
        moved = nn.functional.normalize(MOMENTUM * self.means + (1 - MOMENTUM) * now, dim=1)
        self.means.copy_(torch.where(members.any(dim=1)[:, None], moved, self.means))
        if not bool(torch.isfinite(self.means).all()):
            return  # the loss is not finite either: whoever reads it decides what to do
        scores = (self.means.cpu().double() @ self.targets.cpu().double().T).numpy()
        assignment, prices = best_assignment(scores, self.prices.cpu().double().numpy())
        self.assignment.copy_(torch.from_numpy(assignment))
        self.prices.copy_(torch.from_numpy(prices))

    def extra_repr(self) -> str:
        """Return the hyper-parameters and options for `print(module)`."""
        sizes = f"n_classes={len(self.targets)}, dim={self.targets.shape[1]}"
        return f"{sizes}, {super().extra_repr()}"
