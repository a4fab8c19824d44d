"""Named data sets, on small files in torchvision's formats; downloads are atomic."""

from __future__ import annotations

import tarfile
import zlib
from dataclasses import replace
from http.client import IncompleteRead
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import torch
from torchvision import datasets

from sincere.catalog import AUGMENTATIONS
from sincere.data.catalog import DATASETS, load_dataset, load_source
from sincere.data.identity import source_digest
from sincere.data.load_options import LoadOptions, home
from sincere.data.views import named_augmentation
from sincere.errors import DataError, InputTypeError, InputValueError
from tests.data.made_sets import (
    CIFAR10_CLASSES,
    MAKERS,
    allow_made_flowers,
    make_cars,
    make_cifar,
    make_dtd,
    make_fashion_mnist,
    picture,
)


def settings(tmp_path: Path, **changes: Any) -> LoadOptions:
    return LoadOptions(**{"root": tmp_path / "sets", "cache": tmp_path / "cache", "download": False, **changes})


def test_made_cifar10_and_its_cats_and_dogs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = make_cifar(tmp_path / "sets", monkeypatch, "CIFAR10", CIFAR10_CLASSES, "labels")
    data = load_source("cifar10", settings(tmp_path))
    assert (len(data.train), len(data.test), data.size) == (100, 20, 32)
    assert data.class_names == tuple(CIFAR10_CLASSES)
    assert data.mean == pytest.approx((0.4914, 0.4822, 0.4465), abs=1e-4), "the published ones"
    expected = torch.from_numpy(pixels["data_batch_2"][3].reshape(3, 32, 32))
    assert torch.equal(data.train.items.gather(np.array([23]))[0], expected)

    pair = load_source("cifar2", settings(tmp_path))
    assert (pair.name, pair.class_names, len(pair.train), len(pair.test)) == ("cifar2", ("cat", "dog"), 20, 4)
    assert pair.test.ids.tolist() == [3, 5, 13, 15], "test images keep the ids they have in CIFAR-10"
    filtered = load_source("cifar10", settings(tmp_path), classes=["cat", "dog"])
    assert np.array_equal(filtered.train.ids, pair.train.ids)


def test_made_cifar100(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"thing{i:03d}" for i in range(100)]
    make_cifar(tmp_path / "sets", monkeypatch, "CIFAR100", names, "fine_labels")
    data = load_source("cifar100", settings(tmp_path))
    assert (len(data.train), len(data.test), len(data.class_names)) == (200, 200, 100)


def test_an_npz_file_may_stand_for_a_named_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DATASETS, "cifar10", replace(DATASETS["cifar10"], n_train=40, n_test=20))
    root = tmp_path / "sets"
    root.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    labels = np.arange(40) % 10
    arrays = {"train_images": pixels, "train_labels": labels, "test_images": pixels[:20], "test_labels": labels[:20]}
    np.savez(root / "cifar10.npz", **arrays, class_names=np.array(CIFAR10_CLASSES))
    data, pair = (load_source(name, settings(tmp_path)) for name in ("cifar10", "cifar2"))
    assert DATASETS["cifar2"].on_disk(root)
    assert (data.name, len(data.train), data.augmentation) == ("cifar10", 40, "paper")
    assert data.mean == pytest.approx((0.4914, 0.4822, 0.4465), abs=1e-4), "the published ones"
    assert (pair.name, pair.class_names, len(pair.train)) == ("cifar2", ("cat", "dog"), 8)
    first = source_digest("cifar10", root)
    assert first == source_digest("cifar2", root) is not None
    np.savez(root / "cifar10.npz", **arrays | {"train_images": pixels[::-1]}, class_names=np.array(CIFAR10_CLASSES))
    assert source_digest("cifar10", root) != first
    np.savez(root / "fashion-mnist.npz", **arrays)
    with pytest.raises(DataError, match=r"fashion-mnist\.npz must hold 60,000 training and 10,000 test images of 10"):
        load_source("fashion-mnist", settings(tmp_path))


def test_a_damaged_download_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_cifar(tmp_path / "sets", monkeypatch, "CIFAR10", CIFAR10_CLASSES, "labels")
    folder = tmp_path / "sets" / "cifar-10-batches-py"
    (folder / "data_batch_3").write_bytes(b"cut off")
    with pytest.raises(DataError) as caught:
        load_source("cifar10", settings(tmp_path))
    assert str(caught.value) == f"cifar10: {folder} is damaged or incomplete; remove it to download it again"


