"""Data sets that are image files: decoded once into the cache, or streamed when that would be too large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sincere.data.cache import cache_key, decoded_array, file_state
from sincere.data.dataset import Dataset, ImageSet, channel_statistics, check_dataset, image_set
from sincere.data.decode import decode, is_grey
from sincere.data.images import Images, StreamedImages, place_images
from sincere.data.settings import LoadSettings

DEFAULT_SIZE = 32  # the paper's


@dataclass(frozen=True, eq=False)
class LabelledFiles:
    """Image files in a fixed order, and the class of each."""

    paths: Sequence[Path]
    labels: NDArray[np.int64]


def files_dataset(
    name: str,
    root: Path,
    train: LabelledFiles,
    test: LabelledFiles,
    class_names: tuple[str, ...],
    settings: LoadSettings,
) -> Dataset:
    """Return files below `root` as a data set: train at twice the input's size, for crops, test at the input's size."""
    size = settings.size or DEFAULT_SIZE
    grey = all(map(is_grey, [*train.paths, *test.paths]))
    notes: list[str] = []
    sets = []
    for part, files, side in (("train", train, 2 * size), ("test", test, size)):
        images, good = _images(root, files.paths, side, grey, settings)
        if len(good) < len(files.paths):
            left_out = len(files.paths) - len(good)
            notes.append(f"{left_out} of {len(files.paths)} {part} images could not be read and were left out")
        sets.append(image_set(images, files.labels[good]))
    key = cache_key("statistics", size, settings.skip_bad_images, *_states(root, train.paths))
    mean, std = _cached_statistics(sets[0], settings.cache, key)
    augmentation = "light" if grey else "paper"
    return check_dataset(
        Dataset(name, sets[0], sets[1], class_names, size, mean, std, augmentation, notes=tuple(notes))
    )


def _images(
    root: Path, paths: Sequence[Path], side: int, grey: bool, settings: LoadSettings
) -> tuple[Images, NDArray[np.int64]]:
    """Return the pixels, and which of the files they are of."""
    decoders = [partial(decode, path, side, grey=grey) for path in paths]
    channels = 1 if grey else 3
    if len(paths) * side * side * channels > settings.cache_limit_bytes:
        return StreamedImages(decoders, (len(paths), channels, side, side)), np.arange(len(paths), dtype=np.int64)
    key = cache_key("images", side, grey, settings.skip_bad_images, *_states(root, paths))
    array, good = decoded_array(
        settings.cache, key, decoders, skip_bad=settings.skip_bad_images, progress=settings.progress
    )
    return place_images(array, settings.device), good


def _states(root: Path, paths: Sequence[Path]) -> list[object]:
    return [str(root.resolve()), *(file_state(path, root) for path in paths)]


def _cached_statistics(train: ImageSet, cache: Path, key: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    path = cache / f"{key}.npy"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        np.save(path, np.asarray(channel_statistics(train)))
    mean, std = np.load(path)
    return tuple(mean.tolist()), tuple(std.tolist())
