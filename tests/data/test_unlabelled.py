"""Images without a label: read from a folder or as label -1, and kept apart from those that have one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sincere.data.catalog import load_dataset
from sincere.data.class_folders import folder_files
from sincere.data.folder import load_folder
from sincere.data.identity import source_digest
from sincere.data.load_options import LoadOptions
from sincere.data.npz import load_npz
from sincere.data.samplers import make_sampler
from sincere.errors import DataError, InputValueError
from tests.data.test_decode import save
from tests.data.test_folder import make_tree


def add_unlabelled(folder: Path, n: int = 5) -> None:
    for i in range(n):
        save(folder / "unlabelled" / "more" / f"{i}.png", Image.new("RGB", (20, 20), (40 * i, 10, 10)))


@pytest.mark.parametrize("has_parts", [False, True])
def test_a_folder_beside_the_class_folders(has_parts: bool, tmp_path: Path) -> None:
    root = tmp_path / "set"
    train = make_tree(root / "train", per_class=10) if has_parts else make_tree(root, per_class=10)
    if has_parts:
        make_tree(root / "test", per_class=2)
    settings = LoadOptions(size=8, cache=tmp_path / "cache")
    before, digest = load_folder(root, settings), source_digest(str(root))
    add_unlabelled(train)
    data = load_folder(root, settings)
    assert data.class_names == ("class0", "class1", "class2")
    assert data.unlabelled is not None
    assert (len(data.train), len(data.test), data.n_unlabelled) == (len(before.train), len(before.test), 5)
    for part in ("train", "test"):  # the same images, with the same ids
        for name in ("labels", "ids", "digests", "texts"):
            assert np.array_equal(getattr(getattr(data, part), name), getattr(getattr(before, part), name))
    assert data.unlabelled.labels.tolist() == [-1] * 5
    assert data.unlabelled.ids.tolist() == list(range(30, 35))
    reds = data.unlabelled.items.gather(data.unlabelled.positions)[:, 0, 0, 0]
    torch.testing.assert_close(reds, torch.tensor([0, 40, 80, 120, 160], dtype=torch.uint8))
    assert data.digest != before.digest
    assert source_digest(str(root)) != digest
    assert len(folder_files(root)) == len(data.train) + len(data.test) + 5


def test_folders_in_a_wrong_place(tmp_path: Path) -> None:
    root = tmp_path / "set"
    make_tree(root / "train", per_class=3)
    make_tree(root / "test", per_class=2)
    settings = LoadOptions(size=8, cache=tmp_path / "cache")
    for place, problem in (
        ("test/unlabelled", "unlabelled images take part in training only; move it to train/"),
        ("unlabelled", "belongs beside the class folders of training images; move it to train/"),
        ("train/unlabelled", "folder without any image; add some, or remove it"),
    ):
        (root / place).mkdir()
        with pytest.raises(DataError) as caught:
            load_folder(root, settings)
        assert str(caught.value) == f"{root / place}: {problem}"
        (root / place).rmdir()


def arrays(kind: str, n: int = 60) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    labels = np.arange(n) % 3
    labels[::4] = -1
    if kind == "images":
        return {"images": generator.integers(0, 256, (n, 8, 8, 1), dtype=np.uint8), "labels": labels}
    return {"features": generator.normal(size=(n, 5)).astype(np.float32), "labels": labels}


@pytest.mark.parametrize("kind", ["images", "features"])
def test_label_minus_one_in_a_file_that_is_split(kind: str, tmp_path: Path) -> None:
    given = arrays(kind)
    np.savez(tmp_path / "a.npz", **given)
    data = load_npz(tmp_path / "a.npz", LoadOptions())
    assert data.unlabelled is not None
    assert data.unlabelled.ids.tolist() == list(range(0, 60, 4))
    assert (len(data.train), len(data.test), data.class_names) == (36, 9, ("0", "1", "2"))
    assert sorted([*data.train.ids, *data.test.ids]) == np.flatnonzero(given["labels"] >= 0).tolist()
    for part in (data.train, data.test):
        assert np.array_equal(part.labels, given["labels"][part.ids])


@pytest.mark.parametrize("kind", ["images", "features"])
def test_label_minus_one_in_the_training_part(kind: str, tmp_path: Path) -> None:
    train, test = arrays(kind), arrays(kind, 9)
    test["labels"] = np.arange(9) % 3
    named = {f"{part}_{name}": value for part, of in (("train", train), ("test", test)) for name, value in of.items()}
    data = load_dataset(named)  # in Python, without a file
    assert (len(data.train), len(data.test), data.n_unlabelled) == (45, 9, 15)
    together = data.with_unlabelled(data.train)
    assert len(set(together.ids.tolist())) == 60
    assert np.array_equal(together.labels, train["labels"][together.ids])
    values = together.items.gather(together.positions).numpy()
    stored = train[kind].transpose(0, 3, 1, 2) if kind == "images" else train[kind]
    assert np.array_equal(values, stored[together.ids])
    with pytest.raises(DataError, match=r"test labels must be 0 to 2; got -1$"):
        load_dataset({**named, "test_labels": test["labels"] - 1})


def test_no_label_at_all(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", features=np.ones((4, 2)), labels=np.full(4, -1))
    with pytest.raises(DataError) as caught:
        load_npz(tmp_path / "a.npz", LoadOptions())
    requirement = "labels must number the classes from 0, or be -1 for no label"
    assert str(caught.value) == f"{tmp_path / 'a.npz'}: {requirement}; got -1"


def test_other_views_of_a_data_set_keep_them() -> None:
    data = load_dataset(arrays("features", 120))
    pair = data.select_classes(["0", "2"])
    assert set(pair.train.labels) == {0, 1}
    assert pair.n_unlabelled == data.n_unlabelled == 30
    train, held_out = data.validation_split(0.2)
    assert (train.labels >= 0).all()
    assert (held_out.labels >= 0).all()
    assert len(data.with_unlabelled(train)) == len(train) + 30
    assert data.long_tailed(3).n_unlabelled == 30


def test_batches_are_shuffled() -> None:
    labels = arrays("features")["labels"]
    sampler = make_sampler("auto", labels, 20)
    assert sorted(np.concatenate([sampler.batch(step) for step in range(3)])) == list(range(60))
    assert sampler.describe(2)[1] is None  # none is without a positive
    assert sampler.describe(1)[1] is not None
    for name in ("balanced", "p-by-k"):
        with pytest.raises(InputValueError) as caught:
            make_sampler(name, labels, 20)
        requirement = "sampler must be shuffle for data with unlabelled images, which have no classes to balance"
        assert str(caught.value) == f"make_sampler: {requirement}; got {name}"


def test_an_unlabelled_image_has_its_own_views_as_positives() -> None:
    line, _ = make_sampler("shuffle", np.array([0, 0, -1, -1]), 4).describe(2)
    assert line == "batches of 4 images x 2 views: 2.0 positives per anchor"  # 3, 3, 1, 1