def test_made_fashion_mnist(tmp_path: Path) -> None:
    make_fashion_mnist(tmp_path / "sets")
    data = load_source("fashion-mnist", settings(tmp_path))
    assert data.train.items.shape == (30, 1, 28, 28)
    assert (data.augmentation, data.class_names[0], data.mean) == ("light", "T-shirt/top", (0.28604059,))


@pytest.mark.parametrize("name", MAKERS)
def test_made_file_sets_take_the_split_of_the_paper(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, first_class = MAKERS[name]
    make(tmp_path / "sets")
    allow_made_flowers(monkeypatch)
    data = load_source(name, settings(tmp_path, size=8))
    assert DATASETS[name].on_disk(tmp_path / "sets")
    assert (len(data.train), len(data.test), len(data.class_names)) == (4, 2, 2)
    assert np.bincount(data.train.labels).tolist() == [2, 2]
    assert data.class_names[0] == first_class
    assert data.train.items.shape[1:] == data.test.items.shape[1:]
    monkeypatch.setattr("sincere.data.image_files.channel_statistics", None)  # mean and standard deviation are cached
    assert load_source(name, settings(tmp_path, size=8)).mean == data.mean


@pytest.mark.parametrize("name", MAKERS)
def test_a_listed_file_that_is_missing_is_a_bad_image(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    MAKERS[name][0](tmp_path / "sets")
    allow_made_flowers(monkeypatch)
    train = [path for path in sorted((tmp_path / "sets").rglob("*.jpg")) if "test" not in path.parent.name]
    train[0].unlink()
    with pytest.raises(DataError, match="cannot be read as an image"):
        load_source(name, settings(tmp_path, size=8))
    data = load_source(name, settings(tmp_path, size=8, skip_bad_images=True))
    [note] = data.notes
    assert note.startswith("1 of 4 train images could not be read and were left out: ")
    assert note.endswith(str(train[0].relative_to(tmp_path / "sets")).split("/", 1)[1])
    missing = {"pets": 2}.get(name, 0)  # its list does not follow the names
    assert data.train.ids.tolist() == [i for i in range(4) if i != missing], "ids count what is listed"


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("pets", "annotations/trainval.txt"),
        ("dtd", "dtd/labels/train1.txt"),
        ("aircraft", "data/images_variant_trainval.txt"),
        ("food101", "meta/train.json"),
        ("flowers102", "setid.mat"),
        ("cars", "devkit/cars_train_annos.mat"),
    ],
)
@pytest.mark.parametrize("content", [b"", b"x", b"\x00\xff\xfe damaged {\n1 2 3"])
def test_damaged_lists_give_one_line(
    name: str, file: str, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    MAKERS[name][0](tmp_path / "sets")
    monkeypatch.setattr(datasets.Flowers102, "_check_integrity", lambda self: True)
    folder = tmp_path / "sets" / str(DATASETS[name].folder)
    (folder / file).write_bytes(content)
    with pytest.raises(DataError) as caught:
        load_source(name, settings(tmp_path, size=8))
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


def test_missing_cars_name_the_files_needed(tmp_path: Path) -> None:
    make_cars(tmp_path / "sets")
    folder = tmp_path / "sets" / "stanford_cars"
    (folder / "cars_test_annos_withlabels.mat").unlink()
    with pytest.raises(DataError) as caught:
        load_source("cars", settings(tmp_path))
    needed = "cars_train/, cars_test/, devkit/ and cars_test_annos_withlabels.mat"
    assert str(caught.value) == f"cars: {folder} is damaged or incomplete; it needs {needed}"


def test_imagenet100_is_the_users_folder(tmp_path: Path) -> None:
    for part in ("train", "val"):
        for c in ("n01", "n02"):
            picture(tmp_path / "sets" / "imagenet100" / part / c / "1.jpg", 50)
    data = load_source("imagenet100", settings(tmp_path))
    assert (data.name, data.class_names, data.size) == ("imagenet100", ("n01", "n02"), 24)
    (tmp_path / "sets" / "imagenet100").rename(tmp_path / "elsewhere")
    (tmp_path / "sets" / "imagenet100").symlink_to(tmp_path / "elsewhere")
    assert load_source("imagenet100", settings(tmp_path)).name == "imagenet100"


def test_digits_need_no_download_and_are_never_mirrored(tmp_path: Path) -> None:
    data = load_source("digits", settings(tmp_path))
    named = DATASETS["digits"]
    assert (len(data.train), len(data.test)) == (named.n_train, named.n_test)
    assert np.bincount(data.test.labels).min() >= 35
    assert sorted([*data.train.ids, *data.test.ids]) == list(range(1797)), "ids are those of scikit-learn's set"
    assert int(data.train.items.gather(data.train.positions).max()) == 255
    assert not data.mirror_is_same_class
    assert named_augmentation("light", mirror_is_same_class=False).flip == 0
    assert named_augmentation("light") is AUGMENTATIONS["light"]
    with pytest.raises(InputValueError, match="Did you mean 'light'"):
        named_augmentation("lite")


@pytest.mark.parametrize("name", [name for name, named in DATASETS.items() if named.folder])
@pytest.mark.parametrize(
    "error",
    [URLError("no route to host\nand more"), IncompleteRead(b""), tarfile.ReadError("cut"), zlib.error(), ValueError()],
    ids=repr,
)
def test_without_network_one_line_and_nothing_half_written(
    name: str, error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr("urllib.request.urlopen", fail)
    monkeypatch.setattr("torchvision.datasets.utils._urlretrieve", fail)
    with pytest.raises(DataError) as caught:
        load_source(name, settings(tmp_path, download=True))
    message = str(caught.value)
    assert message.startswith(name.replace("cifar2", "cifar10") + ": ")
    assert str(tmp_path / "sets" / str(DATASETS[name].folder)) in message
    assert "\n" not in message
    assert [path for path in tmp_path.rglob("*") if path.name != "sets"] == [], "nothing half-written"


def test_a_download_is_published_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.DTD, "_download", lambda self: make_dtd(Path(self.root)))
    data = load_source("dtd", settings(tmp_path, download=True))
    assert len(data.train) == 4
    assert [path.name for path in (tmp_path / "sets").iterdir()] == ["dtd"]


def test_downloads_can_be_switched_off(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cifar-100-python or .*cifar100\.npz, and downloads are switched off"):
        load_source("cifar100", settings(tmp_path))


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("cifar-10", "did you mean 'cifar10'?"),
        ("fashion_mnist", "did you mean 'fashion-mnist'?"),
        ("qqq", "the names of data sets are digits, cifar2"),
    ],
)
def test_an_unknown_name_or_path(source: str, hint: str) -> None:
    with pytest.raises(DataError) as caught:
        load_dataset(source)
    assert str(caught.value).startswith(
        f"data: {source!r} does not exist as a folder or file, and is no data set's name;"
    )
    assert hint in str(caught.value)


