"""A data set in an .npz is loaded, filtered and split; a wrong file gives a one-line error."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sincere.data.dataset import channel_statistics
from sincere.data.load_options import LoadOptions
from sincere.data.loader import plain_batches
from sincere.data.npz import load_npz
from sincere.data.pixel_storage import TensorImages
from sincere.errors import DataError, InputValueError


def arrays(**changes: Any) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    good = {
        "train_images": generator.integers(0, 256, (60, 8, 8, 3), dtype=np.uint8),
        "train_labels": np.arange(60) % 3,
        "test_images": generator.integers(0, 256, (30, 8, 8, 3), dtype=np.uint8),
        "test_labels": np.arange(30) % 3,
        "class_names": np.array(["bird", "cat", "dog"]),
    }
    return {name: value for name, value in {**good, **changes}.items() if value is not None}


def write(path: Path, **changes: Any) -> Path:
    np.savez(path, **arrays(**changes))
    return path


def test_load(tmp_path: Path) -> None:
    data = load_npz(write(tmp_path / "pets.npz"), LoadOptions())
    assert (data.name, data.class_names, data.size, data.augmentation) == ("pets", ("bird", "cat", "dog"), 8, "paper")
    given = arrays()["train_images"]
    assert torch.equal(data.train.items.gather(np.array([7, 2])), torch.from_numpy(given[[7, 2]]).permute(0, 3, 1, 2))
    pixels = given.reshape(-1, 3) / 255
    np.testing.assert_allclose(data.mean, pixels.mean(0), rtol=1e-9)
    np.testing.assert_allclose(data.std, pixels.std(0), rtol=1e-6)
    assert data.test.ids.tolist() == list(range(30))


def test_class_names_are_optional_and_grey_is_light(tmp_path: Path) -> None:
    grey = {f"{part}_images": arrays()[f"{part}_images"][..., :1] for part in ("train", "test")}
    data = load_npz(write(tmp_path / "a.npz", class_names=None, **grey), LoadOptions())
    assert data.class_names == ("0", "1", "2")
    assert data.augmentation == "light"


def test_class_filter(tmp_path: Path) -> None:
    data = load_npz(write(tmp_path / "a.npz"), LoadOptions())
    pair = data.select_classes(["dog", "cat"])
    assert pair.class_names == ("dog", "cat")
    assert np.bincount(pair.train.labels).tolist() == [20, 20]
    assert np.array_equal(data.test.labels[pair.test.ids], np.where(pair.test.labels == 0, 2, 1))
    with pytest.raises(InputValueError) as caught:
        data.select_classes(["dog", "cet"])
    assert str(caught.value) == "classes: class must be one of 'bird', 'cat', 'dog'; got 'cet'. Did you mean 'cat'?"
    with pytest.raises(DataError, match="at least two different classes are needed; got dog, dog"):
        data.select_classes(["dog", "dog"])
    with pytest.raises(DataError, match="classes: each class can be given once; got dog, cat, dog"):
        data.select_classes(["dog", "cat", "dog"])


def test_a_class_filter_that_leaves_no_test_image(tmp_path: Path) -> None:
    data = load_npz(write(tmp_path / "a.npz", test_labels=np.zeros(30, dtype=int)), LoadOptions())
    with pytest.raises(DataError, match="a: the test part has no images"):
        data.select_classes(["cat", "dog"])


@pytest.mark.parametrize("chunk_bytes", [1, 8 * 8 * 3 * 7, 10**9])
def test_statistics_are_exact_for_any_chunk_size(
    chunk_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels = arrays()["train_images"]
    pixels[..., 1] = 40
    data = load_npz(write(tmp_path / "a.npz", train_images=pixels), LoadOptions())
    gathered: list[int] = []
    gather = TensorImages.gather
    monkeypatch.setattr(
        TensorImages, "gather", lambda self, chosen: (gathered.append(len(chosen)), gather(self, chosen))[1]
    )
    mean, std = channel_statistics(data.train.subset(np.arange(50)), chunk_bytes=chunk_bytes)
    assert (sum(gathered), max(gathered)) == (50, min(50, max(1, chunk_bytes // (8 * 8 * 3))))
    expected = pixels[:50].reshape(-1, 3) / 255
    np.testing.assert_allclose(mean, expected.mean(0), rtol=1e-12)
    np.testing.assert_allclose(std, [expected[:, 0].std(), 1, expected[:, 2].std()], rtol=1e-12)


def test_validation_split_is_stratified_and_plain(tmp_path: Path) -> None:
    data = load_npz(write(tmp_path / "a.npz"), LoadOptions())
    learn, validate = data.validation_split(0.1, seed=4)
    assert (len(learn), len(validate)) == (54, 6)
    assert np.bincount(validate.labels).tolist() == [2, 2, 2]
    assert sorted([*learn.ids, *validate.ids]) == list(range(60))
    assert set(data.validation_split(0.1, seed=5)[1].ids) != set(validate.ids)
    stored = torch.from_numpy(arrays()["train_images"][validate.ids]).permute(0, 3, 1, 2)
    (batch,) = plain_batches(validate)
    assert torch.equal(batch.inputs, stored), "the pixels as they are"
    assert batch.labels.tolist() == (validate.ids % 3).tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"test_labels": None},
            "array 'test_labels' is missing; it has class_names, test_images, train_images, train_labels",
        ),
        (
            {"test_images": np.zeros((30, 4, 4, 3), dtype=np.uint8)},
            "train_images and test_images must be of one size; got (8, 8, 3) and (4, 4, 3)",
        ),
        (
            {"test_labels": np.arange(7)},
            "test_labels must be integers or strings of shape (30,); got int64 of shape (7,)",
        ),
        (
            {"train_labels": np.full(60, 10**13), "class_names": None},
            "labels must number the classes from 0, each with a training image; "
            "got 10000000000000 with 60 training images",
        ),
        (
            {"train_labels": np.full(60, 2**64 - 1, dtype=np.uint64)},
            "train_labels must number the classes from 0; got 18446744073709551615",
        ),
        ({"class_names": np.array("cat")}, "class_names must be strings of shape (classes,); got <U3 of shape ()"),
        (
            {"class_names": np.array([["a"], ["b"], ["c"]])},
            "class_names must be strings of shape (classes,); got <U1 of shape (3, 1)",
        ),
        (
            {"class_names": np.array([1.0, np.nan, 3.0])},
            "class_names must be strings of shape (classes,); got float64 of shape (3,)",
        ),
        ({"class_names": np.array(["a", "b", "a"])}, "class_names must be different; got 'a' more than once"),
        ({"class_names": np.array(["a", "b"])}, "class_names must name every label; got 2 names and label 2"),
    ],
)
def test_wrong_arrays(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.npz", **changes)
    with pytest.raises(DataError) as caught:
        load_npz(path, LoadOptions())
    assert str(caught.value) == f"{path}: {message}"


def test_labels_out_of_range(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load_npz(write(tmp_path / "a.npz", test_labels=np.arange(30) - 1, class_names=None), LoadOptions())
    assert str(caught.value) == "a: test labels must be 0 to 28; got -1"
    with pytest.raises(DataError, match="a: train labels must be 0 to 2, or -1 for no label; got -2"):
        load_npz(write(tmp_path / "a.npz", train_labels=np.arange(60) % 5 - 2), LoadOptions())
    with pytest.raises(DataError, match="a: class 'dog' has no training image"):
        load_npz(write(tmp_path / "a.npz", train_labels=np.arange(60) % 2), LoadOptions())


def test_names_as_bytes_are_decoded(tmp_path: Path) -> None:
    names = np.array([name.encode() for name in ("bird", "chat", "h\u00e9ron")])
    assert load_npz(write(tmp_path / "a.npz", class_names=names), LoadOptions()).class_names == (
        "bird",
        "chat",
        "h\u00e9ron",
    )
    with pytest.raises(DataError, match="class_names must be UTF-8"):
        load_npz(write(tmp_path / "a.npz", class_names=np.array([b"a", b"b", b"\xff"])), LoadOptions())


@pytest.mark.parametrize(
    "content", [b"", b"nonsense", b"PK\x03\x04 broken", b"a,b\n1,2\n", b"\x89PNG\r\n\x1a\n damaged"]
)
def test_not_an_npz(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        load_npz(path, LoadOptions())
    assert str(caught.value) == f"{path}: is not a readable .npz (no zip archive)"


def test_other_archives_and_damaged_ones(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(3))
    with pytest.raises(DataError, match=r"a\.npy: is not a readable \.npz \(no zip archive\)"):
        load_npz(tmp_path / "a.npy", LoadOptions())
    path = tmp_path / "text.npz"
    with zipfile.ZipFile(path, "w") as file:
        for name in arrays():
            file.writestr(name, "no array")
    with pytest.raises(DataError, match="'class_names' is not an array"):
        load_npz(path, LoadOptions())
    np.savez_compressed(tmp_path / "intact.npz", **arrays())
    intact = (tmp_path / "intact.npz").read_bytes()
    generator = np.random.default_rng(0)
    messages = []
    for _ in range(60):
        damaged = bytearray(intact)
        for position in generator.integers(0, len(intact), 5):
            damaged[position] ^= 255
        path.write_bytes(damaged)
        try:
            load_npz(path, LoadOptions())
        except DataError as error:  # any other kind fails the test
            messages.append(str(error))
    assert len(messages) > 50
    assert not any("\n" in message or "pickled" in message for message in messages)
