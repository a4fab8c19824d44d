"""Tensors on disk: safetensors files with a checksum of their content. No torch: arrays go in and come out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from sincere.errors import DataError
from sincere.records.files import CHECKSUM, replacing

Arrays = Mapping[str, NDArray[Any]]


def write_tensors(path: Path, tensors: Arrays, metadata: Mapping[str, str] | None = None) -> None:
    """Write arrays atomically.

    Raises:
        OSError: The disk is full, or the folder cannot be written to.
    """
    contiguous = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    with replacing(path) as aside:
        try:
            save_file(contiguous, aside, {**(metadata or {}), CHECKSUM: checksum(contiguous)})
        except SafetensorError as error:
            raise OSError(f"{path}: cannot be written ({_reason(error)})") from error


def read_tensors(path: Path, *, remedy: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file; nothing in it is executed.

    Raises:
        FileNotFoundError: There is no such file.
        DataError: It cannot be read, is cut off, or does not match its checksum; the message ends with `remedy`.
    """
    try:
        with safe_open(path, "numpy") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            stored = (file.metadata() or {}).get(CHECKSUM)
    except FileNotFoundError:
        raise
    except (OSError, MemoryError) as error:
        raise DataError(f"{path}: cannot be read ({_reason(error)})") from error
    except Exception as error:  # damaged headers make it raise almost anything
        raise DataError(f"{path}: is damaged ({_reason(error)}); {remedy}") from error
    if stored is not None and stored != checksum(tensors):
        raise DataError(f"{path}: was damaged or changed: its checksum does not match; {remedy}")
    return tensors


def checksum(tensors: Arrays) -> str:
    """Return what tells these arrays from others: a hash of names, types, shapes and values."""
    found = hashlib.sha256()
    for name in sorted(tensors):
        array = np.asarray(tensors[name], order="C")
        found.update(repr((name, array.dtype.str, array.shape)).encode("utf-8", "backslashreplace"))
        found.update(array.tobytes() if array.ndim == 0 else array.data)
    return found.hexdigest()


def _reason(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
