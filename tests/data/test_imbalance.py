"""Long-tailed versions: the class sizes of CIFAR-10-LT, the same images every time, the test part untouched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sincere import load_dataset
from sincere.data.imbalance import long_tailed_positions
from sincere.errors import InputTypeError, InputValueError
from tests.faults.world import make_pictures
from tests.workflows.conftest import blobs


def sizes(labels: np.ndarray, ratio: float, n_classes: int = 10, seed: int = 0) -> list[int]:
    kept = labels[long_tailed_positions(labels, ratio, n_classes=n_classes, seed=seed)]
    return np.bincount(kept, minlength=n_classes).tolist()


def test_class_sizes_are_those_of_cifar_10_lt() -> None:
    labels = np.repeat(np.arange(10), 5000)
    assert sizes(labels, 100) == [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    assert sizes(labels, 10) == [5000, 3871, 2997, 2320, 1796, 1391, 1077, 834, 645, 500]
    assert sizes(labels, 1) == [5000] * 10


def test_a_class_keeps_one_image_at_least_and_all_at_most() -> None:
    labels = np.repeat(np.arange(3), [4, 100, 100])
    assert sizes(labels, 1e6, n_classes=3) == [4, 1, 1]
    assert sizes(labels, 4, n_classes=3) == [4, 50, 25]


@given(
    st.lists(st.integers(1, 60), min_size=2, max_size=9),
    st.floats(1, 1000),
    st.floats(1, 10),
    st.integers(0, 3),
)
def test_properties(counts: list[int], ratio: float, more: float, seed: int) -> None:
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.repeat(np.arange(len(counts)), counts))
    options = {"n_classes": len(counts), "seed": seed}
    kept = long_tailed_positions(labels, ratio, **options)
    assert (np.diff(kept) > 0).all()
    assert np.array_equal(kept, long_tailed_positions(labels, ratio, **options))
    for label, (n, before) in enumerate(zip(np.bincount(labels[kept]), counts, strict=True)):
        quota = max(counts) * ratio ** (-label / (len(counts) - 1))
        assert n == min(before, max(1, np.floor(quota + 1e-9)))
    assert set(long_tailed_positions(labels, ratio * more, **options)) <= set(kept)


def test_digits() -> None:
    whole, tailed = load_dataset("digits"), load_dataset("digits", imbalance=50)
    assert np.bincount(tailed.train.labels).tolist() == [142, 94, 61, 39, 25, 16, 10, 6, 4, 2]
    assert np.array_equal(tailed.test.ids, whole.test.ids)
    assert set(tailed.train.ids) < set(whole.train.ids)
    assert (tailed.mean, tailed.std) == (whole.mean, whole.std)
    again, other = load_dataset("digits", imbalance=50), load_dataset("digits", imbalance=50, seed=1)
    assert tailed.digest == again.digest
    assert len({whole.digest, tailed.digest, other.digest, load_dataset("digits", imbalance=49).digest}) == 4


def test_the_order_is_that_of_the_chosen_classes() -> None:
    data = load_dataset("digits", classes=["8", "3"], imbalance=10)
    assert data.class_names == ("8", "3")
    first, last = np.bincount(data.train.labels)
    assert first > 9 * last > 0


def test_features_and_files(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    names = {"train_features": generator.normal(size=(90, 4)), "train_labels": np.arange(90) % 3}
    np.savez(tmp_path / "f.npz", **names, test_features=np.ones((6, 4)), test_labels=np.arange(6) % 3)
    for path in (tmp_path / "f.npz", Path(blobs(tmp_path / "images.npz", n_train=90))):
        data = load_dataset(path, imbalance=9)
        assert np.bincount(data.train.labels).tolist() == [30, 10, 3]


def test_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINCERE_HOME", str(tmp_path / "home"))
    make_pictures(tmp_path / "pictures", n_images=20)
    whole, tailed = (load_dataset(tmp_path / "pictures", imbalance=ratio) for ratio in (None, 4))
    assert np.bincount(whole.train.labels).tolist() == [16, 16, 16]
    assert np.bincount(tailed.train.labels).tolist() == [16, 8, 4]
    assert np.array_equal(tailed.test.ids, whole.test.ids)
    assert tailed.digest != whole.digest


@pytest.mark.parametrize(
    ("ratio", "error", "message"),
    [
        (0.5, InputValueError, "load_dataset: imbalance must be a finite number of at least 1; got 0.5"),
        (float("nan"), InputValueError, "load_dataset: imbalance must be a finite number of at least 1; got nan"),
        ("ten", InputTypeError, "load_dataset: imbalance must be a finite number of at least 1; got str"),
    ],
)
def test_wrong_ratios(ratio: float, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        load_dataset("digits", imbalance=ratio)
    assert str(caught.value) == message
