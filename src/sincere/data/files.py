"""Data sets that are image files: decoded once into the cache, or streamed when that would be too large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sincere.data.cache import decoded_array, file_state, good_positions, read_array
from sincere.data.dataset import Dataset, ImageSet, channel_statistics, check_dataset, image_set
from sincere.data.decode import decode, is_grey
from sincere.data.entries import entry, new_entry
from sincere.data.images import Images, StreamedImages, place_images
from sincere.data.settings import LoadSettings

DEFAULT_SIZE = 32  # the paper's


@dataclass(frozen=True, eq=False)
class LabelledFiles:
    """Image files in a fixed order.

    Attributes:
        part: Which part of the data set they are.
        paths: The files.
        labels: Class of each.
        ids: Which image of the source each is.
        split: Seed of the split they come from; None if they came apart.
    """

    part: str
    paths: Sequence[Path]
    labels: NDArray[np.int64]
    ids: NDArray[np.int64]
    split: int | None = None


def labelled_files(part: str, paths: Sequence[Path], labels: Sequence[int] | NDArray[np.int64]) -> LabelledFiles:
    """Return a part that has all images of its source, so that ids count them."""
    return LabelledFiles(part, paths, np.asarray(labels, dtype=np.int64), np.arange(len(paths), dtype=np.int64))


def files_dataset(
    name: str,
    root: Path,
    train: LabelledFiles,
    test: LabelledFiles,
    class_names: tuple[str, ...],
    settings: LoadSettings,
    *,
    notes: tuple[str, ...] = (),
) -> Dataset:
    """Return files below `root` as a data set: train at twice the input's size, for crops, test at the input's size."""
    size = settings.size or DEFAULT_SIZE
    grey = all(map(is_grey, [*train.paths, *test.paths]))
    sets = []
    for files, side in ((train, 2 * size), (test, size)):
        images, good = _images(root, files, side, grey, settings)
        if len(good) < len(files.paths):
            left_out = len(files.paths) - len(good)
            text = f"{left_out} of {len(files.paths)} {files.part} images could not be read and were left out"
            notes = (*notes, text)
        sets.append(image_set(images, files.labels[good], ids=files.ids[good]))
    mean, std = _statistics(sets[0], _place("statistics", root, train, 2 * size, grey, settings))
    augmentation = "light" if grey else "paper"
    return check_dataset(Dataset(name, sets[0], sets[1], class_names, size, mean, std, augmentation, notes=notes))


def _images(
    root: Path, files: LabelledFiles, side: int, grey: bool, settings: LoadSettings
) -> tuple[Images, NDArray[np.int64]]:
    """Return the pixels, and which of the files they are of."""
    decoders = [partial(decode, path, side, grey=grey) for path in files.paths]
    channels = 1 if grey else 3
    source = f"{root}: {files.part}"
    if len(decoders) * side * side * channels <= settings.cache_limit_bytes:
        place = _place("images", root, files, side, grey, settings)
        array, good = decoded_array(
            place, decoders, source=source, skip_bad=settings.skip_bad_images, progress=settings.progress
        )
        return place_images(array, settings.device), good
    good = np.arange(len(decoders), dtype=np.int64)
    if settings.skip_bad_images:  # found out now: in the middle of a run nothing can be left out any more
        place = _place("good", root, files, side, grey, settings)
        good = good_positions(place, decoders, source=source, progress=settings.progress)
    return StreamedImages([decoders[i] for i in good], (len(good), channels, side, side)), good


def _place(kind: str, root: Path, files: LabelledFiles, side: int, grey: bool, settings: LoadSettings) -> Path:
    """Return where the cache keeps what depends on these files."""
    subject = (kind, str(root.resolve()), files.part, files.split, side, settings.skip_bad_images)
    state = (grey, *(file_state(path, root) for path in files.paths))
    return entry(settings.cache, subject, state)


def _statistics(train: ImageSet, place: Path) -> tuple[tuple[float, ...], tuple[float, ...]]:
    path = place / "statistics.npy"
    values = read_array(path)
    if values is None:
        values = np.asarray(channel_statistics(train))
        with new_entry(place) as work:
            np.save(work / path.name, values)
    mean, std = values.tolist()
    return tuple(mean), tuple(std)
