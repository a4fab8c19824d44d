"""Images and labels in other forms than uint8 (n, h, w, c) and integers give the same data set, or are refused."""

from __future__ import annotations

import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from sincere.data.dataset import Dataset, Samples
from sincere.data.folder import load_folder
from sincere.data.load_options import LoadOptions
from sincere.data.named_arrays import NamedArray
from sincere.data.npz import load_npz
from sincere.data.npz_arrays import square_pixels
from sincere.errors import DataError
from tests.data.test_npz import arrays, write

DIGEST = "512464edcd09fd6f"  # of `arrays()`, from the version that read this form only
PAIRS = {"train_images": "train_labels", "test_images": "test_labels"}


def load(path: Path, **changes: Any) -> Dataset:
    return load_npz(write(path / "a.npz", **changes), LoadOptions())


def message(path: Path, **changes: Any) -> str:
    with pytest.raises(DataError) as caught:
        load(path, **changes)
    text = str(caught.value)
    assert "\n" not in text
    return text.removeprefix(f"{path / 'a.npz'}: ")


def test_a_data_set_is_printed_in_one_line(tmp_path: Path) -> None:
    data = load(tmp_path)
    counts = f"{len(data.train)} training and {len(data.test)} test images"
    assert repr(data) == f"Dataset('a': {counts}, {len(data.class_names)} classes)"
    assert repr(data.train) == f"Samples({len(data.train)} of shape {tuple(data.train.items.shape[1:])})"


def images_as(change: Any) -> dict[str, Any]:
    return {name: change(arrays()[name]) for name in PAIRS}


def labels_as(change: Any) -> dict[str, Any]:
    return {name: change(arrays()[name]) for name in PAIRS.values()}


def pixels_of(images: Samples) -> torch.Tensor:
    return images.items.gather(images.positions)


# Images


def test_the_digest_of_files_in_the_first_form_is_unchanged(tmp_path: Path) -> None:
    grey = images_as(lambda images: images[..., :1])
    three = images_as(lambda images: images[:, :3, :3])
    assert load(tmp_path).digest == DIGEST
    assert load(tmp_path, class_names=None, **grey).digest == "597f8a8244b4006a"
    assert load(tmp_path, **three).digest == "a6ff2b2c607c5946", "(n, 3, 3, 3) is (n, h, w, c)"
    assert load(tmp_path).notes == ()


