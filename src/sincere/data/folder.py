"""A folder of class folders: train/ with test/ or val/, or one tree that is split here."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from sincere.data.cache import Progress, cache_key, decoded_array, file_state
from sincere.data.dataset import Dataset, ImageSet, channel_statistics, check_dataset, image_set
from sincere.data.decode import decode, is_grey
from sincere.data.images import Images, StreamedImages, place_images
from sincere.data.splits import stratified_split
from sincere.errors import DataError

TEST_SHARE = 0.2
CACHE_LIMIT_BYTES = 40 * 10**9


def load_folder(
    root: Path,
    *,
    size: int = 32,
    cache: Path,
    skip_bad_images: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
    device: torch.device | str = "cpu",
    cache_limit_bytes: int = CACHE_LIMIT_BYTES,
) -> Dataset:
    """Load class folders of images of any kind and size.

    Training images are kept at twice `size`, so that crops have pixels to show; test images at `size`. Decoded once, in
    parallel, into `cache`; a changed file makes it anew. A set too large for the cache is decoded as it is read.

    Raises:
        DataError: No or one class, an empty class folder, a bad image (unless skipped), in one line.
    """
    parts = {part: root / part for part in ("train", "test", "val") if (root / part).is_dir()}
    if "train" in parts and len(parts) == 1:
        raise DataError(f"{root}: has train/ but neither test/ nor val/; add one, or put the class folders at the top")
    if "train" in parts:
        names, train_files, train_labels = _listing(parts["train"])
        _, test_files, test_labels = _listing(parts.get("test", parts.get("val", root)), names)
    else:
        names, files, labels = _listing(root)
        rest, held_out = stratified_split(labels, TEST_SHARE, seed=seed)
        train_files, test_files = ([files[i] for i in chosen] for chosen in (rest, held_out))
        train_labels, test_labels = labels[rest], labels[held_out]
    grey = all(map(is_grey, [*train_files, *test_files]))
    notes: list[str] = []
    sets = []
    for part, files, labels, side in (
        ("train", train_files, train_labels, 2 * size),
        ("test", test_files, test_labels, size),
    ):
        images, good = _images(root, files, side, grey, cache, skip_bad_images, progress, device, cache_limit_bytes)
        if len(good) < len(files):
            notes.append(f"{len(files) - len(good)} of {len(files)} {part} images could not be read and were left out")
        sets.append(image_set(images, labels[good]))
    train, test = sets
    mean, std = _cached_statistics(train, cache, cache_key("statistics", *_states(root, train_files), size))
    augmentation = "light" if grey else "paper"
    return check_dataset(Dataset(root.name, train, test, names, size, mean, std, augmentation, tuple(notes)))


def _listing(root: Path, names: tuple[str, ...] | None = None) -> tuple[tuple[str, ...], list[Path], NDArray[np.int64]]:
    """Return class names, image files in a fixed order and their labels."""
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    names = names or tuple(folder.name for folder in folders)
    if len(names) < 2:
        raise DataError(f"{root}: at least two class folders are needed; got {len(names)}")
    known = set(Image.registered_extensions())
    files, labels = list[Path](), list[int]()
    for folder in folders:
        if folder.name not in names:
            raise DataError(f"{folder}: is a class that train/ does not have")
        images = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix.lower() in known)
        if not images:
            raise DataError(f"{folder}: class folder without any image")
        files += images
        labels += [names.index(folder.name)] * len(images)
    return names, files, np.asarray(labels, dtype=np.int64)


def _images(
    root: Path,
    files: list[Path],
    side: int,
    grey: bool,
    cache: Path,
    skip_bad: bool,
    progress: Progress | None,
    device: torch.device | str,
    limit: int,
) -> tuple[Images, NDArray[np.int64]]:
    decoders = [partial(decode, path, side, grey=grey) for path in files]
    channels = 1 if grey else 3
    if len(files) * side * side * channels > limit:
        return StreamedImages(decoders, (len(files), channels, side, side)), np.arange(len(files), dtype=np.int64)
    key = cache_key("images", side, grey, skip_bad, *_states(root, files))
    array, good = decoded_array(cache, key, decoders, skip_bad=skip_bad, progress=progress)
    return place_images(array, device), good


def _states(root: Path, files: list[Path]) -> list[object]:
    return [str(root.resolve()), *(file_state(path, root) for path in files)]


def _cached_statistics(train: ImageSet, cache: Path, key: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    path = cache / f"{key}.npy"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        np.save(path, np.asarray(channel_statistics(train)))
    mean, std = np.load(path)
    return tuple(mean.tolist()), tuple(std.tolist())
