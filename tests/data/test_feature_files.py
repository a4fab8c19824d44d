"""Ready-made features in an .npz are loaded, converted and split; a wrong file gives a one-line error."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sincere
from sincere.data.dataset import Dataset, Samples
from sincere.data.feature_arrays import FeaturePart, features_dataset, finite_float32
from sincere.data.load_options import LoadOptions
from sincere.data.loader import plain_batches
from sincere.data.named_arrays import NamedArray
from sincere.data.npz import load_npz
from sincere.errors import DataError, InputValueError, MissingPackageError


def arrays(**changes: Any) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    good = {
        "train_features": generator.integers(-40, 40, (60, 5)).astype(np.float32),
        "train_labels": np.arange(60) % 3,
        "test_features": generator.integers(-40, 40, (30, 5)).astype(np.float32),
        "test_labels": np.arange(30) % 3,
        "class_names": np.array(["bird", "cat", "dog"]),
    }
    return {name: value for name, value in {**good, **changes}.items() if value is not None}


def load(folder: Path, **changes: Any) -> Dataset:
    np.savez(folder / "a.npz", **arrays(**changes))
    return load_npz(folder / "a.npz", LoadOptions())


def message(folder: Path, **changes: Any) -> str:
    with pytest.raises(DataError) as caught:
        load(folder, **changes)
    text = str(caught.value)
    assert "\n" not in text
    return text.removeprefix(f"{folder / 'a.npz'}: ")


def values_of(samples: Samples) -> torch.Tensor:
    return samples.items.gather(samples.positions)


def both(change: Any) -> dict[str, Any]:
    return {name: change(arrays()[name]) for name in ("train_features", "test_features")}


NO_TEST = {"test_features": None, "test_labels": None}


def test_load(tmp_path: Path) -> None:
    data = load(tmp_path)
    assert (data.name, data.class_names, data.size, data.augmentation) == ("a", ("bird", "cat", "dog"), 0, "none")
    assert (data.mean, data.std, data.notes, data.noun) == ((), (), (), "samples")
    assert data.train.are_features
    assert data.train.texts is None
    assert torch.equal(values_of(data.test), torch.from_numpy(arrays()["test_features"]))
    (batch,) = plain_batches(data.train.subset(np.array([7, 2])))
    assert torch.equal(batch.inputs, torch.from_numpy(arrays()["train_features"][[7, 2]]))
    assert batch.labels.tolist() == [1, 2]


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", ">f8", "i1", "i2", "i4", "i8"])
def test_types_give_the_same_data(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = load(tmp_path).digest
    data = load(tmp_path, **both(lambda features: features.astype(kind)))
    assert data.digest == expected
    assert values_of(data.train).dtype == torch.float32
    monkeypatch.setattr("sincere.data.feature_arrays.CHUNK_VALUES", 7 * 5)  # an uneven last chunk
    assert load(tmp_path, **both(lambda features: np.asfortranarray(features.astype(kind)))).digest == expected


def test_one_changed_feature_is_other_data(tmp_path: Path) -> None:
    changed = arrays()["test_features"]
    changed[3, 2] += 1
    assert load(tmp_path, test_features=changed).digest != load(tmp_path).digest


@pytest.mark.parametrize("prefix", ["train_", ""])
def test_without_a_test_part_the_file_is_split(prefix: str, tmp_path: Path) -> None:
    features, labels = arrays()["train_features"], arrays()["train_labels"]
    given = {"train_features": None, "train_labels": None, **NO_TEST}
    words = np.array([f"sample {i}" for i in range(60)])
    given |= {f"{prefix}features": features, f"{prefix}labels": labels, f"{prefix}texts": words}
    data = load(tmp_path, **given)
    assert np.bincount(data.test.labels).tolist() == [4, 4, 4]
    assert sorted([*data.train.ids, *data.test.ids]) == list(range(60))
    for part in (data.train, data.test):
        assert torch.equal(values_of(part), torch.from_numpy(features[part.ids]))
        assert part.texts is not None
        assert part.texts.tolist() == [f"sample {i}" for i in part.ids]
    split = "it was split by class into 48 samples for training and 12 for testing (seed 0)"
    assert data.notes == (f"{tmp_path / 'a.npz'}: has no test part; {split}",)


def test_texts(tmp_path: Path) -> None:
    long, accents = "x" * 300, "h\u00e9ron".encode()
    data = load(tmp_path, test_texts=np.array([accents] * 29 + [long.encode()]), train_texts=np.array([long] * 60))
    assert data.test.texts is not None
    assert data.test.texts[0] == "h\u00e9ron"
    assert data.test.texts[29] == "x" * 199 + "\u2026"
    assert data.select_classes(["bird", "dog"]).test.texts.shape == (20,)  # type: ignore[union-attr]
    assert data.digest == load(tmp_path).digest, "texts are shown only"


def test_classes_and_size(tmp_path: Path) -> None:
    load(tmp_path)
    pair = sincere.load_dataset(tmp_path / "a.npz", classes=["dog", "cat"])
    assert np.bincount(pair.train.labels).tolist() == [20, 20]
    with pytest.raises(InputValueError) as caught:
        sincere.load_dataset(tmp_path / "a.npz", size=32)
    assert str(caught.value) == "load_dataset: size must not be set for features; got 32"


def with_value(value: float, kind: str = "f4") -> np.ndarray:
    features = arrays()["train_features"].astype(kind)
    features[41, 3] = value
    return features


LABELS = "train_labels must be integers or strings of shape (60,); got "


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"train_features": with_value(np.nan)}, "train_features must be finite; got nan in row 41, column 3"),
        ({"train_features": with_value(-np.inf, "f2")}, "train_features must be finite; got -inf in row 41, column 3"),
        (
            {"test_features": with_value(1e300, "f8")[:42], "test_labels": np.arange(42) % 3},
            "test_features must be from -1e+30 to 1e+30; got 1e+300 in row 41, column 3",
        ),
        (
            {"test_features": np.zeros((30, 4))},
            "train_features and test_features must have the same number of features; got 5 and 4",
        ),
        ({"train_features": np.zeros(60)}, "train_features must have shape (n, d); got (60,)"),
        (
            {"train_features": np.zeros((60, 2, 2))},
            "train_features must have shape (n, d); got (60, 2, 2). "
            "Flatten the features of a sample with train_features.reshape(len(train_features), -1)",
        ),
        ({"train_features": np.zeros((0, 5))}, "train_features must not be empty; got shape (0, 5)"),
        ({"train_features": np.zeros((60, 0))}, "train_features must not be empty; got shape (60, 0)"),
        ({"train_features": np.zeros((60, 5), bool)}, "train_features must be numbers; got bool"),
        ({"train_features": np.zeros((60, 5), complex)}, "train_features must be numbers; got complex128"),
        ({"train_features": np.full((60, 5), "x")}, "train_features must be numbers; got str32"),
        (
            {"train_features": np.array([{}] * 60)},
            "train_features must be a plain array; got pickled objects, which are never loaded. Save numbers",
        ),
        (
            {"train_labels": np.arange(60) % 3.0},
            LABELS + "float64 of shape (60,). Convert them with train_labels.astype(int)",
        ),
        ({"train_labels": np.arange(59) % 3}, LABELS + "int64 of shape (59,)"),
        (
            {"train_labels": np.full(60, 10**13), "class_names": None},
            "labels must number the classes from 0, each with a training sample; "
            "got 10000000000000 with 60 training samples",
        ),
        ({"train_labels": np.arange(60) % 2}, "a: class 'dog' has no training sample"),
        (
            {"train_labels": np.array([2, *[0, 1] * 29, 1]), **NO_TEST},
            "class 'dog' has a single sample, which cannot be split in two parts; "
            "add more, or add test_features and test_labels",
        ),
        ({"test_texts": np.arange(30)}, "test_texts must be strings of shape (30,); got int64 of shape (30,)"),
        ({"test_texts": np.array(["x"])}, "test_texts must be strings of shape (30,); got <U1 of shape (1,)"),
        (
            {"test_texts": np.array([None] * 30)},
            "test_texts must be a plain array; got pickled objects, which are never loaded. "
            "Save test_texts.astype(str)",
        ),
        (
            {"train_images": np.zeros((60, 8, 8, 3), "u1")},
            "has both images and features (train_images and train_features); keep one, because a model takes either",
        ),
        (
            {"test_labels": None},
            "array 'test_labels' is missing; it has class_names, test_features, train_features, train_labels",
        ),
        (
            {"features": np.zeros((60, 5)), **NO_TEST},
            "has train_features or train_labels beside features or labels, and no test part; "
            "keep one pair, or name the other test_features and test_labels",
        ),
    ],
)
def test_refused(changes: dict[str, Any], text: str, tmp_path: Path) -> None:
    assert message(tmp_path, **changes) == text


def test_arrays_of_any_origin_give_a_data_set() -> None:
    def named(name: str, values: Any) -> NamedArray:
        return NamedArray(Path("train"), name, np.asarray(values))

    features = np.random.default_rng(0).normal(size=(20, 3))
    part = FeaturePart(named("features", features), named("labels", ["a", "b"] * 10))
    rows = np.arange(15), np.arange(15, 20)
    data = features_dataset("mine", part, rows=rows, options=LoadOptions())
    assert (data.name, data.class_names, len(data.train), data.test.ids.tolist()) == (
        "mine",
        ("a", "b"),
        15,
        [15, 16, 17, 18, 19],
    )
    assert data.notes == ()
    with pytest.raises(DataError) as caught:
        features_dataset("mine", FeaturePart(part.features, named("labels", [0.5] * 20)), options=LoadOptions())
    assert str(caught.value) == ("train: labels must be integers or strings of shape (20,); got float64 of shape (20,)")


def test_float32_is_not_copied() -> None:
    values = np.zeros((4, 2), dtype=np.float32)
    assert finite_float32(NamedArray(Path("a"), "features", values)) is values
    values.flags.writeable = False  # torch would warn
    assert finite_float32(NamedArray(Path("a"), "features", values)) is not values


def test_a_parquet_asks_for_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"")
    monkeypatch.delitem(sys.modules, "sincere.data.parquet", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingPackageError) as caught:
        sincere.load_dataset(tmp_path / "a.parquet")
    remedy = "install it with: pip install 'sincere[parquet]'"
    assert str(caught.value) == f"data: a .parquet file needs pyarrow, which is not installed; {remedy}"


def test_a_validation_part_is_the_test_part_if_there_is_none(tmp_path: Path) -> None:
    renamed = {name.replace("test_", "val_"): values for name, values in arrays().items()}
    np.savez(tmp_path / "a.npz", **renamed)
    data = sincere.load_dataset(tmp_path / "a.npz")
    assert torch.equal(values_of(data.test), torch.from_numpy(arrays()["test_features"]))
    assert data.notes == ()
    np.savez(tmp_path / "b.npz", **{**renamed, **arrays()})
    (note,) = sincere.load_dataset(tmp_path / "b.npz").notes
    assert note.endswith("the arrays of the validation part are left out, because there is a test part")


def test_texts_of_no_part_are_refused(tmp_path: Path) -> None:
    text = message(tmp_path, texts=np.array(["a"] * 60))
    assert text == "array 'texts' must be split like the features, into train_texts and test_texts"