@pytest.mark.parametrize(
    "change",
    [
        *(lambda images, kind=kind: (images / 255).astype(kind) for kind in ("f2", "f4", "f8", ">f4")),
        *(lambda images, kind=kind: images.astype(kind) for kind in ("i2", "i4", "i8", "u4", "u8", ">i8")),
        lambda images: images.transpose(0, 3, 1, 2),
        lambda images: (images.transpose(0, 3, 1, 2) / 255).astype("f4"),
        np.asfortranarray,
    ],
)
def test_the_same_images_in_other_forms(change: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(tmp_path, **images_as(change)).digest == DIGEST
    monkeypatch.setattr("sincere.data.npz_arrays.CHUNK_VALUES", 7 * 8 * 8 * 3)  # an uneven last chunk
    assert load(tmp_path, **images_as(change)).digest == DIGEST


def test_one_part_may_have_another_form(tmp_path: Path) -> None:
    assert load(tmp_path, test_images=(arrays()["test_images"] / 255).transpose(0, 3, 1, 2)).digest == DIGEST


def test_grey_images_with_the_channel_first(tmp_path: Path) -> None:
    grey = images_as(lambda images: images[..., :1])
    first = {name: images.transpose(0, 3, 1, 2) for name, images in grey.items()}
    assert load(tmp_path, **first).digest == load(tmp_path, **grey).digest


def test_floats_are_rounded(tmp_path: Path) -> None:
    images = np.full((60, 8, 8, 3), 0.5)
    images[0, 0, 0] = [0.49 / 255, 0.51 / 255, 1]
    stored = pixels_of(load(tmp_path, train_images=images).train)
    assert stored[0, :, 0, 0].tolist() == [0, 1, 255]
    assert stored[1].unique().tolist() == [128]


SHAPE = "must have shape (n, h, w, c) or (n, c, h, w) with c = 1 or 3; got "
TYPE = "must be uint8, integers from 0 to 255 or floats from 0 to 1; got "


def floats(low: float, high: float, kind: str = "f4") -> np.ndarray:
    images = np.full((60, 8, 8, 3), low, dtype=kind)
    images[-1] = high
    return images


@pytest.mark.parametrize(
    ("images", "text"),
    [
        (
            np.zeros((60, 8, 8), "u1"),
            SHAPE + "(60, 8, 8). Give grey images a channel axis with train_images[..., None]",
        ),
        (
            np.zeros((60, 8, 8, 4), "u1"),
            SHAPE + "(60, 8, 8, 4). Transparency is not supported; drop the fourth channel with train_images[..., :3]",
        ),
        (
            np.zeros((60, 4, 8, 8), "u1"),
            SHAPE + "(60, 4, 8, 8). Transparency is not supported; drop the fourth channel with train_images[:, :3]",
        ),
        (np.zeros((60, 8, 8, 2), "u1"), SHAPE + "(60, 8, 8, 2)"),
        (np.zeros((60, 192), "u1"), SHAPE + "(60, 192)"),
        (np.zeros((), "u1"), SHAPE + "()"),
        (np.zeros((0, 8, 8, 3), "u1"), "must not be empty; got shape (0, 8, 8, 3)"),
        (np.zeros((60, 0, 8, 3), "u1"), "must not be empty; got shape (60, 0, 8, 3)"),
        (
            np.zeros((60, 8, 8, 3), bool),
            TYPE + "bool. Convert them with train_images.astype('uint8') * 255",
        ),
        (
            np.zeros((60, 8, 8, 3), "u2"),
            TYPE + "uint16. Convert them with train_images.astype('uint8') if they are 0 to 255, "
            "(train_images // 257).astype('uint8') if they are 0 to 65535",
        ),
        (np.zeros((60, 8, 8, 3), "i1"), TYPE + "int8"),
        (np.zeros((60, 8, 8, 3), "c8"), TYPE + "complex64"),
        (np.full((60, 8, 8, 3), "x"), TYPE + "str32"),
        (floats(0, 256, "i8"), "must be integers from 0 to 255; got int64 from 0 to 256"),
        (floats(-1, 7, "i8"), "must be integers from 0 to 255; got int64 from -1 to 7"),
        (
            floats(0, 1, "i8"),
            "must be integers from 0 to 255; got int64 from 0 to 1. Multiply them by 255 if 1 is white",
        ),
        (
            floats(0, 255),
            "must be floats from 0 to 1; got float32 from 0.0 to 255.0. "
            "Divide them by 255, or convert them with train_images.round().astype('uint8')",
        ),
        (
            floats(-1, 1),
            "must be floats from 0 to 1; got float32 from -1.0 to 1.0. "
            "If they are scaled to [-1, 1], use (train_images + 1) / 2",
        ),
        (
            floats(0, 1.0078125),
            "must be floats from 0 to 1; got float32 from 0.0 to 1.0078125. Clip them with train_images.clip(0, 1)",
        ),
        (
            floats(-2.5, 2.5, "f8"),
            "must be floats from 0 to 1; got float64 from -2.5 to 2.5. "
            "Undo their normalisation, or convert them to uint8",
        ),
        *(
            (
                floats(0, value),
                "must be floats from 0 to 1; got float32 with NaN or infinite values. "
                "Leave out the images with such values",
            )
            for value in (np.nan, np.inf, -np.inf)
        ),
        (np.array([{}] * 60), "must be a plain array; got pickled objects, which are never loaded. Save numbers"),
    ],
)
def test_refused_images(images: np.ndarray, text: str, tmp_path: Path) -> None:
    assert message(tmp_path, train_images=images) == f"train_images {text}"


def test_the_array_that_is_wrong_is_named(tmp_path: Path) -> None:
    assert message(tmp_path, test_images=floats(-1, 7, "i8")[:30]).startswith("test_images must be integers")


# Images that are not square


@pytest.mark.parametrize(("height", "width"), [(8, 12), (8, 11), (13, 8)])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_centre_square_is_that_of_image_files(height: int, width: int, channels: int, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (12, height, width, channels), dtype=np.uint8)
    labels = np.repeat([0, 1], 6)
    for i, (image, label) in enumerate(zip(images, labels, strict=True)):
        folder = tmp_path / "png" / f"c{label}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[..., 0] if channels == 1 else image).save(folder / f"{i:02d}.png")
    files = load_folder(tmp_path / "png", LoadOptions(size=8, cache=tmp_path / "cache"))
    np.savez(tmp_path / "a.npz", images=images, labels=labels, class_names=np.array(["c0", "c1"]))
    data = load_npz(tmp_path / "a.npz", LoadOptions())
    assert (data.size, data.mean, data.std, data.class_names) == (8, files.mean, files.std, files.class_names)
    for part, other in ((data.train, files.train), (data.test, files.test)):
        assert np.array_equal(part.ids, other.ids), "split as a folder is"
        assert np.array_equal(part.labels, other.labels)
        assert torch.equal(pixels_of(part), pixels_of(other))
    kept = "the centre 8 x 8 px are kept, as for image files"
    assert data.notes[0] == f"{tmp_path / 'a.npz'}: images are {height} x {width} px (height x width); {kept}"


def test_wide_floats_with_the_channel_first(tmp_path: Path) -> None:
    wide = images_as(lambda images: images[:, :6])
    other = {name: (images / 255).transpose(0, 3, 1, 2) for name, images in wide.items()}
    assert load(tmp_path, **wide).digest == load(tmp_path, **other).digest
    assert torch.equal(
        pixels_of(load(tmp_path, **wide).test), torch.from_numpy(wide["test_images"][:, :, 1:7]).permute(0, 3, 1, 2)
    )


def test_sizes_that_only_the_crop_would_make_equal_are_refused(tmp_path: Path) -> None:
    wide = {"train_images": arrays()["train_images"][:, :6], "test_images": arrays()["test_images"][:, :, :6]}
    assert message(tmp_path, **wide) == "train_images and test_images must be of one size; got (6, 8, 3) and (8, 6, 3)"


# Labels


def words(labels: np.ndarray) -> np.ndarray:
    return np.array(["bird", "cat", "dog"])[labels]


@pytest.mark.parametrize(
    "change", [words, lambda labels: words(labels).astype("S"), lambda labels: words(labels).astype(">U9")]
)
@pytest.mark.parametrize("named", [True, False])
def test_strings(change: Any, named: bool, tmp_path: Path) -> None:
    data = load(tmp_path, **labels_as(change), **({} if named else {"class_names": None}))
    assert (data.class_names, data.digest) == (("bird", "cat", "dog"), DIGEST)


def test_class_names_give_the_order_of_strings(tmp_path: Path) -> None:
    data = load(tmp_path, **labels_as(words), class_names=np.array([b"dog", b"bird", b"cat"]))
    assert data.class_names == ("dog", "bird", "cat")
    assert data.train.labels[:4].tolist() == [1, 2, 0, 1]


def test_classes_of_both_parts_count(tmp_path: Path) -> None:
    text = message(tmp_path, **labels_as(words) | {"test_labels": np.array(["ant"] * 30)}, class_names=None)
    assert text == "a: class 'ant' has no training image"


def test_bytes_are_utf8(tmp_path: Path) -> None:
    named = labels_as(lambda labels: np.array(["bird", "chat", "h\u00e9ron"])[labels])
    encoded = {name: np.char.encode(labels, "utf-8") for name, labels in named.items()}
    assert load(tmp_path, **encoded, class_names=None).class_names == ("bird", "chat", "h\u00e9ron")
    assert load(tmp_path, **encoded, class_names=None).digest == load(tmp_path, **named, class_names=None).digest
    latin = labels_as(lambda labels: np.array([b"bird", b"chat", b"h\xe9ron"])[labels])
    assert message(tmp_path, **latin, class_names=None).startswith("train_labels must be UTF-8; 'utf-8' codec can't")


LABELS = "must be integers or strings of shape (60,); got "


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (np.arange(60) % 3.0, LABELS + "float64 of shape (60,). Convert them with train_labels.astype(int)"),
        (np.arange(60) / 2, LABELS + "float64 of shape (60,)"),
        (np.full(60, np.nan), LABELS + "float64 of shape (60,)"),
        (np.arange(60) % 2 == 0, LABELS + "bool of shape (60,)"),
        (np.zeros((60, 1), int), LABELS + "int64 of shape (60, 1). Flatten them with train_labels.ravel()"),
        (np.array("cat"), LABELS + "<U3 of shape ()"),
        (np.array(["cat"] * 59), LABELS + "<U3 of shape (59,)"),
        (np.arange(60).astype("M8[s]"), LABELS + "datetime64[s] of shape (60,)"),
        (
            words(np.arange(60) % 3).astype(object),
            "must be a plain array; got pickled objects, which are never loaded. Save train_labels.astype(str)",
        ),
        (np.array(["cat", "dog", ""] * 20), "must not be empty strings; got one at position 2"),
        (np.array(["cat", "x" * 1000] * 30), "must have at most 255 characters each; got one of 1,000"),
    ],
)
def test_refused_labels(labels: np.ndarray, text: str, tmp_path: Path) -> None:
    assert message(tmp_path, train_labels=labels) == f"train_labels {text}"


