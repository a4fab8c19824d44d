"""Named data sets, on small files in torchvision's formats; downloads are atomic."""

from __future__ import annotations

import hashlib
import itertools
import json
import pickle
import struct
import tarfile
import zlib
from collections.abc import Callable
from http.client import IncompleteRead
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat
from torchvision import datasets

from sincere.catalog import AUGMENTATIONS
from sincere.data.catalog import DATASETS, load_dataset, load_source
from sincere.data.load_options import LoadOptions, home
from sincere.data.views import named_augmentation
from sincere.errors import DataError, InputTypeError, InputValueError

CIFAR10_CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def settings(tmp_path: Path, **changes: Any) -> LoadOptions:
    return LoadOptions(**{"root": tmp_path / "sets", "cache": tmp_path / "cache", "download": False, **changes})


def make_cifar(
    root: Path, monkeypatch: pytest.MonkeyPatch, kind: str, names: list[str], key: str
) -> dict[str, np.ndarray]:
    """Write a small CIFAR in torchvision's format, and its checksums into torchvision's lists."""
    tv = getattr(datasets, kind)
    generator = np.random.default_rng(0)
    folder = root / tv.base_folder
    folder.mkdir(parents=True)
    pixels: dict[str, np.ndarray] = {}

    def write(name: str, content: object) -> str:
        data = pickle.dumps(content)
        (folder / name).write_bytes(data)
        return hashlib.md5(data).hexdigest()

    for attribute in ("train_list", "test_list"):
        entries = []
        for name, _ in getattr(tv, attribute):
            pixels[name] = generator.integers(0, 256, (2 * len(names), 3072), dtype=np.uint8)
            labels = [i % len(names) for i in range(2 * len(names))]
            entries.append([name, write(name, {"data": pixels[name], key: labels})])
        monkeypatch.setattr(tv, attribute, entries)
    meta = {**tv.meta, "md5": write(tv.meta["filename"], {tv.meta["key"]: names})}
    monkeypatch.setattr(tv, "meta", meta)
    return pixels


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


def test_a_damaged_download_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_cifar(tmp_path / "sets", monkeypatch, "CIFAR10", CIFAR10_CLASSES, "labels")
    folder = tmp_path / "sets" / "cifar-10-batches-py"
    (folder / "data_batch_3").write_bytes(b"cut off")
    with pytest.raises(DataError) as caught:
        load_source("cifar10", settings(tmp_path))
    assert str(caught.value) == f"cifar10: {folder} is damaged or incomplete; remove it to download it again"


def test_made_fashion_mnist(tmp_path: Path) -> None:
    raw = tmp_path / "sets" / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for part, n in (("train", 30), ("t10k", 20)):
        images = np.full((n, 28, 28), 7, dtype=np.uint8)
        (raw / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, n, 28, 28) + images.tobytes())
        labels = (np.arange(n) % 10).astype(np.uint8)
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, n) + labels.tobytes())
    data = load_source("fashion-mnist", settings(tmp_path))
    assert data.train.items.shape == (30, 1, 28, 28)
    assert (data.augmentation, data.class_names[0], data.mean) == ("light", "T-shirt/top", (0.28604059,))


def picture(path: Path, shade: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (30 + shade % 7, 24), (shade, 10, 200)).save(path, quality=98)


def make_pets(root: Path) -> None:
    base = root / "oxford-iiit-pet"
    (base / "annotations").mkdir(parents=True)
    for split, numbers in (("trainval", (1, 2)), ("test", (3,))):
        lines = [f"{breed}_{i} {c + 1} 1 1" for c, breed in enumerate(("basset_hound", "Sphynx")) for i in numbers]
        (base / "annotations" / f"{split}.txt").write_text("\n".join(lines) + "\n")
        for line in lines:
            picture(base / "images" / f"{line.split()[0]}.jpg", 50)


def make_dtd(root: Path) -> None:
    base = root / "dtd" / "dtd"
    (base / "labels").mkdir(parents=True)
    for split, numbers in (("train", (1, 2)), ("val", (3,)), ("test", (4,))):
        names = [f"{c}/{c}_{i}.jpg" for c in ("banded", "woven") for i in numbers]
        (base / "labels" / f"{split}1.txt").write_text("\n".join(names) + "\n")
        for name in names:
            picture(base / "images" / name, 50)


