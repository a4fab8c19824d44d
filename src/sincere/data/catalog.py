"""The data sets by name, and one function that loads any of them, a folder or a file. Does not import torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, cast

from sincere import checks
from sincere.catalog import PYTHON, load
from sincere.data.load_options import LoadOptions
from sincere.errors import DataError, InputValueError, MissingPackageError, missing_package
from sincere.records.files import similar_folders

if TYPE_CHECKING:
    import torch

    from sincere.data.dataset import Dataset


@dataclass(frozen=True)
class NamedSet:
    """A data set that can be loaded by name.

    Attributes:
        loader: "module:attribute" of a function from `LoadOptions` to the data set, or the function.
        about: Description of the images in a few words.
        n_train: Number of training images, in the split used here.
        n_test: Number of test images.
        n_classes: Number of classes.
        side: Side of the images in pixels; None where they vary.
        folder: Path below the root of all data sets, in torchvision's layout; None where it ships with a package.
        arrays: Name of an .npz file below that root that may stand for the folder; None where none may.
        content: Content hash of data that a caller has given in Python; None for others.
    """

    loader: str | Callable[[LoadOptions], Dataset]
    about: str
    n_train: int
    n_test: int
    n_classes: int
    side: int | None
    folder: str | None
    arrays: str | None = None
    content: str | None = None

    def on_disk(self, root: Path) -> bool:
        """Return whether the data set can be loaded without a download."""
        return self.folder is None or (root / self.folder).is_dir() or self.array_file(root) is not None

    def array_file(self, root: Path) -> Path | None:
        """Return the .npz file that stands for the data set where torchvision's folder is missing, if there is one."""
        if self.arrays is None or (self.folder is not None and (root / self.folder).is_dir()):
            return None
        path = root / self.arrays
        return path if path.is_file() else None


PARQUET = (".parquet", ".pq")  # suffixes
PARQUET_FILES = ("*.parquet", "data/*.parquet")  # of a data set in a folder
_NAMED = "sincere.data.torchvision_sets"
# Folders, and files that may stand for them.
_CIFAR10 = ("cifar-10-batches-py", "cifar10.npz")
_CIFAR100 = ("cifar-100-python", "cifar100.npz")
_FASHION = ("FashionMNIST", "fashion-mnist.npz")
DATASETS: dict[str, NamedSet] = {
    "digits": NamedSet(f"{_NAMED}:digits", "handwritten digits, grey, in scikit-learn", 1438, 359, 10, 8, None),
    "cifar2": NamedSet(f"{_NAMED}:cifar2", "cats and dogs of CIFAR-10", 10000, 2000, 2, 32, *_CIFAR10),
    "cifar10": NamedSet(f"{_NAMED}:cifar10", "animals and vehicles", 50000, 10000, 10, 32, *_CIFAR10),
    "cifar100": NamedSet(f"{_NAMED}:cifar100", "things of all kinds", 50000, 10000, 100, 32, *_CIFAR100),
    "fashion-mnist": NamedSet(f"{_NAMED}:fashion_mnist", "clothes, grey", 60000, 10000, 10, 28, *_FASHION),
    "imagenet100": NamedSet(f"{_NAMED}:imagenet100", "your copy, as folders", 128856, 5000, 100, None, "imagenet100"),
    "pets": NamedSet(f"{_NAMED}:pets", "breeds of cats and dogs", 3680, 3669, 37, None, "oxford-iiit-pet"),
    "dtd": NamedSet(f"{_NAMED}:dtd", "textures, partition 1", 1880, 1880, 47, None, "dtd"),
    "aircraft": NamedSet(f"{_NAMED}:aircraft", "aeroplane variants", 6667, 3333, 100, None, "fgvc-aircraft-2013b"),
    "food101": NamedSet(f"{_NAMED}:food101", "dishes", 75750, 25250, 101, None, "food-101"),
    "flowers102": NamedSet(f"{_NAMED}:flowers102", "species of flowers", 1020, 6149, 102, None, "flowers-102"),
    "cars": NamedSet(f"{_NAMED}:cars", "car models; no download any more", 8144, 8041, 196, None, "stanford_cars"),
}


