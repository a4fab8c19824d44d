"""Our losses under the real pytorch-metric-learning: its call shape, miners, reducers, memory, trainer and tester."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
from pytorch_metric_learning import losses, miners, reducers, regularizers
from pytorch_metric_learning.samplers import MPerClassSampler
from pytorch_metric_learning.testers import GlobalEmbeddingSpaceTester
from pytorch_metric_learning.trainers import MetricLossOnly
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.loss_and_miner_utils import get_all_pairs_indices
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.utils.data import TensorDataset

from sincere import sincere_loss, supcon_loss
from sincere.errors import InputTypeError, InputValueError, UnsupportedError
from sincere.integrations.metric_learning import ContrastiveMetricLoss, CrossBatchMemory
from sincere.loss_catalog import LOSSES
from tests.losses.problems import PAIR_LOSSES, PAIRWISE

Pairs = tuple[Tensor, ...]
N, M, D = 24, 40, 6
WITHOUT_PAIRS = [name for name, loss in LOSSES.items() if loss.needs_labels and not loss.is_plain]


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    return torch.randn(N, D, dtype=torch.float64, requires_grad=True), torch.arange(N) % 5


@pytest.fixture
def references() -> tuple[Tensor, Tensor]:
    return torch.randn(M, D, dtype=torch.float64, requires_grad=True), torch.arange(M) % 6


def random_pairs(embeddings: Tensor, labels: Tensor, keys: Tensor, key_labels: Tensor) -> Pairs:
    """A third of all pairs, some of them twice; the first two anchors have no positive, the last one no negative."""
    anchors, positives, others, negatives = get_all_pairs_indices(labels, key_labels)
    chosen = (torch.rand(len(anchors)) < 0.3) & (anchors > 1)
    rejected = (torch.rand(len(others)) < 0.3) & (others < len(labels) - 1)
    anchors, positives = anchors[chosen].repeat(2), positives[chosen].repeat(2)
    return anchors, positives, others[rejected], negatives[rejected]


MINERS: dict[str, Callable[..., Pairs]] = {
    "pairs": random_pairs,
    "multi-similarity": miners.MultiSimilarityMiner(),
    "triplets": miners.TripletMarginMiner(margin=0.4),
}


def brute_force(name: str, pairs: Pairs, embeddings: Tensor, keys: Tensor, temperature: float) -> Tensor:
    """The papers' formulas for each pair of a tuple, one anchor and one positive at a time."""
    first, second, third, fourth = pairs if len(pairs) == 4 else (pairs[0], pairs[1], pairs[0], pairs[2])
    positives = set(zip(first.tolist(), second.tolist(), strict=True))
    negatives = set(zip(third.tolist(), fourth.tolist(), strict=True))
    s = normalize(embeddings, dim=1) @ normalize(keys, dim=1).T / temperature
    anchors = []
    for i in sorted({anchor for anchor, _ in positives}):
        own, others = [sorted(key for anchor, key in chosen if anchor == i) for chosen in (positives, negatives)]
        anchors.append(torch.stack([PAIR_LOSSES[name](s[i, p], s[i, own], s[i, others]) for p in own]).mean())
    return torch.stack(anchors).mean()


@pytest.mark.parametrize("name", PAIRWISE)
@pytest.mark.parametrize("miner", MINERS)
@pytest.mark.parametrize("with_references", [False, True])
def test_mined_pairs_are_the_formula_over_these_pairs(
    name: str, miner: str, with_references: bool, batch: tuple[Tensor, Tensor], references: tuple[Tensor, Tensor]
) -> None:
    keys, key_labels = references if with_references else batch
    pairs = MINERS[miner](batch[0], batch[1], keys, key_labels)
    assert len(pairs[0]) > 0
    assert len(pairs) == (3 if miner == "triplets" else 4)
    reference = references if with_references else (None, None)
    loss = ContrastiveMetricLoss(name, temperature=0.2)(*batch, pairs, *reference)
    expected = brute_force(name, pairs, batch[0], keys, 0.2)
    torch.testing.assert_close(loss, expected)
    leaves = {batch[0], keys}
    for computed, true in zip(
        torch.autograd.grad(loss, [*leaves]), torch.autograd.grad(expected, [*leaves]), strict=True
    ):
        torch.testing.assert_close(computed, true)