def make_aircraft(root: Path) -> None:
    base = root / "fgvc-aircraft-2013b" / "data"
    base.mkdir(parents=True)
    (base / "variants.txt").write_text("A300\nBoeing 717\n")
    for split, numbers in (("trainval", (1, 2)), ("test", (3,))):
        lines = [f"{c}{i} {name}" for c, name in enumerate(("A300", "Boeing 717")) for i in numbers]
        (base / f"images_variant_{split}.txt").write_text("\n".join(lines) + "\n")
        for line in lines:
            picture(base / "images" / f"{line.split()[0]}.jpg", 50)


def make_food(root: Path) -> None:
    base = root / "food-101"
    (base / "meta").mkdir(parents=True)
    for split, numbers in (("train", (1, 2)), ("test", (3,))):
        names = {dish: [f"{dish}/{i}" for i in numbers] for dish in ("apple_pie", "waffles")}
        (base / "meta" / f"{split}.json").write_text(json.dumps(names))
        for name in itertools.chain(*names.values()):
            picture(base / "images" / f"{name}.jpg", 50)


def make_flowers(root: Path) -> None:
    base = root / "flowers-102"
    for i in range(1, 9):
        picture(base / "jpg" / f"image_{i:05d}.jpg", 50)
    savemat(base / "setid.mat", {"trnid": [1, 2, 3, 4], "valid": [5, 6], "tstid": [7, 8]})
    savemat(base / "imagelabels.mat", {"labels": [1, 2, 1, 2, 1, 2, 1, 2]})


def make_cars(root: Path) -> None:
    base = root / "stanford_cars"
    (base / "devkit").mkdir(parents=True)
    kind = [("fname", object), ("class", object)]
    for part, path in (
        ("train", base / "devkit" / "cars_train_annos.mat"),
        ("test", base / "cars_test_annos_withlabels.mat"),
    ):
        rows = [(f"{i}.jpg", i % 2 + 1) for i in range(4 if part == "train" else 2)]
        savemat(path, {"annotations": np.array(rows, dtype=kind)})
        for name, _ in rows:
            picture(base / f"cars_{part}" / name, 50)
    savemat(base / "devkit" / "cars_meta.mat", {"class_names": np.array(["AM General", "Acura"], dtype=object)})


MAKERS: dict[str, tuple[Callable[[Path], None], str]] = {
    "pets": (make_pets, "Basset Hound"),
    "dtd": (make_dtd, "banded"),
    "aircraft": (make_aircraft, "A300"),
    "food101": (make_food, "apple_pie"),
    "flowers102": (make_flowers, "pink primrose"),
    "cars": (make_cars, "AM General"),
}


@pytest.mark.parametrize("name", MAKERS)
def test_made_file_sets_take_the_split_of_the_paper(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, first_class = MAKERS[name]
    make(tmp_path / "sets")
    monkeypatch.setattr(datasets.Flowers102, "_check_integrity", lambda self: True)
    monkeypatch.setattr(datasets.Flowers102, "classes", ["pink primrose", "orchid"])
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
    monkeypatch.setattr(datasets.Flowers102, "_check_integrity", lambda self: True)
    monkeypatch.setattr(datasets.Flowers102, "classes", ["pink primrose", "orchid"])
    train = [path for path in sorted((tmp_path / "sets").rglob("*.jpg")) if "test" not in path.parent.name]
    train[0].unlink()
    with pytest.raises(DataError, match="cannot be read as an image"):
        load_source(name, settings(tmp_path, size=8))
    data = load_source(name, settings(tmp_path, size=8, skip_bad_images=True))
    assert data.notes == ("1 of 4 train images could not be read and were left out",)
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
    with pytest.raises(DataError, match=r"cifar100: is not at .*, and downloads are switched off"):
        load_source("cifar100", settings(tmp_path))


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("cifar-10", "did you mean 'cifar10'?"),
        ("fashion_mnist", "did you mean 'fashion-mnist'?"),
        ("qqq", "the names are digits, cifar2"),
    ],
)
def test_an_unknown_name_or_path(source: str, hint: str) -> None:
    with pytest.raises(DataError) as caught:
        load_dataset(source)
    known = "a data set's name nor a folder nor an .npz or .parquet file"
    assert str(caught.value).startswith(f"data: {source!r} is neither {known};")
    assert hint in str(caught.value)


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
