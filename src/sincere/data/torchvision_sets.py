"""The data sets of the paper, loaded through torchvision, which downloads and verifies them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sincere.data.catalog import DATASETS
from sincere.data.class_folders import LabelledFiles, labelled_files
from sincere.data.dataset import Dataset, all_samples, channel_statistics, check_dataset
from sincere.data.folder import load_folder
from sincere.data.image_files import files_dataset
from sincere.data.listing import file_list
from sincere.data.load_options import LoadOptions
from sincere.data.npz import load_npz
from sincere.data.pixel_storage import place_images
from sincere.data.splits import stratified_split
from sincere.errors import DataError, first_line
from sincere.records.files import publish_folder

Statistics = tuple[tuple[float, ...], tuple[float, ...]]
CIFAR10_STATISTICS: Statistics = ((0.49139968, 0.48215841, 0.44653091), (0.24703223, 0.24348513, 0.26158784))
CIFAR100_STATISTICS: Statistics = ((0.50707516, 0.48654887, 0.44091784), (0.26733429, 0.25643846, 0.27615047))
FASHION_STATISTICS: Statistics = ((0.28604059,), (0.35302424,))
_CARS_FILES = "cars_train/, cars_test/, devkit/ and cars_test_annos_withlabels.mat"


def digits(options: LoadOptions) -> Dataset:
    """Handwritten digits, 8 x 8 grey, shipped with scikit-learn: a fixed stratified 80/20 split."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    pixels = np.round(bunch.images[..., None] * (255 / 16)).astype(np.uint8)
    train, test = (
        all_samples(place_images(pixels[chosen], options.device), bunch.target[chosen], ids=chosen)
        for chosen in stratified_split(bunch.target, 0.2, seed=0)
    )
    mean, std = channel_statistics(train)
    names = tuple(map(str, bunch.target_names))
    return check_dataset(
        Dataset("digits", train, test, names, options.input_size(8), mean, std, "digits", mirror_is_same_class=False)
    )


def cifar10(options: LoadOptions) -> Dataset:
    """CIFAR-10."""
    return _arrays("cifar10", "CIFAR10", options, CIFAR10_STATISTICS)


def cifar2(options: LoadOptions) -> Dataset:
    """The cats and dogs of CIFAR-10, with its mean and standard deviation."""
    return replace(cifar10(options).select_classes(["cat", "dog"]), name="cifar2")


def cifar100(options: LoadOptions) -> Dataset:
    """CIFAR-100, fine labels."""
    return _arrays("cifar100", "CIFAR100", options, CIFAR100_STATISTICS)


def fashion_mnist(options: LoadOptions) -> Dataset:
    """Fashion-MNIST."""
    return _arrays("fashion-mnist", "FashionMNIST", options, FASHION_STATISTICS)


def imagenet100(options: LoadOptions) -> Dataset:
    """ImageNet-100: the user's copy, with train/ and val/; its classes are those of the folders."""
    folder = options.root / "imagenet100"
    if not folder.is_dir():
        raise DataError(
            f"imagenet100: has no download; put your copy at {folder}, with train/ and val/ of class folders"
        )
    return load_folder(folder, options, name="imagenet100")


def pets(options: LoadOptions) -> Dataset:
    """Oxford-IIIT Pet: trainval and test."""
    return _files("pets", "OxfordIIITPet", options, {"split": "trainval"})


def dtd(options: LoadOptions) -> Dataset:
    """Describable Textures, partition 1: train without val, and test."""
    return _files("dtd", "DTD", options, {"split": "train"})


def aircraft(options: LoadOptions) -> Dataset:
    """FGVC Aircraft, variants: trainval and test."""
    return _files("aircraft", "FGVCAircraft", options, {"split": "trainval"})


def food101(options: LoadOptions) -> Dataset:
    """Food-101."""
    return _files("food101", "Food101", options, {"split": "train"})


def flowers102(options: LoadOptions) -> Dataset:
    """Flowers-102: train without val, and test."""
    return _files("flowers102", "Flowers102", options, {"split": "train"})


def cars(options: LoadOptions) -> Dataset:
    """Stanford Cars, whose download no longer works."""
    folder = options.root / "stanford_cars"
    if not folder.is_dir():
        raise DataError(f"cars: has no working download any more; put {_CARS_FILES} into {folder}")
    return _files("cars", "StanfordCars", options, {"split": "train"})


