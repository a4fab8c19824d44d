"""Tensors on disk: safetensors files with a checksum of their content. No torch: arrays go in and come out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from sincere.errors import DataError, first_line
from sincere.records.files import CHECKSUM, atomic_file

Arrays = Mapping[str, NDArray[Any]]


def write_tensors(path: Path, tensors: Arrays, metadata: Mapping[str, str] | None = None) -> None:
    """Write arrays atomically.

    Raises:
        OSError: The disk is full, or the folder cannot be written to.
    """
    contiguous = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    with atomic_file(path) as aside:
        try:
            about = dict(metadata or {})
            save_file(contiguous, aside, {**about, CHECKSUM: checksum(contiguous, about)})
            _sort_header(aside)
        except SafetensorError as error:
            raise OSError(f"{path}: cannot be written ({first_line(error)})") from error


def _sort_header(path: Path) -> None:
    """Sort the keys of a file's header, which safetensors writes in random order: equal content gives equal bytes."""
    with path.open("r+b") as file:
        n_bytes = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(n_bytes))
        about = header["__metadata__"]
        header["__metadata__"] = {name: about[name] for name in sorted(about)}
        ordered = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        if len(ordered) <= n_bytes:  # as it is: the order alone has changed
            file.seek(8)
            file.write(ordered.ljust(n_bytes))


def read_tensors(path: Path, *, remedy: str) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Return the arrays and the metadata of a file; nothing in it is executed.

    Raises:
        FileNotFoundError: There is no such file.
        DataError: It cannot be read, is cut off, or does not match its checksum; the message ends with `remedy`.
    """
    if path.exists() and not path.is_file():
        raise DataError(f"{path}: is not a regular file")
    try:
        with safe_open(path, "numpy") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            about = dict(file.metadata() or {})
    except FileNotFoundError:
        raise
    except (OSError, MemoryError) as error:
        raise DataError(f"{path}: cannot be read ({first_line(error)})") from error
    except Exception as error:  # damaged headers make it raise almost anything
        raise DataError(f"{path}: is damaged ({first_line(error)}); {remedy}") from error
    stored = about.pop(CHECKSUM, None)
    if stored is not None and stored != checksum(tensors, about):
        raise DataError(f"{path}: was damaged or changed: its checksum does not match; {remedy}")
    return tensors, about


def checksum(tensors: Arrays, metadata: Mapping[str, str]) -> str:
    """Return what tells these arrays from others: a hash of metadata, names, types, shapes and values."""
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(tensors):
        array = np.asarray(tensors[name], order="C")
        digest.update(repr((name, array.dtype.str, array.shape)).encode("utf-8", "backslashreplace"))
        digest.update(array.tobytes() if array.ndim == 0 else array.data)
    return digest.hexdigest()
