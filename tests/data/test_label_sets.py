"""Data whose samples may have several labels: matrices in an .npz, arrays in Python, and folders with a labels.csv."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sincere.data.catalog import load_dataset
from sincere.data.identity import source_digest
from sincere.data.samplers import ShuffleSampler, make_sampler
from sincere.data.splits import split_label_sets
from sincere.errors import DataError, InputValueError
from tests.data.label_set_data import (
    N_TEST,
    N_TRAIN,
    NAMES,
    features,
    label_sets,
    pictures,
    save_features,
    save_folder,
    save_images,
)


def test_images_of_an_npz(tmp_path: Path) -> None:
    data = load_dataset(save_images(tmp_path / "i.npz"))
    assert data.have_label_sets
    assert data.class_names == NAMES
    assert np.array_equal(data.train.labels, label_sets(N_TRAIN, 0))
    assert np.array_equal(data.test.labels, label_sets(N_TEST, 1))
    assert data.train.class_sizes(4).tolist() == label_sets(N_TRAIN, 0).sum(axis=0).tolist()
    assert not load_dataset("digits").have_label_sets


def test_features_of_an_npz_and_arrays_in_python(tmp_path: Path) -> None:
    data = load_dataset(save_features(tmp_path / "f.npz"))
    assert data.class_names == ("0", "1", "2", "3")
    train, test = label_sets(N_TRAIN, 0), label_sets(N_TEST, 1)
    given = load_dataset(((features(train, 0), train), (features(test, 1), test.tolist())))
    assert given.digest == data.digest
    train[0, 0] = 1 - train[0, 0]
    assert load_dataset(((features(label_sets(N_TRAIN, 0), 0), train), (features(test, 1), test))).digest != data.digest


def test_without_a_test_part_it_is_split() -> None:
    labels = label_sets(100, 0)
    data = load_dataset({"images": pictures(labels, 0), "labels": labels})
    assert len(data.train) + len(data.test) == 100
    assert 16 <= len(data.test) <= 24
    assert np.array_equal(data.test.labels, labels[data.test.ids])
    assert "was split by rarest label into" in data.notes[0]


def test_the_split_keeps_single_images_for_training_and_shares_every_label() -> None:
    labels = np.zeros((203, 3), dtype=np.int64)
    labels[:100, 0] = labels[50:150, 1] = 1
    labels[7, 2] = 1  # a label of one image
    rest, held_out = split_label_sets(labels, 0.2, seed=3)
    assert sorted([*rest, *held_out]) == list(range(203))
    assert 7 in rest
    assert abs(labels[held_out, 0].sum() - 20) <= 2
    assert abs(labels[held_out, 1].sum() - 20) <= 2
    assert ((held_out >= 150).sum()) in (10, 11)  # without a label
    assert np.array_equal(split_label_sets(labels, 0.2, seed=3)[1], held_out)
    assert not np.array_equal(split_label_sets(labels, 0.2, seed=4)[1], held_out)
    assert len(split_label_sets(np.eye(3, dtype=np.int64), 0.2)[1]) == 0


def test_a_validation_split(tmp_path: Path) -> None:
    data = load_dataset(save_images(tmp_path / "i.npz"))
    train, held_out = data.validation_split(0.25, seed=1)
    assert len(train) + len(held_out) == N_TRAIN
    assert abs(len(held_out) - 40) <= 4
    assert not set(train.ids) & set(held_out.ids)


TRAIN = label_sets(N_TRAIN, 0)
ZEROS_AND_ONES = "train_labels of shape (160, 4) must be 0 or 1, whether a sample has each label"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"train_labels": 2 * TRAIN},
            f"{ZEROS_AND_ONES}; got 2. One label per sample has shape (160,)",
        ),
        (
            {"train_labels": TRAIN + 0.5},
            "train_labels of shape (160, 4) must be 0 or 1, whether a sample has each label",
        ),
        ({"train_labels": TRAIN[1:]}, "train_labels must be integers or strings of shape (160,); got int64 of shape"),
        (
            {"test_labels": label_sets(N_TEST, 1)[:, :3]},
            "train_labels and test_labels must have the same number of labels; got shapes (160, 4) and (80, 3)",
        ),
        (
            {"test_labels": np.arange(N_TEST) % 4},
            "train_labels and test_labels must have the same number of labels; got shapes (160, 4) and (80,)",
        ),
        ({"class_names": np.array(["a", "b"])}, "class_names must name the 4 labels; got 2 names"),
        ({"train_labels": TRAIN * [1, 1, 1, 0]}, "label 'frame' has no training image"),
        ({"test_labels": np.zeros((N_TEST, 4), dtype=int)}, "no test image has a label"),
        ({"train_labels": TRAIN[:, :1]}, "Flatten them with train_labels.ravel()"),
    ],
)
def test_wrong_matrices_are_refused(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    with np.load(save_images(tmp_path / "i.npz")) as file:
        arrays = {**file, **changed}
    with pytest.raises(DataError, match=re.escape(message)):
        load_dataset(arrays)


@pytest.mark.parametrize(
    ("options", "name"),
    [({"classes": ["bar", "dot"]}, "classes"), ({"imbalance": 3}, "imbalance")],
)
def test_what_needs_classes_is_refused(options: dict[str, Any], name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load_dataset(save_images(tmp_path / "i.npz"), **options)
    assert str(caught.value) == f"{name}: needs one label per image; i has label sets"
    data = load_dataset(tmp_path / "i.npz")
    with pytest.raises(DataError, match="unknown_classes: needs one label per image; i has label sets"):
        data.leave_out(["bar"])


def test_a_folder_is_split_and_its_labels_are_those_of_the_file(tmp_path: Path) -> None:
    data = load_dataset(save_folder(tmp_path / "photos"))
    labels = label_sets(40, 0)
    assert data.class_names == NAMES
    assert len(data.train) + len(data.test) == 40
    assert set(data.train.ids).isdisjoint(data.test.ids)
    assert data.train.texts is not None
    for part in (data.train, data.test):
        assert part.texts is not None
        numbers = [int(name[-7:-4]) for name in part.texts.tolist()]
        assert np.array_equal(part.labels, labels[numbers])
    assert any("has no column split; its images were split by rarest label into" in note for note in data.notes)
    assert load_dataset(tmp_path / "photos", seed=1).digest != data.digest


def test_a_folder_with_a_column_for_the_parts(tmp_path: Path) -> None:
    data = load_dataset(save_folder(tmp_path / "photos", split=True))
    assert (len(data.train), len(data.test)) == (30, 10)
    assert not any("split" in note for note in data.notes)


def test_images_without_a_line_are_left_out_with_a_note(tmp_path: Path) -> None:
    root = save_folder(tmp_path / "photos", split=True)
    lines = (root / "labels.csv").read_text().splitlines()
    (root / "labels.csv").write_text("\n".join(line for line in lines if not line.startswith(("002", "sub/001"))))
    data = load_dataset(root)
    assert len(data.train) + len(data.test) == 38
    note = f"{root / 'labels.csv'}: has no line for 2 of 40 images, which are left out: 002.png, sub/001.png"
    assert note in data.notes


def test_empty_lines_spaces_and_a_byte_order_mark_do_not_matter(tmp_path: Path) -> None:
    root = save_folder(tmp_path / "photos", split=True)
    expected = load_dataset(root).digest
    text = (root / "labels.csv").read_text().replace(",", " , ").replace(";", " ; ;").replace("sub/", "./sub/")
    (root / "labels.csv").write_text("\ufeff" + text.replace("\n", "\r\n\r\n"))
    assert load_dataset(root).digest == expected


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("002.png,", "none.png,", "line 4: there is no image none.png below {root}"),
        ("002.png,", "../002.png,", "line 4: there is no image ../002.png below {root}"),
        ("002.png,", "000.png,", "line 4: 000.png has a line already; put all its labels in one line"),
        ("file,labels", "id,breed", "the first line must be file,labels or file,labels,split; got id,breed. Give it "
         "another name if the folders are the classes"),
        ("002.png,", "002.png,bar,dot,", "line 4 must have 2 columns, with ; or | between labels; got 4"),
        ("file,labels", "file,labels,split", "line 2 must have 3 columns, with ; or | between labels; got 2"),
        ("002.png,", "002\0.png,", "line 4: there is no image 002\\x00.png below {root}"),
    ],
)  # fmt: skip
def test_a_wrong_labels_csv_is_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    root = save_folder(tmp_path / "photos")
    text = (root / "labels.csv").read_text()
    (root / "labels.csv").write_text(text.replace(old, new, 1))
    with pytest.raises(DataError) as caught:
        load_dataset(root)
    assert message.format(root=root) in str(caught.value)
    assert str(caught.value).startswith(str(root / "labels.csv"))
    assert "\n" not in str(caught.value)


def test_a_wrong_part_or_none_is_refused(tmp_path: Path) -> None:
    root = save_folder(tmp_path / "photos", split=True)
    text = (root / "labels.csv").read_text()
    (root / "labels.csv").write_text(text.replace(",train", ",val", 1))
    with pytest.raises(DataError, match=r"line 3: split must be train or test; got val"):
        load_dataset(root)
    (root / "labels.csv").write_text(text.replace(",train", ",test"))
    with pytest.raises(DataError, match=r"labels.csv: the train part has no images"):
        load_dataset(root)
    (root / "labels.csv").write_bytes(b"file,labels\n\xff.png,x\n")
    with pytest.raises(DataError, match="cannot be read as CSV in UTF-8"):
        load_dataset(root)


def test_the_hash_of_the_files_covers_the_labels(tmp_path: Path) -> None:
    root = save_folder(tmp_path / "photos")
    before = source_digest(str(root))
    text = (root / "labels.csv").read_text()
    (root / "labels.csv").write_text(text.replace("002.png,", "002.png,bar;", 1))
    assert source_digest(str(root)) != before


def test_batches_are_shuffled_and_described() -> None:
    labels = np.array([[1, 0], [1, 1], [0, 1], [0, 0]])
    sampler = make_sampler("auto", labels, 4)
    assert isinstance(sampler, ShuffleSampler)
    line, warning = sampler.describe(2)
    # With two views: 3, 5, 3 and 1 positives.
    assert line == "batches of 4 images x 2 views: 3.0 positives per anchor"
    assert warning is None
    assert sampler.describe(1)[1] == "25% of the anchors have no positive and contribute nothing to the loss"
    for name in ("balanced", "p-by-k"):
        with pytest.raises(InputValueError) as caught:
            make_sampler(name, labels, 4)
        requirement = "sampler must be shuffle for label sets, which have no classes to balance"
        assert str(caught.value) == f"make_sampler: {requirement}; got {name}"
