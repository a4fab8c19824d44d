"""Files that are replaced atomically and carry a checksum of their content, which is verified when they are read."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import shutil
import stat
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from uuid import uuid4

from sincere.errors import DataError, LockedError

UNFINISHED = ".unfinished"  # ending of a file that is being written
CHECKSUM = "sha256"  # key of a JSON file's own checksum
LOCK, EVALUATION_LOCK = ".lock", ".evaluation.lock"  # held by who trains, or compares; and by who evaluates


@contextmanager
def atomic_file(path: Path, *, shared: bool = False) -> Iterator[Path]:
    """Yield the name of a new file, which is flushed and replaces `path` atomically when the block ends well.

    A reader sees the old file or the new one, never a part. If it raises, or the disk is full, the old one stays.
    A file that several processes may write at once is `shared`: the new file has a name that no other process has.
    """
    aside = path.with_name(f".{path.name}{f'.{uuid4().hex[:8]}' if shared else ''}{UNFINISHED}")
    try:
        aside.unlink(missing_ok=True)
        with aside.open("xb"):  # a new file, not what a link leads to, with the mode that any file of this user gets
            mode = aside.stat().st_mode
        yield aside
        _flush(aside)
        aside.chmod(mode)  # some libraries write files that only their owner may read
        aside.replace(path)
    except BaseException as error:
        aside.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:  # as of a full disk
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        raise
    _flush(path.parent)


@contextmanager
def staged_folder(folder: Path, *, last: str) -> Iterator[Path]:
    """Give an empty folder; the files written there replace those in `folder` when the block ends well.

    Until then nothing in `folder` changes. The file called `last` comes last: it says what the others must be.
    """
    work = folder / f".staged{UNFINISHED}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        yield work
        for path in sorted(work.iterdir(), key=lambda path: (path.name == last, path.name)):
            path.replace(folder / path.name)
        _flush(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def publish_folder(work: Path, folder: Path) -> None:
    """Flush a folder with all its files to disk, then rename it atomically; `folder` must be missing or empty."""
    for path in (*work.rglob("*"), work):
        if (path.is_file() or path.is_dir()) and not path.is_symlink():
            _flush(path)
    work.replace(folder)
    _flush(folder.parent)


def _flush(path: Path) -> None:
    """Write a file, or the names in a folder, through to disk; folders only where the system can flush them."""
    is_folder = path.is_dir()
    if is_folder and sys.platform == "win32":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not is_folder or error.errno not in (errno.EINVAL, errno.ENOTSUP):  # as on some network file systems
            raise
    finally:
        os.close(descriptor)


def check_folder_exists(folder: Path) -> None:
    """Raise if a folder that should be read does not exist.

    Raises:
        DataError: It does not; the message names a folder beside it with a similar name, if there is one.
    """
    if folder.exists():
        return
    near = similar_folders(folder)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise DataError(f"{folder}: does not exist{hint}")


def similar_folders(folder: Path) -> list[Path]:
    """Return folders whose names are like that of one that does not exist, beside it; the most similar first."""
    try:
        beside = [path.name for path in folder.parent.iterdir() if path.is_dir()] if folder.parent.is_dir() else []
    except OSError:  # it cannot be listed
        return []
    longer = [name for name in beside if folder.name and name.startswith(folder.name)]
    return [folder.parent / name for name in sorted(longer) or get_close_matches(folder.name, beside, n=1)]


def write_atomic(path: Path, content: str | bytes, *, shared: bool = False) -> None:
    """Write a file atomically; undecodable bytes in text, as in names of files, are kept as they are."""
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    with atomic_file(path, shared=shared) as aside:
        aside.write_bytes(data)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object atomically, with a checksum of its content.

    Raises:
        ValueError: A number is not finite.
    """
    checked = {**content, CHECKSUM: _checksum(content)}
    text = json.dumps(checked, indent=1, allow_nan=False)
    # A line for each list of numbers: a thousand classes would else take a million lines. Strings hold no line break.
    text = re.sub(r"\[\n[\s\d.,eE+-]+\]", lambda match: re.sub(r"\s+", "", match[0]).replace(",", ", "), text)
    write_atomic(path, text + "\n")


def read_json(path: Path, *, remedy: str) -> dict[str, Any]:
    """Return the object in a JSON file, without its checksum.

    Raises:
        FileNotFoundError: There is no such file.
        DataError: It cannot be read, is no JSON object, or does not match its checksum; the message ends with `remedy`.
    """
    data = read_bytes(path)
    try:
        content = json.loads(data)
        stored = content.pop(CHECKSUM, None) if isinstance(content, dict) else None
        matches = stored is None or stored == _checksum(content)
    except (ValueError, RecursionError) as error:  # also of nesting that is too deep
        raise DataError(f"{path}: is damaged: no readable JSON; {remedy}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: is damaged: no JSON object; {remedy}")
    if not matches:
        raise DataError(f"{path}: was damaged or changed: its checksum does not match; {remedy}")
    return content


def read_bytes(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        FileNotFoundError: There is no such file.
        DataError: It cannot be read, or is no file: a pipe would wait for ever.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise DataError(f"{path}: is not a regular file")
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(path) from None
    except (OSError, MemoryError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error


def file_sha256(path: Path) -> str:
    """Return the content hash of a file.

    Raises:
        DataError: There is no such file, or it cannot be read.
    """
    try:
        return hashlib.sha256(read_bytes(path)).hexdigest()
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error


def check_sha256(path: Path, digest: str, expected: str | None) -> None:
    """Check the content hash of a file of weights against the one that a run began with; None accepts any.

    Raises:
        DataError: It is another one.
    """
    if expected not in (None, digest):
        raise DataError(f"{path}: its SHA-256 must be {expected}, that of the run's weights; got {digest}")


def is_intact_zip(data: bytes) -> bool:
    """Return whether the checksums inside a zip archive are right."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return archive.testzip() is None
    except MemoryError:
        raise
    except Exception:  # damaged archives make it raise almost anything
        return False


def _checksum(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def locked(folder: Path, name: str = LOCK) -> Iterator[None]:
    """Keep other processes from writing to a folder; a kill releases the lock, too.

    Raises:
        LockedError: Another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if sys.platform == "win32":
        yield
        return
    import fcntl

    with (folder / name).open("a") as file:  # without emptying it: it may be a link to something else
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LockedError(f"{folder}: another process is working in it; wait for it, or stop it") from error
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK):  # a file system without locks
                raise
        yield


def is_unlocked(folder: Path, name: str) -> bool:
    """Tell whether it is certain that no process holds a lock that one has held before, with `locked`."""
    if sys.platform == "win32" or not (folder / name).exists():
        return False
    import fcntl

    with (folder / name).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # held, or on a file system without locks
            return False
    return True
