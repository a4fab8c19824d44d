"""Data sets of image files: decoded once into the cache, or streamed where the cache would grow too large.

Training and test images are decoded in the same way, so that equal files give equal pixels.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sincere.checks import printable
from sincere.data.cache import (
    DecodedImages,
    Decoder,
    checksums_of,
    decoded_images,
    entry_path,
    good_positions,
    new_entry,
)
from sincere.data.class_folders import LabelledFiles
from sincere.data.dataset import Dataset, ImageSet, channel_statistics, check_dataset, image_set
from sincere.data.decode import decode
from sincere.data.listing import COLOUR, FileFacts, FileList, file_facts, join_lists
from sincere.data.load_options import LoadOptions
from sincere.data.pixel_storage import Images, MappedImages, StreamedImages, fits_in_memory, place_images
from sincere.errors import DataError
from sincere.records.npz import read_arrays, write_arrays

DEFAULT_SIZE = 32  # the paper's
STATISTICS = "statistics.npz"


@dataclass(frozen=True, eq=False)
class _Source:
    """The files of one part, their content hashes and headers, and how they are decoded."""

    labelled: LabelledFiles
    facts: FileFacts
    side: int
    grey: bool

    @property
    def decode(self) -> Decoder:
        return partial(_decode, self.labelled.files, side=self.side, grey=self.grey)

    @property
    def name(self) -> str:
        return f"{self.labelled.files.root}: {self.labelled.part}"

    def cache_path(self, kind: str, settings: LoadOptions) -> Path:
        """Return the path of the cache entry of this kind for these files."""
        files = self.labelled.files
        root = printable(str(files.root.resolve()))
        subject = (kind, root, self.labelled.part, self.labelled.split, self.side, settings.skip_bad_images)
        content = hashlib.sha256(self.facts.digests.tobytes() + b"\n".join(files.names.tolist())).hexdigest()
        return entry_path(settings.cache, subject, (self.grey, content))


def _decode(files: FileList, position: int, *, side: int, grey: bool) -> NDArray[np.uint8]:
    return decode(files.path(position), side, grey=grey)


def files_dataset(
    name: str,
    train: LabelledFiles,
    test: LabelledFiles,
    class_names: tuple[str, ...],
    settings: LoadOptions,
    *,
    notes: tuple[str, ...] = (),
) -> Dataset:
    """Return training and test files below one root as a data set."""
    size = settings.size or DEFAULT_SIZE
    facts = file_facts(join_lists([train.files, test.files]), settings.cache)
    side = stored_side(facts, size)
    grey = not bool((facts.kinds == COLOUR).any())
    parts = (slice(len(train)), slice(len(train), None))
    sources = [_Source(part, facts.subset(rows), side, grey) for part, rows in zip((train, test), parts, strict=True)]
    sets = []
    for source in sources:
        images, good, image_notes = _images(source, settings)
        n_files = len(source.labelled)
        if len(good) < n_files:
            part = source.labelled.part
            skipped = f"{n_files - len(good)} of {n_files} {part} images could not be read and were left out"
            image_notes = (*image_notes, skipped)
        notes = (*notes, *image_notes)
        labelled_images = image_set(images, source.labelled.labels[good], ids=source.labelled.ids[good])
        sets.append(replace(labelled_images, digests=_file_digests(source)[good]))
    mean, std = _statistics(sets[0], sources[0].cache_path("statistics", settings))
    augmentation = "light" if grey else "paper"
    return check_dataset(Dataset(name, sets[0], sets[1], class_names, size, mean, std, augmentation, notes=notes))


def stored_side(facts: FileFacts, size: int) -> int:
    """Return the side in pixels at which images are stored: up to twice the input size, so that crops stay sharp.

    It is at most the typical side of the images: enlarging and shrinking them again would blur them.
    """
    known = facts.sides[facts.sides > 0]
    typical = int(np.median(known)) if len(known) else size
    return min(max(typical, size), 2 * size)


def _file_digests(source: _Source) -> NDArray[np.uint8]:
    """Return a hash of the name and content of each file (n, 16)."""
    names, digests = source.labelled.files.names.tolist(), source.facts.digests
    rows = [
        hashlib.blake2b(name + digest.tobytes(), digest_size=16).digest()
        for name, digest in zip(names, digests, strict=True)
    ]
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(-1, 16)


def _images(source: _Source, settings: LoadOptions) -> tuple[Images, NDArray[np.int64], tuple[str, ...]]:
    """Return the pixels, the positions of their files, and notes for the user."""
    n_images, side, channels = len(source.labelled), source.side, 1 if source.grey else 3
    if n_images * side * side * channels <= settings.cache_limit_bytes:
        path = source.cache_path("images", settings)
        read = partial(
            decoded_images,
            path,
            source.decode,
            n_images,
            source=source.name,
            skip_bad=settings.skip_bad_images,
            progress=settings.progress,
        )
        cached: DecodedImages = read()
        if not fits_in_memory(cached.pixels.nbytes, settings.device):
            return MappedImages(cached.pixels, cached.checksums, str(path)), cached.positions, ()
        notes: tuple[str, ...] = ()
        if not np.array_equal(checksums_of(cached.pixels), cached.checksums):
            notes = (f"{path}: was damaged; its images were decoded again",)
            cached = read(refresh=True)
        return place_images(cached.pixels, settings.device), cached.positions, notes
    good = np.arange(n_images, dtype=np.int64)
    if settings.skip_bad_images:  # checked now: during training it would be too late to leave an image out
        path = source.cache_path("good", settings)
        good = good_positions(path, source.decode, n_images, source=source.name, progress=settings.progress)
    files = source.labelled.files.subset(good)
    streamed = StreamedImages(partial(_decode, files, side=side, grey=source.grey), (len(good), channels, side, side))
    return streamed, good, ()


def _statistics(train: ImageSet, path: Path) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel, computed once and cached at `path`."""
    n_channels = train.images.shape[1]
    try:
        values = read_arrays(path / STATISTICS, remedy="")["values"]
        sound = values.shape == (2, n_channels) and bool(np.isfinite(values).all()) and bool((values[1] > 0).all())
    except (DataError, FileNotFoundError, KeyError, TypeError):
        sound = False
    if not sound:
        values = np.asarray(channel_statistics(train))
        with new_entry(path) as work:
            write_arrays(work / STATISTICS, {"values": values})
    mean, std = values.tolist()
    return tuple(mean), tuple(std)
