"""Lists the files below a folder in a fixed order, with a content hash of each.

A file is hashed once; while its status (size, times, inode) is unchanged, so is its hash. Everything is held in arrays,
so that a million files do not need a million objects. Does not import torch.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import __version__ as pillow_version

from sincere.data.image_headers import SUFFIXES, jpeg_shape, open_image
from sincere.errors import DataError
from sincere.records.files import locked
from sincere.records.npz import read_arrays, write_arrays

UNREADABLE, GREY, COLOUR = 0, 1, 2  # kinds of images, by their header
CHUNK = 64  # files that a thread reads as one task
RACY_NS = 10**9  # a file changed within this time before it was hashed may change again without a new status
_DIGEST_BYTES = 16
_STATUS = ("size", "mtime_ns", "ctime_ns", "inode", "device")


@dataclass(frozen=True, eq=False)
class FileList:
    """Files below a folder.

    Attributes:
        root: The folder.
        names: Paths relative to the folder, as bytes (n,).
    """

    root: Path
    names: NDArray[np.bytes_]

    def __len__(self) -> int:
        return len(self.names)

    def path(self, i: int) -> Path:
        """Return the path of one file."""
        return self.root / os.fsdecode(bytes(self.names[i]))

    def subset(self, chosen: NDArray[np.int64]) -> FileList:
        """Return some of the files, in this order."""
        return FileList(self.root, self.names[chosen])

    def status(self) -> NDArray[np.int64]:
        """Return size, times, inode and device of each file, which change when the file does; -1 for a missing file."""
        rows = np.full((len(self), len(_STATUS)), -1, dtype=np.int64)
        root = os.fsencode(self.root)
        for i, name in enumerate(self.names.tolist()):
            try:
                status = os.stat(os.path.join(root, name))
            except OSError:
                continue
            # Inode and device numbers may use all 64 bits.
            inode, device = _signed(status.st_ino), _signed(status.st_dev)
            rows[i] = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, inode, device)
        return rows


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def file_list(root: Path, names: Sequence[bytes]) -> FileList:
    """Return a list of files with these relative names."""
    return FileList(root, np.asarray(names, dtype=np.bytes_) if names else np.zeros(0, dtype="S1"))


def join_lists(lists: Sequence[FileList]) -> FileList:
    """Concatenate lists of files below the same folder."""
    return FileList(lists[0].root, np.concatenate([files.names for files in lists]))


def files_below(folder: Path, prefix: str = "", *, images_only: bool = True) -> list[bytes]:
    """Return the names of the files below `folder`/`prefix`, sorted by their parts, relative to `folder`.

    Hidden files, hidden folders and links to folders are left out. Broken links are not: reading them gives an error.

    Raises:
        DataError: A folder cannot be read.
    """
    try:
        return list(_walk(os.fsencode(folder), os.fsencode(prefix), images_only))
    except OSError as error:
        raise DataError(
            f"{error.filename and os.fsdecode(error.filename)}: cannot be read ({error.strerror})"
        ) from error


def _walk(root: bytes, prefix: bytes, images_only: bool) -> Iterator[bytes]:
    with os.scandir(os.path.join(root, prefix)) as entries:
        ordered = sorted((entry.name, entry.is_dir(follow_symlinks=False), entry) for entry in entries)
    for name, is_folder, entry in ordered:
        if name.startswith(b"."):
            continue
        path = os.path.join(prefix, name)
        if is_folder:
            yield from _walk(root, path, images_only)
        elif not images_only or (os.path.splitext(name)[1].lower() in _SUFFIXES and _is_file_or_broken_link(entry)):
            yield path


_SUFFIXES = {suffix.encode() for suffix in SUFFIXES}


def _is_file_or_broken_link(entry: os.DirEntry[bytes]) -> bool:
    """Return whether it is a regular file, a link to one, or a broken link."""
    if entry.is_file(follow_symlinks=False):
        return True
    try:
        return stat.S_ISREG(entry.stat().st_mode)
    except OSError:
        return True


@dataclass(frozen=True, eq=False)
class FileFacts:
    """Content hashes and image headers of files.

    Attributes:
        digests: Content hash of each file (n, 16), uint8; zeros where it could not be read.
        kinds: UNREADABLE, GREY or COLOUR (n,), by the image header.
        sides: Shorter side of each image in pixels (n,); 0 where it is unreadable.
    """

    digests: NDArray[np.uint8]
    kinds: NDArray[np.uint8]
    sides: NDArray[np.int32]

    def subset(self, chosen: NDArray[np.int64] | slice) -> FileFacts:
        """Return the facts of some of the files."""
        return FileFacts(self.digests[chosen], self.kinds[chosen], self.sides[chosen])


def file_facts(files: FileList, cache: Path, *, subject: Path | None = None) -> FileFacts:
    """Return content hashes and headers of files; files with an unchanged status are not read again.

    Args:
        files: Files to look at.
        cache: Folder that keeps the facts.
        subject: Path under which the cache keeps them; the files' root by default.
    """
    # Which files are readable images depends on the version of Pillow.
    key = os.fsencode((subject or files.root).resolve()) + pillow_version.encode()
    path = cache / f"files-{hashlib.sha256(key).hexdigest()[:24]}.npz"
    status = files.status()
    n = len(files)
    facts = FileFacts(
        np.zeros((n, _DIGEST_BYTES), dtype=np.uint8), np.zeros(n, dtype=np.uint8), np.zeros(n, dtype=np.int32)
    )
    known = _load(path, files.names, status, facts)
    unknown = np.flatnonzero(~known & (status[:, 0] >= 0))
    if len(unknown):
        started = time.time_ns()
        _inspect(files, unknown, facts)
        stored_status = status.copy()
        stored_status[status[:, 2] > started - RACY_NS] = -1
        stored_status[~facts.digests.any(axis=1)] = -1  # unreadable, perhaps only this time
        _store(path, files.names, stored_status, facts)
    return facts


def _inspect(files: FileList, positions: NDArray[np.int64], facts: FileFacts) -> None:
    """Fill in the facts of some files, in threads."""

    def inspect_chunk(chunk: NDArray[np.int64]) -> None:
        for i in chunk.tolist():
            digest, facts.kinds[i], facts.sides[i] = inspect_file(files.path(i))
            facts.digests[i] = np.frombuffer(digest, dtype=np.uint8)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(inspect_chunk, np.array_split(positions, -(-len(positions) // CHUNK))))


def inspect_file(path: Path) -> tuple[bytes, int, int]:
    """Return the content hash of a file, and the kind and shorter side of its image according to the header."""
    if path.suffix.lower() not in SUFFIXES:
        try:
            with path.open("rb") as file:  # may be an archive of any size
                digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=_DIGEST_BYTES)).digest()
        except OSError:
            digest = bytes(_DIGEST_BYTES)
        return digest, UNREADABLE, 0
    try:
        content = path.read_bytes()
    except OSError:
        return bytes(_DIGEST_BYTES), UNREADABLE, 0
    digest = hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
    if (shape := jpeg_shape(content)) is not None:
        return digest, GREY if shape[2] == 1 else COLOUR, min(shape[:2])
    try:
        with open_image(io.BytesIO(content)) as image:
            return digest, GREY if image.mode in GREY_MODES else COLOUR, min(image.size)
    except MemoryError:
        raise
    except Exception:  # Pillow's plugins raise almost anything on damaged files; decoding will name it
        return digest, UNREADABLE, 0


GREY_MODES = {"1", "L", "LA", "La", "F", "I", "I;16", "I;16B", "I;16L", "I;16N"}


def _load(path: Path, names: NDArray[np.bytes_], status: NDArray[np.int64], facts: FileFacts) -> NDArray[np.bool_]:
    """Fill in the stored facts of files whose status is unchanged, and return which files these are."""
    known = np.zeros(len(names), dtype=np.bool_)
    try:
        stored = read_arrays(path, remedy="")
        old_names, old_status = stored["names"], stored["status"]
        old = FileFacts(stored["digests"], stored["kinds"], stored["sides"])
        n_old = len(old_names)
        shapes = (old_status.shape, old.digests.shape, old.kinds.shape, old.sides.shape)
        if shapes != ((n_old, len(_STATUS)), (n_old, _DIGEST_BYTES), (n_old,), (n_old,)) or not n_old:
            return known
        if n_old == len(names) and np.array_equal(old_names, names):
            at = np.arange(n_old)
        else:
            order = np.argsort(old_names, kind="stable")
            at = order[np.minimum(np.searchsorted(old_names[order], names), n_old - 1)]
        known[:] = (old_names[at] == names) & (old_status[at] == status).all(axis=1) & (status[:, 0] >= 0)
    except (DataError, FileNotFoundError, KeyError, TypeError, ValueError):
        return np.zeros(len(names), dtype=np.bool_)
    same = old.subset(at[known])
    facts.digests[known], facts.kinds[known], facts.sides[known] = same.digests, same.kinds, same.sides
    return known


def _store(path: Path, names: NDArray[np.bytes_], status: NDArray[np.int64], facts: FileFacts) -> None:
    """Write the facts to the cache if that is possible; otherwise the files are read again next time."""
    arrays = {"names": names, "status": status, **vars(facts)}
    try:
        with locked(path.parent):
            write_arrays(path, arrays)
    except (OSError, DataError):
        return


def listing_digest(files: FileList, facts: FileFacts) -> str:
    """Return a hash of the names and contents of all files."""
    digest = hashlib.sha256()
    for name, content in zip(files.names.tolist(), facts.digests, strict=True):
        digest.update(name + b"\0")
        digest.update(content.tobytes())
    return digest.hexdigest()[:32]