@pytest.mark.parametrize("name", PAIRWISE)
def test_without_a_tuple_it_is_the_function(
    name: str, batch: tuple[Tensor, Tensor], references: tuple[Tensor, Tensor]
) -> None:
    loss, criterion = ContrastiveMetricLoss(name, temperature=0.2), LOSSES[name].load()(0.2)
    torch.testing.assert_close(loss(*batch), criterion(*batch))
    torch.testing.assert_close(loss(*batch, get_all_pairs_indices(batch[1])), criterion(*batch))
    with_keys = criterion(*batch, keys=references[0], key_labels=references[1])
    torch.testing.assert_close(loss(*batch, None, *references), with_keys)
    torch.testing.assert_close(loss(*batch, ref_emb=references[0], ref_labels=references[1]), with_keys)


@pytest.mark.parametrize("name", WITHOUT_PAIRS)
def test_a_loss_of_another_form_takes_labels_only(
    name: str, batch: tuple[Tensor, Tensor], references: tuple[Tensor, Tensor]
) -> None:
    """Its value over pairs would be that of another loss."""
    sizes = {"n_classes": 6, "dim": D} if LOSSES[name].needs_classes else {}
    made = []
    for make in (ContrastiveMetricLoss, lambda name, **options: LOSSES[name].load()(**options)):
        torch.manual_seed(1)  # of the targets, and of the positives that are drawn
        criterion = make(name, temperature=0.2, **sizes)
        made.append((criterion, criterion(*batch)))
    (loss, value), (criterion, expected) = made
    torch.testing.assert_close(value, expected)
    if LOSSES[name].needs_classes:
        with pytest.raises(UnsupportedError, match=f"^ContrastiveMetricLoss: {name} takes no ref_emb; leave it out$"):
            loss(*batch, None, *references)
    else:
        torch.manual_seed(1)
        with_keys = criterion(*batch, keys=references[0], key_labels=references[1])
        torch.manual_seed(1)
        torch.testing.assert_close(loss(*batch, None, *references), with_keys)
    message = f"^ContrastiveMetricLoss: {name} takes labels, neither pairs nor a reducer$"
    with pytest.raises(UnsupportedError, match=message):
        loss(*batch, get_all_pairs_indices(batch[1]))
    with pytest.raises(UnsupportedError, match=message):
        ContrastiveMetricLoss(name, reducer=reducers.MeanReducer(), **sizes)


@pytest.mark.parametrize("name", PAIRWISE)
def test_labels_that_are_no_class_are_none_in_pairs_and_in_memory(name: str, batch: tuple[Tensor, Tensor]) -> None:
    labels = batch[1].clone()
    labels[:4], labels[4:9] = -1, -100
    expected = LOSSES[name].load()(0.2)(batch[0], labels)
    loss = ContrastiveMetricLoss(name, temperature=0.2)
    torch.testing.assert_close(loss(batch[0], labels, get_all_pairs_indices(labels)), expected)
    mean = ContrastiveMetricLoss(name, temperature=0.2, reducer=reducers.MeanReducer())
    torch.testing.assert_close(mean(batch[0], labels), expected)
    memory = CrossBatchMemory(loss, embedding_size=D, memory_size=N)
    torch.testing.assert_close(memory(batch[0].float(), labels), expected.float())
    ignoring = ContrastiveMetricLoss(name, reducer=reducers.MeanReducer(), ignore_index=3)
    torch.testing.assert_close(ignoring(*batch), ContrastiveMetricLoss(name, ignore_index=3)(*batch))


def test_references_with_the_same_labels_are_the_same_items_as_theirs(batch: tuple[Tensor, Tensor]) -> None:
    keys, theirs = torch.randn_like(batch[0]), losses.SupConLoss(0.2)
    for labels in (batch[1], batch[1].clone()):
        expected = theirs(*batch, ref_emb=keys, ref_labels=labels)
        for reducer in (None, reducers.MeanReducer()):
            ours = ContrastiveMetricLoss("supcon", temperature=0.2, reducer=reducer)
            torch.testing.assert_close(ours(*batch, ref_emb=keys, ref_labels=labels), expected)