def load_dataset(
    source: str | Path | object,
    *,
    classes: Sequence[str] | None = None,
    imbalance: float | None = None,
    size: int | None = None,
    data_dir: str | Path | None = None,
    skip_bad_images: bool = False,
    download: bool = True,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Dataset:
    """Load a data set by name, a folder of class folders, an .npz, a .parquet, or one that `datasets` saved.

    Args:
        source: Name, folder or file; or arrays, tensors or a torch Dataset, as in `train`.
        classes: Names of the classes to keep; all by default.
        imbalance: Make the training classes long-tailed: the first has this many times the samples of the last one,
            and the sizes between them fall exponentially. All samples are kept by default.
        size: Side of the network's input in pixels; by default that of the images, 96 to 160 for photos, 32 for small
            images of different sizes. Features have none.
        data_dir: Folder of named data sets in torchvision's layout; by default $SINCERE_HOME/datasets or
            ~/.cache/sincere/datasets.
        skip_bad_images: Whether to leave out images that cannot be read, instead of raising.
        download: Whether to download a missing data set.
        seed: Random seed of the train/test split, for folders and files without one, and of the samples that
            `imbalance` keeps.
        device: Device that holds the pixels or features if they fit into its memory.

    Raises:
        DataError: There is no such name or path (the message suggests a name), the data are wrong, or `classes` has
            fewer than two names or one twice.
        InputValueError: `classes` names a class that the data set does not have, `imbalance` is below 1, or `size` is
            given for features.

    Example:
        >>> data = load_dataset("digits", classes=["3", "8"])
        >>> len(data.class_names), data.size
        (2, 8)
    """
    options = LoadOptions(size=size, skip_bad_images=skip_bad_images, download=download, seed=seed, device=device)
    if data_dir is not None:
        options = replace(options, root=Path(data_dir))
    try:
        data = load_source(source, options, classes=classes, imbalance=imbalance)
    except ModuleNotFoundError as error:
        raise MissingPackageError(missing_package("load_dataset", error)) from error
    if data.train.are_features and size is not None:
        raise InputValueError(checks.wording("load_dataset", "size must not be set for features", size))
    return data


def load_source(
    source: str | Path | object,
    options: LoadOptions,
    *,
    classes: Sequence[str] | None = None,
    unknown_classes: Sequence[str] | None = None,
    imbalance: float | None = None,
) -> Dataset:
    """Load a data set with all options; see `load_dataset` and, for `unknown_classes`, `Dataset.leave_out`."""
    if isinstance(source, str | Path):
        dataset = _load(source, options)
    else:
        from sincere.data.python_data import python_data

        dataset = python_data("data", source)(options)
    if classes is not None:
        dataset = dataset.select_classes(classes)
    if unknown_classes is not None:
        dataset = dataset.leave_out(unknown_classes)
    return dataset if imbalance is None else dataset.long_tailed(imbalance, seed=options.seed)


def is_saved_dataset(path: Path) -> bool:
    """Tell whether a folder is one that Hugging Face `datasets` saved, or holds parquet files."""
    saved = any((path / name).is_file() for name in ("dataset_dict.json", "dataset_info.json"))
    return saved or any(file.is_file() for pattern in PARQUET_FILES for file in path.glob(pattern))


def _load(source: str | Path, options: LoadOptions) -> Dataset:
    if isinstance(source, str) and source in DATASETS:  # a Path is one, not a name
        return cast("Dataset", load(DATASETS[source].loader)(options))
    path = Path(source)
    if str(source).startswith(PYTHON):
        raise DataError(f"data: {source} was given in Python; pass it again, as data=")
    if not source:  # an empty path would be the current folder
        raise DataError(f"data: must not be empty; the names are {', '.join(DATASETS)}")
    is_parquet = path.suffix.lower() in PARQUET
    if path.is_dir() and is_saved_dataset(path):
        from sincere.data.hugging_face import load_saved

        return load_saved(path, options)
    if path.is_dir() and is_parquet:
        raise DataError(f"{path}: is a folder without .parquet files")
    if path.is_dir():
        from sincere.data.folder import load_folder

        return load_folder(path, options)
    if path.is_file() and is_parquet:
        from sincere.data.parquet import has_images, load_parquet

        if has_images(path):
            from sincere.data.hugging_face import load_image_parquet

            return load_image_parquet(path, options)

        return load_parquet(path, options)
    if path.is_file():
        from sincere.data.npz import load_npz

        return load_npz(path, options)
    if is_parquet or path.suffix.lower() == ".npz":
        raise DataError(f"{path}: no such file")
    near = get_close_matches(str(source).lower(), DATASETS, n=1) or similar_folders(path)
    hint = f"did you mean {str(near[0])!r}?" if near else f"the names of data sets are {', '.join(DATASETS)}"
    raise DataError(f"data: {str(source)!r} does not exist as a folder or file, and is no data set's name; {hint}")