def test_strings_must_be_among_the_class_names(tmp_path: Path) -> None:
    text = message(tmp_path, **labels_as(words), class_names=np.array(["cat", "dog"]))
    assert text == "class_names must name every label; got none for 'bird'"


def test_integers_and_strings_are_not_mixed(tmp_path: Path) -> None:
    text = message(tmp_path, train_labels=words(arrays()["train_labels"]))
    assert text == "train_labels and test_labels must both be integers or both be strings; got <U4 and int64"


# No test part


NO_TEST = {"test_images": None, "test_labels": None}


@pytest.mark.parametrize("strings", [True, False])
@pytest.mark.parametrize("prefix", ["train_", ""])
def test_without_a_test_part_the_file_is_split(prefix: str, strings: bool, tmp_path: Path) -> None:
    images, labels = arrays()["train_images"], arrays()["train_labels"]
    given = {"train_images": None, "train_labels": None, **NO_TEST}
    given |= {f"{prefix}images": images, f"{prefix}labels": words(labels) if strings else labels}
    path = write(tmp_path / "a.npz", **given)
    data = load_npz(path, LoadOptions())
    assert (len(data.train), len(data.test)) == (48, 12)
    assert np.bincount(data.test.labels).tolist() == [4, 4, 4]
    assert sorted([*data.train.ids, *data.test.ids]) == list(range(60)), "no id is in both parts"
    for part in (data.train, data.test):
        assert np.array_equal(part.labels, labels[part.ids])
        assert torch.equal(pixels_of(part), torch.from_numpy(images[part.ids]).permute(0, 3, 1, 2))
    np.testing.assert_allclose(data.mean, images[data.train.ids].reshape(-1, 3).mean(0) / 255, rtol=1e-9)
    split = "it was split by class into 48 images for training and 12 for testing"
    assert data.notes == (f"{path}: has no test part; {split} (seed 0)",)
    assert load_npz(path, LoadOptions()).digest == data.digest
    other = load_npz(path, LoadOptions(seed=1))
    assert set(other.test.ids) != set(data.test.ids)
    assert other.notes[0].endswith("(seed 1)")