def _arrays(name: str, kind: str, options: LoadOptions, statistics: Statistics) -> Dataset:
    """Load a torchvision data set that is stored as arrays, or the .npz file that stands for it."""
    if (path := DATASETS[name].array_file(options.root)) is not None:
        data, known = load_npz(path, options), DATASETS[name]
        counts = len(data.train), len(data.test), len(data.class_names), data.train.items.shape[1]
        if counts != (known.n_train, known.n_test, known.n_classes, len(statistics[0])):
            wanted = f"{known.n_train:,} training and {known.n_test:,} test images of {known.n_classes} classes"
            raise DataError(f"{name}: {path} must hold {wanted}; for other images, name the file: --data {path}")
        return replace(data, name=name, mean=statistics[0], std=statistics[1])
    _download(name, kind, options)
    sets = []
    for train in (True, False):
        with _reading(name, options.root):
            source = _open(kind, options.root, {"train": train})
            pixels = np.asarray(source.data, dtype=np.uint8)
            pixels = pixels[..., None] if pixels.ndim == 3 else pixels
            labels, names = np.asarray(source.targets, dtype=np.int64), tuple(source.classes)
        sets.append(all_samples(place_images(pixels, options.device), labels))
    n_channels, side = sets[0].items.shape[1:3]
    augmentation = "paper" if n_channels == 3 else "light"
    return check_dataset(Dataset(name, sets[0], sets[1], names, options.input_size(side), *statistics, augmentation))


def _files(name: str, kind: str, options: LoadOptions, train: dict[str, Any]) -> Dataset:
    """Load a torchvision data set of image files."""
    _download(name, kind, options)
    with _reading(name, options.root):
        sources = [_open(kind, options.root, of_part) for of_part in (train, {"split": "test"})]
        folder = _folder(name, options.root)
        files = [_labelled_files(part, source, folder) for part, source in zip(("train", "test"), sources, strict=True)]
        n_classes = 1 + int(max(part.labels.max() for part in files))
        # Flowers102 has no names in older versions.
        names = tuple(map(str, getattr(sources[0], "classes", range(n_classes))))
    return files_dataset(name, files[0], files[1], names, options)


def _labelled_files(part: str, source: Any, folder: Path) -> LabelledFiles:
    """Return paths and labels of a torchvision data set without reading its images.

    This uses private attributes: the public argument `loader=` is missing in some classes and older versions.
    """
    if hasattr(source, "_samples"):  # StanfordCars
        paths, labels = zip(*source._samples, strict=True)
    else:
        paths = source._images if hasattr(source, "_images") else source._image_files  # OxfordIIITPet, the others
        labels = source._labels
    names = [os.fsencode(os.path.relpath(path, folder)) for path in paths]
    return labelled_files(part, file_list(folder, names), labels)


def _open(kind: str, root: Path, of_part: Mapping[str, Any]) -> Any:
    """Open a downloaded torchvision data set."""
    from torchvision import datasets

    return getattr(datasets, kind)(str(root), download=False, **of_part)


@contextmanager
def _reading(name: str, root: Path) -> Iterator[None]:
    """Raise a DataError for a damaged data set, whatever error torchvision's parsers raise."""
    try:
        yield
    except Exception as error:
        remedy = f"it needs {_CARS_FILES}" if name == "cars" else "remove it to download it again"
        raise DataError(f"{name}: {_folder(name, root)} is damaged or incomplete; {remedy}") from error


def _folder(name: str, root: Path) -> Path:
    return root / str(DATASETS[name].folder)


def _download(name: str, kind: str, options: LoadOptions) -> None:
    """Let torchvision download and verify a missing data set; it is published atomically."""
    from torchvision import datasets

    root, folder = options.root, str(DATASETS[name].folder)
    if DATASETS[name].on_disk(root):
        return
    places = " or ".join(str(root / file) for file in (folder, DATASETS[name].arrays) if file)
    if not options.download:
        raise DataError(f"{name}: is not at {places}, and downloads are switched off")
    try:
        root.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=root, prefix=".unfinished-"))
    except OSError as error:
        raise DataError(f"{name}: cannot write to {root} ({error})") from error
    try:
        getattr(datasets, kind)(str(work), download=True)
        if not DATASETS[name].on_disk(root):  # else another process has finished first
            publish_folder(work / folder, root / folder)
    except Exception as error:  # on broken connections and archives urllib, tarfile and zlib raise almost anything
        raise DataError(f"{name}: could not be downloaded ({first_line(error)}); put it at {places}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
