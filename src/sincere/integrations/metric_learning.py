"""The losses with the call shape of pytorch-metric-learning, for its trainers, miners, testers and memory.

    loss_func = ContrastiveMetricLoss("sincere", temperature=0.1)
    loss = loss_func(embeddings, labels, miner(embeddings, labels))
    memory = CrossBatchMemory(loss_func, embedding_size=128, memory_size=4096)

Documentation of the library: https://kevinmusgrave.github.io/pytorch-metric-learning
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from sincere import checks, host
from sincere.errors import InputTypeError, InputValueError, MissingPackageError, UnsupportedError, missing_package
from sincere.integrations.named_loss import NamedLoss
from sincere.loss_catalog import DEFAULT_LOSS
from sincere.loss_entry import Formula
from sincere.losses.inputs import check_labelled_loss, check_temperature, statistics_dtype
from sincere.losses.kernels.dense import masked_losses, similarities

try:
    from pytorch_metric_learning import distances, losses, reducers
    from pytorch_metric_learning.utils.loss_and_miner_utils import convert_to_pairs
except ModuleNotFoundError as error:
    raise MissingPackageError(missing_package("sincere.integrations.metric_learning", error)) from error

UNLABELLED = -1


class ContrastiveMetricLoss(losses.BaseMetricLossFunction):  # type: ignore[misc]
    """A loss of this package as a loss of pytorch-metric-learning.

    Called as `loss(embeddings, labels, indices_tuple=None, ref_emb=None, ref_labels=None)`. Without `indices_tuple`,
    the value is that of the function of the same name, `ref_emb` being its keys. With the pairs or triplets of a miner,
    an anchor has exactly these positives and negatives:

        P_i = {p: (i, p) is a positive pair}    N_i = {n: (i, n) is a negative pair}
        loss_i = mean over p in P_i of log(e^s_ip + sum over n in N_i of e^s_in) - s_ip    (SINCERE)

    and the loss is the mean over the anchors that have a positive. A pair that occurs twice counts once. Labels mean
    what they mean in the function: an item labelled -1 has no positive, one labelled `ignore_index` takes no part,
    whatever pairs a miner or a memory makes of them. Pairs are n x m masks, so that time and memory are O(n m). Losses
    that choose among the positives, or weigh them in another way, take neither pairs nor a reducer.

    Args:
        loss: Name of the loss in `sincere.loss_catalog.LOSSES`, one that takes labels.
        temperature: Divides the cosine similarities. An `nn.Parameter` with one element is learned if the loss has an
            optimiser.
        reducer: A reducer of the library for the losses of the anchors that have a positive; their mean without one.
        embedding_regularizer: A regularizer of the library for the embeddings.
        embedding_reg_weight: Its weight.
        collect_stats: Whether the library collects statistics.
        **options: Further arguments of the loss: `epsilon`, `normalize`, `kernel`. `normalize=False` compares by dot
            products; there are no other distances.

    Raises:
        InputTypeError, InputValueError: There is no such loss or option, or a value is out of range.
        UnsupportedError: The loss takes no reducer.
    """

    def __init__(
        self,
        loss: str = DEFAULT_LOSS,
        *,
        temperature: float | Tensor = 0.1,
        reducer: Any = None,
        embedding_regularizer: Any = None,
        embedding_reg_weight: float = 1.0,
        collect_stats: bool | None = None,
        **options: Any,
    ) -> None:
        caller = type(self).__name__
        check_labelled_loss(caller, loss)
        if "reduction" in options:
            requirement = "reduction must be left out, because reducer takes its place"
            raise InputTypeError(checks.wording(caller, requirement, repr(options["reduction"])))
        super().__init__(
            reducer=reducer,
            embedding_regularizer=embedding_regularizer,
            embedding_reg_weight=embedding_reg_weight,
            collect_stats=collect_stats,
        )
        self.named_loss = NamedLoss(caller, loss, temperature, options)
        self.reduces_anchors = reducer is not None
        if self.reduces_anchors:
            self._formula()

    def get_default_distance(self) -> Any:
        """Return what embeddings are compared by, for the library's records."""
        return distances.CosineSimilarity()

    def get_default_reducer(self) -> Any:
        """Return what reduces a loss that is one number already."""
        return reducers.MeanReducer()

    def compute_loss(
        self,
        embeddings: Tensor,
        labels: Tensor | None,
        indices_tuple: tuple[Tensor, ...] | None,
        ref_emb: Tensor,
        ref_labels: Tensor | None,
    ) -> dict[str, dict[str, Any]]:
        """Return the loss in the library's form; `forward` calls it.

        Raises:
            InputTypeError, InputValueError: There are neither labels nor pairs, or they do not fit the embeddings.
            UnsupportedError: A reducer, pairs or references were given to a loss that does not take them.
        """
        caller, criterion = self.named_loss.caller, self.named_loss.criterion
        takes_keys = "keys" in inspect.signature(criterion.forward).parameters
        for argument, rows in (("embeddings", embeddings), ("ref_emb", ref_emb)):
            if checks.float_rows(caller, argument, rows).ndim != 2:
                raise InputValueError(checks.wording(caller, f"{argument} must have shape (n, d)", checks.shape(rows)))
        if indices_tuple is None and (labels is None or ref_labels is None):
            requirement = "labels must be given where there is no indices_tuple, and ref_labels with ref_emb"
            raise InputTypeError(checks.wording(caller, requirement, None))
        itself = ref_emb is embeddings and ref_labels is labels
        if not itself and not takes_keys:
            raise UnsupportedError(f"{caller}: {self.named_loss.name} takes no ref_emb; leave it out")
        if indices_tuple is None and not self.reduces_anchors:
            keys = {} if itself else {"keys": ref_emb, "key_labels": ref_labels}
            if ref_labels is labels and not itself:  # for the library, row i of both is then the same item
                keys["anchor_index"] = torch.arange(len(embeddings), device=embeddings.device)
            loss = criterion(embeddings, labels, **keys)
            return _result(loss, None, "already_reduced")
        formula = self._formula()
        if indices_tuple is None:
            positives, negatives = _masks_of_labels(labels, ref_labels, ref_labels is labels)
        else:
            pairs = convert_to_pairs(indices_tuple, labels, ref_labels)
            positives, negatives = self._masks_of_pairs(pairs, len(embeddings), len(ref_emb), embeddings.device)
        if labels is not None and ref_labels is not None:
            positives, negatives = self._without_unlabelled(positives, negatives, labels, ref_labels)
        losses = self._anchor_losses(embeddings, None if itself else ref_emb, positives, negatives, formula)
        has_positive = positives.any(dim=1)
        if self.reduces_anchors:
            anchors = has_positive.nonzero().squeeze(1)
            return _result(losses[anchors], anchors, "element") if len(anchors) else self.zero_losses()
        return _result(losses.sum() / has_positive.sum().clamp_min(1), None, "already_reduced")

    def _anchor_losses(
        self, embeddings: Tensor, keys: Tensor | None, positives: Tensor, negatives: Tensor, formula: Formula
    ) -> Tensor:
        """Return the loss of each anchor over its own positives and negatives, 0 without a positive."""
        criterion: Any = self.named_loss.criterion
        dtype = statistics_dtype(
            embeddings.dtype if keys is None else torch.promote_types(embeddings.dtype, keys.dtype)
        )
        temperature = check_temperature(self.named_loss.caller, criterion.temperature, dtype)
        in_denominator = positives | negatives if formula.positives_in_denominator else negatives
        with torch.autocast(embeddings.device.type, enabled=False):
            rows, key_rows = embeddings.to(dtype), None if keys is None else keys.to(dtype)
            s = similarities(rows, key_rows, temperature, normalize=criterion.normalize)
            return masked_losses(s, positives, ~in_denominator, positives.sum(dim=1).to(dtype), formula)

    def _formula(self) -> Formula:
        entry, criterion = self.named_loss.entry, self.named_loss.criterion
        own = {parameter.name: getattr(criterion, parameter.name) for parameter in entry.hyper_parameters}
        formula = entry.formula(**own)
        caller, name = self.named_loss.caller, self.named_loss.name
        if formula is None or not formula.is_plain:
            raise UnsupportedError(f"{caller}: {name} takes labels, neither pairs nor a reducer")
        if getattr(criterion, "group", None) is not None:
            remedy = "leave out the group, or the miner, the memory and the reducer"
            raise UnsupportedError(f"{caller}: group is not supported with pairs or a reducer; {remedy}")
        return formula

    def _without_unlabelled(
        self, positives: Tensor, negatives: Tensor, labels: Tensor, ref_labels: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the masks without positives of unlabelled anchors, and without items that are to be ignored."""
        criterion: Any = self.named_loss.criterion
        taking_part = (labels != criterion.ignore_index)[:, None] & (ref_labels != criterion.ignore_index)
        return positives & taking_part & (labels != UNLABELLED)[:, None], negatives & taking_part

    def _masks_of_pairs(self, pairs: tuple[Tensor, ...], n: int, m: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return which pairs a miner has made positive and which negative (n, m)."""
        positives = torch.zeros(n, m, dtype=torch.bool, device=device)
        negatives = torch.zeros_like(positives)
        anchors, positive_index, negative_anchors, negative_index = (index.to(device).long() for index in pairs)
        positives[anchors, positive_index] = True
        negatives[negative_anchors, negative_index] = True
        if host.reads_back(device):  # elsewhere it would wait for the device
            n_both = int((positives & negatives).sum())
            if n_both:
                requirement = "indices_tuple must make a pair positive or negative"
                raise InputValueError(checks.wording(self.named_loss.caller, requirement, f"{n_both} that are both"))
        return positives, negatives


class CrossBatchMemory(losses.CrossBatchMemory):  # type: ignore[misc]
    """The library's memory of earlier batches (https://arxiv.org/abs/1912.06798), which accepts our losses, too.

    It is the library's class: the original knows the losses that it accepts by the names of their classes.
    """

    @staticmethod
    def supported_losses() -> list[str]:
        """Return the names of the classes that the memory accepts."""
        return [*losses.CrossBatchMemory.supported_losses(), ContrastiveMetricLoss.__name__]


def _masks_of_labels(labels: Any, ref_labels: Any, itself: bool) -> tuple[Tensor, Tensor]:
    """Return which pairs are positive and which negative (n, m)."""
    same = (labels[:, None] == ref_labels) & (labels[:, None] != UNLABELLED)
    others = torch.ones_like(same)
    if itself:
        others.fill_diagonal_(False)
    return same & others, ~same & others


def _result(losses: Tensor, indices: Tensor | None, reduction_type: str) -> dict[str, dict[str, Any]]:
    """Return losses in the form that the library's reducers take."""
    return {"loss": {"losses": losses, "indices": indices, "reduction_type": reduction_type}}