def test_a_misspelt_folder(tmp_path: Path) -> None:
    (tmp_path / "my pictures").mkdir()
    with pytest.raises(DataError, match=f"did you mean '{tmp_path / 'my pictures'}'"):
        load_dataset(str(tmp_path / "my picture"))


def test_an_empty_name_is_not_the_current_folder() -> None:
    with pytest.raises(DataError, match="data: must not be empty; the names are digits, cifar2"):
        load_dataset("")


@pytest.mark.parametrize(
    ("size", "error", "got"),
    [
        (0, InputValueError, "0"),
        (-5, InputValueError, "-5"),
        (2.5, InputTypeError, "float"),
        ("8", InputTypeError, "str"),
    ],
)
def test_bad_sizes(size: Any, error: type[Exception], got: str) -> None:
    with pytest.raises(error) as caught:
        LoadOptions(size=size)
    assert str(caught.value) == f"load_dataset: size must be an integer of at least 1; got {got}"


def test_home_is_chosen_by_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SINCERE_HOME", str(tmp_path))
    assert home() == tmp_path
    assert LoadOptions().root == tmp_path / "datasets"
    monkeypatch.delenv("SINCERE_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert home() == tmp_path / "x" / "sincere"


def test_real_size_is_kept_or_changed(tmp_path: Path) -> None:
    assert load_source("digits", settings(tmp_path, size=16)).size == 16