def test_supcon_is_theirs_with_their_miner(batch: tuple[Tensor, Tensor]) -> None:
    pairs = random_pairs(*batch, *batch)
    torch.testing.assert_close(
        ContrastiveMetricLoss("supcon", temperature=0.1)(*batch, pairs), losses.SupConLoss(0.1)(*batch, pairs)
    )


@pytest.mark.parametrize("with_references", [False, True])
def test_a_reducer_gets_the_anchors_that_have_a_positive(
    with_references: bool, batch: tuple[Tensor, Tensor], references: tuple[Tensor, Tensor]
) -> None:
    labels = batch[1].clone()
    labels[0], labels[1:3] = 77, -1  # alone in its class, and without a label
    reference = references if with_references else (None, None)
    mean = ContrastiveMetricLoss(reducer=reducers.MeanReducer())(batch[0], labels, None, *reference)
    torch.testing.assert_close(mean, ContrastiveMetricLoss()(batch[0], labels, None, *reference))
    each = ContrastiveMetricLoss(reducer=reducers.DoNothingReducer())(batch[0], labels, None, *reference)["loss"]
    assert each["indices"].tolist() == list(range(3, N))
    assert each["losses"].shape == (N - 3,)


def test_no_pairs() -> None:
    embeddings, none = torch.randn(4, 3, requires_grad=True), torch.tensor([], dtype=torch.long)
    for reducer in (None, reducers.MeanReducer()):
        loss = ContrastiveMetricLoss(reducer=reducer)(embeddings, torch.arange(4) // 2, (none,) * 3)
        (gradient,) = torch.autograd.grad(loss, embeddings)
        assert loss.item() == 0
        assert not gradient.any()


def test_regularizer_is_added(batch: tuple[Tensor, Tensor]) -> None:
    regularized = ContrastiveMetricLoss(embedding_regularizer=regularizers.LpRegularizer(), embedding_reg_weight=0.5)
    expected = ContrastiveMetricLoss()(*batch) + 0.5 * batch[0].norm(dim=1).mean()
    torch.testing.assert_close(regularized(*batch), expected)


def test_half_precision_is_computed_in_float32(batch: tuple[Tensor, Tensor]) -> None:
    pairs, low = random_pairs(*batch, *batch), batch[0].detach().bfloat16()
    loss = ContrastiveMetricLoss(temperature=0.01)(low, batch[1], pairs)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, brute_force("sincere", pairs, low.float(), low.float(), 0.01))


def test_memory_is_the_loss_with_earlier_batches_as_keys() -> None:
    memory = CrossBatchMemory(ContrastiveMetricLoss(temperature=0.1), embedding_size=D, memory_size=40)
    rows, row_labels = torch.randn(64, D), torch.randint(4, (64,))
    for step in range(4):
        here = slice(16 * step, 16 * step + 16)
        first = max(0, here.stop - 40)  # the memory holds 40 rows
        loss = memory(rows[here], row_labels[here])
        kept = slice(first, here.stop)
        itself = torch.arange(here.start - first, here.stop - first)
        keys = {"keys": rows[kept], "key_labels": row_labels[kept], "anchor_index": itself}
        torch.testing.assert_close(loss, sincere_loss(rows[here], row_labels[here], **keys))


def test_their_memory_knows_losses_by_the_names_of_their_classes() -> None:
    """Else our subclass would not be needed."""
    with pytest.raises(Exception, match="not supported for ContrastiveMetricLoss"):
        losses.CrossBatchMemory(ContrastiveMetricLoss(), embedding_size=D)