def test_a_class_of_one_image_cannot_be_split(tmp_path: Path) -> None:
    labels = np.arange(60) % 2
    labels[7] = 2
    requirement = "class 'dog' has a single image, which cannot be split in two parts"
    expected = f"{requirement}; add more, or add test_images and test_labels"
    assert message(tmp_path, **NO_TEST, train_labels=labels) == expected


def test_a_negative_label_cannot_be_split(tmp_path: Path) -> None:
    text = message(tmp_path, **NO_TEST, train_labels=np.arange(60) % 3 - 2)
    assert text == "train_labels must number the classes from 0, or be -1 for no label; got -2"


@pytest.mark.parametrize(
    ("present", "text"),
    [
        (
            ("train_images", "train_labels", "test_images"),
            "array 'test_labels' is missing; it has test_images, train_images, train_labels",
        ),
        (
            ("train_images", "train_labels", "test_labels"),
            "array 'test_images' is missing; it has test_labels, train_images, train_labels",
        ),
        (("test_images", "test_labels"), "array 'train_images' is missing; it has test_images, test_labels"),
        (("images",), "array 'labels' is missing; it has images"),
        (("train_images",), "array 'train_labels' is missing; it has train_images"),
        (("x_train",), "must have train_images or train_features, with train_labels; it has x_train"),
        (
            ("images", "labels", "train_images", "train_labels"),
            "has train_images or train_labels beside images or labels, and no test part; "
            "keep one pair, or name the other test_images and test_labels",
        ),
    ],
)
def test_incomplete_parts(present: tuple[str, ...], text: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **dict.fromkeys(present, np.zeros(3)))
    with pytest.raises(DataError) as caught:
        load_npz(tmp_path / "a.npz", LoadOptions())
    assert str(caught.value) == f"{tmp_path / 'a.npz'}: {text}"


def test_other_arrays_are_ignored_where_both_parts_are_there(tmp_path: Path) -> None:
    assert load(tmp_path, images=np.zeros(3), labels=np.array([{}])).digest == DIGEST


# Files


def test_an_array_with_an_archive_behind_it(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.zeros(3))
    path = tmp_path / "a.npz"
    path.write_bytes((tmp_path / "one.npy").read_bytes())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("train_images.npy", b"")
    with pytest.raises(DataError) as caught:
        load_npz(path, LoadOptions())
    assert str(caught.value) == f"{path}: is not a readable .npz (one array, no archive of arrays)"


def test_conversion_takes_a_block_beside_images_and_result() -> None:
    images = NamedArray(Path("a.npz"), "images", np.zeros((4000, 32, 40, 3), dtype=np.float32))
    tracemalloc.start()
    try:
        result = square_pixels(images)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < result.nbytes + 40e6, "the images are 61 MB, and would be 123 MB as float64"
