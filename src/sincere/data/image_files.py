"""Data sets of image files: decoded once into the cache, or streamed where the cache would grow too large.

Training and test images are decoded in the same way, so that equal files give equal pixels.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
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
from sincere.data.channel_sums import Sums, mean_and_std
from sincere.data.class_folders import LabelledFiles
from sincere.data.dataset import Dataset, Samples, all_samples, channel_statistics, check_dataset
from sincere.data.decode import DECODER, decode, left_out_note
from sincere.data.listing import COLOUR, FileFacts, FileList, file_facts, join_lists
from sincere.data.load_options import SMALLEST_PRETRAINED, LoadOptions
from sincere.data.pixel_storage import (
    Images,
    MappedImages,
    StreamedImages,
    TensorImages,
    fits_in_memory,
    place_images,
)
from sincere.errors import DataError
from sincere.records.npz import read_arrays, write_arrays

SMALL_SIDE = 32  # pixels: the paper's
PHOTO_SIDE = 64  # pixels from which on images count as photos
LARGEST_DEFAULT = 160  # pixels
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

    def cache_path(self, kind: str, options: LoadOptions) -> Path:
        """Return the path of the cache entry of this kind for these files."""
        files = self.labelled.files
        root = printable(str(files.root.resolve()))
        subject = (kind, root, self.labelled.part, self.labelled.split, self.side, options.skip_bad_images)
        content = hashlib.sha256(self.facts.digests.tobytes() + b"\n".join(files.names.tolist())).hexdigest()
        return entry_path(options.cache, subject, (self.grey, content, DECODER))


def _decode(files: FileList, position: int, *, side: int, grey: bool) -> NDArray[np.uint8]:
    return decode(files.path(position), side, grey=grey)


def files_dataset(
    name: str,
    train: LabelledFiles,
    test: LabelledFiles,
    class_names: tuple[str, ...],
    options: LoadOptions,
    *,
    notes: tuple[str, ...] = (),
) -> Dataset:
    """Return training and test files below one root as a data set."""
    facts = file_facts(join_lists([train.files, test.files]), options.cache)
    photos, size = are_photos(facts), options.size or default_size(facts, options)
    if photos and options.size is None:
        low, high = (int(edge(facts.sides[facts.sides > 0])) for edge in (np.min, np.max))
        sides = f"{low} px" if low == high else f"{low} to {high} px"
        notes = (*notes, f"images of {sides} are taken at {size} px; --size sets another")
    frozen = photos if options.frozen is None else options.frozen
    side = size if frozen else stored_side(facts, size)  # a frozen encoder sees no crops
    grey = not bool((facts.kinds == COLOUR).any())
    parts = (slice(len(train)), slice(len(train), None))
    sources = [_Source(part, facts.subset(rows), side, grey) for part, rows in zip((train, test), parts, strict=True)]
    sets, sums = list[Samples](), list[Sums | None]()
    for source in sources:
        loaded = _load(source, options)
        good, n_files = loaded.positions, len(source.labelled)
        notes = (*notes, *loaded.notes)
        if len(good) < n_files:
            part = source.labelled.part
            bad = np.setdiff1d(np.arange(n_files), good)
            names = (os.fsdecode(name) for name in source.labelled.files.names[bad])
            notes = (*notes, left_out_note(names, len(bad), n_files, f"{part} images"))
        labelled_images = all_samples(loaded.images, source.labelled.labels[good], ids=source.labelled.ids[good])
        texts = np.char.decode(source.labelled.files.names[good], "utf-8", "surrogateescape")
        sets.append(replace(labelled_images, digests=_file_digests(source)[good], texts=texts))
        sums.append(loaded.sums)
    if sums[0] is not None:
        mean, std = mean_and_std(sums[0], len(sets[0]) * side**2)
    else:
        mean, std = _statistics(sets[0], sources[0].cache_path("statistics", options))
    augmentation = "light" if grey else "paper"
    return check_dataset(
        Dataset(name, sets[0], sets[1], class_names, size, mean, std, augmentation, are_photos=photos, notes=notes)
    )


def are_photos(facts: FileFacts) -> bool:
    """Tell whether images are photos, not small images for a network that is trained from scratch.

    Photos have sides of 64 px and more; or of 32 px and more where they vary, as the images of a benchmark do not.
    """
    known = facts.sides[facts.sides > 0]
    if not len(known):
        return False
    typical, vary = float(np.median(known)), bool((known != known[0]).any())
    return typical >= PHOTO_SIDE or (vary and typical >= SMALL_SIDE)


def default_size(facts: FileFacts, options: LoadOptions) -> int:
    """Return the side of the network's input: of photos 96 to 160 px, of small images their own, or 32 px if it varies.

    A pretrained encoder suits photos, and has the most of it near its own 224 px; 160 px take half the time.
    """
    known = facts.sides[facts.sides > 0]
    if are_photos(facts):
        rounded = -(-int(np.median(known)) // SMALL_SIDE) * SMALL_SIDE
        return min(max(rounded, SMALLEST_PRETRAINED), LARGEST_DEFAULT)
    same = len(known) and not (known != known[0]).any()
    return options.input_size(int(known[0]) if same else SMALL_SIDE)


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


@dataclass(frozen=True, eq=False)
class _Loaded:
    """Pixels, the positions of their files, the sums of the pixels where these are cached, and notes for the user."""

    images: Images
    positions: NDArray[np.int64]
    sums: Sums | None
    notes: tuple[str, ...] = ()


def _load(source: _Source, options: LoadOptions) -> _Loaded:
    """Return the images of a source, from the cache if they fit into it."""
    n_images, side, channels = len(source.labelled), source.side, 1 if source.grey else 3
    n_bytes = n_images * channels * side**2
    if n_bytes <= options.cache_limit_bytes:
        fits = fits_in_memory(n_bytes, options.device)
        path = source.cache_path("images", options)
        read = partial(
            decoded_images,
            path,
            source.decode,
            n_images,
            source=source.name,
            skip_bad=options.skip_bad_images,
            progress=options.progress,
        )
        cached: DecodedImages = read()
        if not fits:
            mapped = MappedImages(cached.pixels, cached.checksums, str(path))
            return _Loaded(mapped, cached.positions, cached.sums)
        notes: tuple[str, ...] = ()
        if not cached.fresh and not np.array_equal(checksums_of(cached.pixels), cached.checksums):
            notes = (f"{path}: was damaged; its images were decoded again",)
            cached = read(refresh=True)
        if cached.fresh:  # the page cache still holds what was written: a copy would take as much memory again
            held: Images = TensorImages(torch.from_numpy(cached.pixels.transpose(0, 3, 1, 2)).to(options.device))
        else:
            held = place_images(cached.pixels, options.device)
        return _Loaded(held, cached.positions, cached.sums, notes)
    good = np.arange(n_images, dtype=np.int64)
    if options.skip_bad_images:  # checked now: during training it would be too late to leave an image out
        path = source.cache_path("good", options)
        good = good_positions(path, source.decode, n_images, source=source.name, progress=options.progress)
    files = source.labelled.files.subset(good)
    streamed = StreamedImages(partial(_decode, files, side=side, grey=source.grey), (len(good), channels, side, side))
    return _Loaded(streamed, good, None)


def _statistics(train: Samples, path: Path) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel of streamed images, computed once and cached at `path`."""
    n_channels = train.items.shape[1]
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