def test_errors(batch: tuple[Tensor, Tensor]) -> None:
    some = torch.tensor([0, 1])
    names = ", ".join(repr(name) for name, loss in LOSSES.items() if loss.needs_labels)
    cases: list[tuple[type[Exception], str, Callable[[], object]]] = [
        (
            InputValueError,
            f"ContrastiveMetricLoss: loss must be one of {names}; got 'sincer'. Did you mean 'sincere'?",
            lambda: ContrastiveMetricLoss("sincer"),
        ),
        (
            InputValueError,
            f"ContrastiveMetricLoss: loss must be one that takes labels, {names}; got 'infonce', whose classes are "
            "single images",
            lambda: ContrastiveMetricLoss("infonce"),
        ),
        (
            InputTypeError,
            "ContrastiveMetricLoss: reduction must be left out, because reducer takes its place; got 'sum'",
            lambda: ContrastiveMetricLoss(reduction="sum"),
        ),
        (
            InputTypeError,
            "ContrastiveMetricLoss: labels must be given where there is no indices_tuple, and ref_labels with ref_emb; "
            "got None",
            lambda: ContrastiveMetricLoss()(batch[0]),
        ),
        (
            InputValueError,
            "ContrastiveMetricLoss: embeddings must have shape (n, d); got (24, 2, 6)",
            lambda: ContrastiveMetricLoss()(torch.randn(24, 2, 6), batch[1]),
        ),
        (
            InputValueError,
            "ContrastiveMetricLoss: indices_tuple must make a pair positive or negative; got 2 that are both",
            lambda: ContrastiveMetricLoss()(*batch, (some, some + 2, some, some + 2)),
        ),
        (
            UnsupportedError,
            "ContrastiveMetricLoss: group is not supported with pairs or a reducer; leave out the group, or the miner, "
            "the memory and the reducer",
            lambda: ContrastiveMetricLoss(group="world")(*batch, (some, some + 5, some, some + 2)),
        ),
    ]
    for kind, message, call in cases:
        with pytest.raises(kind, match=f"^{re.escape(message)}$"):
            call()


@pytest.mark.filterwarnings("ignore:Converting a tensor")
@pytest.mark.parametrize("mined", [False, True])
def test_trains_in_their_trainer_and_tester(mined: bool) -> None:
    logging.getLogger("PML").setLevel(logging.WARNING)
    np.random.seed(0)  # of the library's sampler
    pixels, digits = load_digits(return_X_y=True)
    images, labels = torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(digits)
    train, test = TensorDataset(images[:1000], labels[:1000]), TensorDataset(images[1000:], labels[1000:])
    trunk = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
    calculator = AccuracyCalculator(include=("mean_average_precision_at_r",), k="max_bin_count")
    tester = GlobalEmbeddingSpaceTester(
        batch_size=500, dataloader_num_workers=0, data_device="cpu", accuracy_calculator=calculator
    )
    loss = ContrastiveMetricLoss(temperature=0.1)
    trainer = MetricLossOnly(
        models={"trunk": trunk},
        optimizers={"trunk_optimizer": torch.optim.AdamW(trunk.parameters(), lr=5e-3)},
        batch_size=80,
        loss_funcs={"metric_loss": loss if mined else CrossBatchMemory(loss, embedding_size=16, memory_size=400)},
        mining_funcs={"tuple_miner": miners.MultiSimilarityMiner()} if mined else {},
        dataset=train,
        sampler=MPerClassSampler(labels[:1000], m=8, length_before_new_iter=1000),
        dataloader_num_workers=0,
        data_device="cpu",
    )
    precision = []
    for epochs in (0, 3):
        trainer.train(num_epochs=epochs)
        result = tester.test({"test": test}, epoch=epochs, trunk_model=trunk)
        precision.append(result["test"]["mean_average_precision_at_r_level0"])
    assert precision[0] < 0.5
    assert precision[1] > precision[0] + 0.2, precision


def test_a_sum_takes_labels_only(batch: tuple[Tensor, Tensor], references: tuple[Tensor, Tensor]) -> None:
    loss = ContrastiveMetricLoss("sincere+0.5*supcon", temperature=0.2)
    expected = sincere_loss(*batch, temperature=0.2) + 0.5 * supcon_loss(*batch, temperature=0.2)
    torch.testing.assert_close(loss(*batch), expected)
    with pytest.raises(UnsupportedError, match="takes no ref_emb; leave it out"):
        loss(*batch, None, *references)
