"""A batch whose rows are spread over the processes of a group."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from sincere import checks
from sincere.catalog import Formula
from sincere.errors import InputValueError
from sincere.losses.distributed.collectives import Group, gather, sizes_of
from sincere.losses.inputs import check_labels, count_views, statistics_dtype
from sincere.losses.pairs import Contrast, contrast_batch


@dataclass(frozen=True, eq=False)
class GlobalBatch:
    """Who is a positive of whom among the rows of all processes, and where they are.

    Attributes:
        contrast: Every row of every process against all of them, in order of rank.
        sizes: Number of rows of each process.
        group: The processes.
    """

    contrast: Contrast
    sizes: list[int]
    group: Group

    def rows_of(self, rank: int) -> slice:
        """Return the positions of a process's rows among all."""
        start = sum(self.sizes[:rank])
        return slice(start, start + self.sizes[rank])

    @property
    def own(self) -> slice:
        """Positions of this process's rows."""
        return self.rows_of(dist.get_rank(self.group))


def share_batch(
    caller: str, formula: Formula, embeddings: Tensor, labels: Tensor, group: Group
) -> tuple[Tensor, GlobalBatch]:
    """Return this process's rows and the batch of all processes, whose labels are exchanged.

    Raises:
        InputTypeError, InputValueError: An argument is wrong, or processes disagree on d, views or type.
    """
    labels = check_labels(caller, embeddings, labels)
    n_views, dtype = count_views(embeddings), statistics_dtype(embeddings.dtype)
    _check_agreement(
        caller, {"d": embeddings.shape[-1], "views": n_views, "dtype size in bytes": dtype.itemsize}, group, embeddings
    )
    sizes = sizes_of(len(embeddings), group, embeddings.device)
    contrast = contrast_batch(formula, gather(labels, sizes, group), n_views=n_views, dtype=dtype)
    rows = embeddings.flatten(0, -2).to(dtype)
    return rows, GlobalBatch(contrast, [size * n_views for size in sizes], group)


def _check_agreement(caller: str, values: dict[str, int], group: Group, like: Tensor) -> None:
    """Raise, in every process, unless all of them have the same values."""
    table = torch.tensor([list(values.values())], device=like.device)
    everyone = gather(table, [1] * dist.get_world_size(group), group)
    for name, column in zip(values, everyone.T, strict=True):
        if bool((column != column[0]).any()):
            requirement = f"every process must have the same {name}"
            raise InputValueError(checks.wording(caller, requirement, column.tolist()))
