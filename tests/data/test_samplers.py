"""Properties of the samplers over any number of classes, batch size and seed."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sincere.data.samplers import BalancedSampler, PByKSampler, Sampler, ShuffleSampler, make_sampler
from sincere.errors import InputTypeError, InputValueError


def labels_of(n_classes: int, per_class: int) -> np.ndarray:
    return np.random.default_rng(0).permutation(np.repeat(np.arange(n_classes), per_class))


@pytest.mark.parametrize("seed", range(5))
def test_balanced_with_more_classes_than_slots(seed: int) -> None:
    """196 classes and 128 slots: every class within any 2 batches in a row; counts of an epoch differ by at most 1."""
    labels = labels_of(196, 30)
    sampler = BalancedSampler(labels, 128, seed=seed)
    batches = [labels[sampler.batch(step)] for step in range(3 * sampler.n_batches)]
    for first, second in pairwise(batches):
        assert len(np.union1d(first, second)) == 196
    for epoch in range(3):
        seen = np.concatenate(batches[epoch * sampler.n_batches : (epoch + 1) * sampler.n_batches])
        counts = np.bincount(seen, minlength=196)
        assert counts.max() - counts.min() <= 1


def epoch_counts(sampler: Sampler, epoch: int) -> np.ndarray:
    steps = range(epoch * sampler.n_batches, (epoch + 1) * sampler.n_batches)
    return np.bincount(sampler.labels[np.concatenate([sampler.batch(step) for step in steps])])


@pytest.mark.parametrize(
    ("n", "n_classes", "batch_size", "seed", "epochs"),
    [(5977, 196, 128, 0, range(5)), (8144, 196, 128, 2, (100, 101)), (5000, 10, 512, 0, range(10))],
)
def test_balanced_where_an_epoch_starts_within_a_cycle(
    n: int, n_classes: int, batch_size: int, seed: int, epochs: Iterable[int]
) -> None:
    """Regression: the end of one class order and the start of the next both held the same class."""
    sampler = BalancedSampler(np.arange(n) % n_classes, batch_size, seed=seed)
    for epoch in epochs:
        assert np.ptp(epoch_counts(sampler, epoch)) <= 1


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 40), st.integers(2, 50), st.integers(0, 5), st.data())
def test_balanced_for_any_size(n_classes: int, batch_size: int, seed: int, data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=n_classes, max_size=n_classes))
    labels = np.repeat(np.arange(n_classes), sizes)
    assume(len(labels) >= batch_size)
    sampler = BalancedSampler(labels, batch_size, seed=seed)
    for epoch in range(12):
        assert np.ptp(epoch_counts(sampler, epoch)) <= 1, "over each epoch the classes' counts differ by at most 1"
    span, share = math.ceil(n_classes / batch_size), math.ceil(batch_size / n_classes)
    chosen = [sampler.batch(step) for step in range(4 * span)]
    for start in range(3 * span):
        window = labels[np.concatenate(chosen[start : start + span])]
        assert len(np.unique(window)) == n_classes, "every class within any ceil(C / B) batches in a row"
    large = np.asarray(sizes)[labels] >= share
    for batch in chosen:
        assert np.bincount(labels[batch]).max() <= share
        assert len(np.unique(batch[large[batch]])) == large[batch].sum(), "no image twice, but of too small classes"


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 12), st.integers(2, 30), st.sampled_from(["shuffle", "balanced", "p-by-k"]), st.data())
def test_no_image_has_the_same_visit_twice(n_classes: int, batch_size: int, name: str, data: st.DataObject) -> None:
    """Visit numbers of an image increase."""
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=n_classes, max_size=n_classes))
    labels = np.repeat(np.arange(n_classes), sizes)
    batch_size = min(batch_size, n_classes) * 2
    assume(len(labels) >= batch_size)
    sampler = make_sampler(name, labels, batch_size)
    latest: dict[int, int] = {}
    for step in range(40):
        for image, visit in zip(sampler.batch(step).tolist(), sampler.visits(step).tolist(), strict=True):
            assert visit > latest.get(image, -1)
            latest[image] = visit


@pytest.mark.parametrize(
    ("per_class", "k", "epochs"),
    [(10, 2, 100), (3, 2, 60), (9, 2, 100), (8, 4, 60), (6, 4, 60), (14, 6, 60)],
)
def test_images_of_small_classes_meet_all_others(per_class: int, k: int, epochs: int) -> None:
    """Flowers-102 has 10 images per class: a fixed order would always pair the same two."""
    labels = np.repeat(np.arange(20), per_class)
    sampler = PByKSampler(labels, 5 * k, images_per_class=k)
    met: dict[int, set[int]] = {image: set() for image in range(len(labels))}
    for step in range(epochs * sampler.n_batches):
        for turn in sampler.batch(step).reshape(-1, k).tolist():
            assert len(set(turn)) == k
            for image in turn:
                met[image].update(turn)
    assert {len(others) for others in met.values()} == {per_class}


def test_each_pass_through_a_large_class_has_its_own_order() -> None:
    labels = np.arange(150) % 3
    sampler = BalancedSampler(labels, 20)
    shown = np.concatenate([sampler.batch(step) for step in range(300)])
    for label in range(3):
        images = shown[labels[shown] == label]
        orders = {tuple(images[start : start + 50]) for start in range(0, 1500, 50)}
        assert len(orders) == 30


@pytest.mark.parametrize("sampler_type", [BalancedSampler, PByKSampler])
def test_no_image_repeats_before_all_of_its_class_were_seen(sampler_type: type[Sampler]) -> None:
    labels = np.repeat(np.arange(12), np.arange(4, 28, 2))  # 4 to 26 images
    sampler = sampler_type(labels, 12, seed=3)
    seen: dict[int, list[int]] = {}
    for step in range(200):
        for image in sampler.batch(step):
            seen.setdefault(int(labels[image]), []).append(int(image))
    for label, images in seen.items():
        size = int((labels == label).sum())
        for start in range(0, len(images) - size + 1, size):
            assert len(set(images[start : start + size])) == size


def test_classes_do_not_always_meet_the_same_classes() -> None:
    """A fixed order would always put the same classes into a batch."""
    labels = labels_of(60, 8)
    for sampler in (BalancedSampler(labels, 40), PByKSampler(labels, 40)):
        met = {tuple(sorted(set(labels[sampler.batch(step)]))) for step in range(60)}
        assert len(met) > 30


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 30), st.integers(2, 4), st.integers(0, 5), st.data())
def test_p_by_k(n_classes: int, k: int, seed: int, data: st.DataObject) -> None:
    p = data.draw(st.integers(1, n_classes))
    labels = np.repeat(np.arange(n_classes), data.draw(st.integers(k, 30)))
    sampler = PByKSampler(labels, p * k, seed=seed, images_per_class=k)
    total = np.zeros(n_classes, dtype=np.int64)
    for step in range(20 * math.ceil(n_classes / p)):
        chosen = labels[sampler.batch(step)]
        counts = np.bincount(chosen, minlength=n_classes)
        assert sorted(counts[counts > 0]) == [k] * p, "K images each of P different classes"
        assert len(set(sampler.batch(step).tolist())) == p * k, "no image twice"
        total += counts
    assert (total.max() - total.min()) <= 2 * k
    for epoch in range(5):
        assert np.ptp(epoch_counts(sampler, epoch)) <= k


def test_shuffle_shows_each_image_once_an_epoch() -> None:
    labels = labels_of(5, 21)
    sampler = ShuffleSampler(labels, 10, seed=1)
    assert sampler.n_batches == 10
    epochs = [np.concatenate([sampler.batch(e * 10 + i) for i in range(10)]) for e in range(3)]
    for epoch in epochs:
        assert len(set(epoch.tolist())) == 100
    assert not np.array_equal(epochs[0], epochs[1])
    assert len(set(np.concatenate(epochs).tolist())) == 105, "images left out of one epoch come in another"


@pytest.mark.parametrize("name", ["shuffle", "balanced", "p-by-k"])
def test_a_batch_depends_on_seed_and_step_alone(name: str) -> None:
    """Resuming needs the step number and nothing else."""
    labels = labels_of(30, 9)
    straight, resumed, other = (make_sampler(name, labels, 24, seed=seed) for seed in (1, 1, 2))
    expected = [straight.batch(step) for step in range(40)]
    for step in (39, 7, 23):
        assert np.array_equal(resumed.batch(step), expected[step])
    assert any(not np.array_equal(other.batch(step), expected[step]) for step in range(40))


@pytest.mark.parametrize(("n_classes", "batch_size", "expected"), [(10, 64, ShuffleSampler), (40, 64, PByKSampler)])
def test_auto_takes_p_by_k_where_classes_are_many(n_classes: int, batch_size: int, expected: type[Sampler]) -> None:
    assert type(make_sampler("auto", labels_of(n_classes, 10), batch_size)) is expected


def test_describe() -> None:
    few = ShuffleSampler(labels_of(4, 50), 100)
    line, warning = few.describe(2)
    assert line.startswith("batches of 100 images x 2 views: ")
    positives = float(line.split(": ")[1].split()[0])
    assert positives == pytest.approx(50, abs=2)
    assert warning is None
    alone = ShuffleSampler(np.arange(100), 10).describe(1)
    assert alone == (
        "batches of 10 images x 1 view: 0.0 positives per anchor",
        "100% of the anchors have no positive and contribute nothing to the loss",
    )
    assert "3.0 positives" in PByKSampler(labels_of(100, 5), 50).describe(2)[0]
    copies = PByKSampler(np.arange(100), 50)
    assert "1.0 positives" in copies.describe(2)[0], "a copy of the anchor's own image is not a positive"
    assert "100% of the anchors have no positive" in str(copies.describe(1)[1])


def test_samplers_are_garbage_collected() -> None:
    sampler = make_sampler("balanced", labels_of(5, 9), 10)
    sampler.batch(0)
    watched = weakref.ref(sampler)
    del sampler
    gc.collect()
    assert watched() is None


@pytest.mark.parametrize(
    ("n_classes", "batch_size", "k"), [(10, 256, 32), (100, 128, 2), (3, 12, 4), (3, 10, 5), (200, 9, 3)]
)
def test_p_by_k_finds_the_smallest_k_that_fits(n_classes: int, batch_size: int, k: int) -> None:
    sampler = make_sampler("p-by-k", np.arange(2000) % n_classes, batch_size)
    _, counts = np.unique(sampler.labels[sampler.batch(0)], return_counts=True)
    assert set(counts) == {k}


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: ShuffleSampler([0, 1, 0], 4),
            InputValueError,
            "ShuffleSampler: batch_size must be at most 3, the number of images; got 4",
        ),
        (
            lambda: BalancedSampler([0, 1, 0], 1),
            InputValueError,
            "BalancedSampler: batch_size must be an integer of at least 2; got 1",
        ),
        (
            lambda: BalancedSampler([0, 1, 0], 2.0),
            InputTypeError,
            "BalancedSampler: batch_size must be an integer of at least 2; got float",
        ),
        (
            lambda: PByKSampler([0, 1, 0, 1, 2], 5),
            InputValueError,
            "PByKSampler: batch_size must be a multiple of images_per_class = 2; got 5",
        ),
        (
            lambda: PByKSampler([0, 1] * 10, 8),
            InputValueError,
            "PByKSampler: images_per_class must be at least 4; got 2. 8 slots are more than 2 for each of 2 classes",
        ),
        (
            lambda: make_sampler("auto", np.arange(254) % 100, 127),
            InputValueError,
            "make_sampler: batch_size must be K images of each of P classes, K at least 2 and P at least 2; got 127. "
            "With 100 classes, 4 would do",
        ),
        (
            lambda: make_sampler("auto", [0, 1], 2, images_per_class=0),
            InputValueError,
            "PByKSampler: images_per_class must be an integer of at least 2; got 0",
        ),
        (
            lambda: make_sampler("auto", [0, 1], None),
            InputTypeError,
            "make_sampler: batch_size must be an integer of at least 2; got NoneType",
        ),
        (
            lambda: PByKSampler([], 2),
            InputValueError,
            "PByKSampler: labels must be integers of shape (n,) with n > 0; got float64 of shape (0,)",
        ),
        (
            lambda: make_sampler("balance", [0, 1], 2),
            InputValueError,
            "make_sampler: sampler must be one of 'auto', 'shuffle', 'balanced', 'p-by-k'; got 'balance'. "
            "Did you mean 'balanced'?",
        ),
    ],
)
def test_bad_input(call: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == message
