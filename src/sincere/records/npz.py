"""Arrays in one .npz file: written atomically, without pickles, with a checksum that is verified when they are read."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sincere.errors import DataError
from sincere.records.files import CHECKSUM, read_bytes, write_atomic
from sincere.records.tensors import checksum


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> str:
    """Write arrays and return the SHA-256 of the file.

    Raises:
        OSError: The disk is full, or the folder cannot be written to.
    """
    buffer = io.BytesIO()
    # First, so that it is there when a damaged directory hides the last ones.
    checked = {CHECKSUM: np.array(checksum(arrays, {})), **arrays}
    np.savez_compressed(buffer, allow_pickle=False, **checked)
    content = buffer.getvalue()
    write_atomic(path, content)
    return hashlib.sha256(content).hexdigest()


def read_arrays(path: Path, *, remedy: str, expected: str | None = None) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file; nothing in it is executed.

    Args:
        path: The file.
        remedy: What to do about damage, for the message.
        expected: The SHA-256 that the file must have.

    Raises:
        FileNotFoundError: There is no such file.
        DataError: It cannot be read, is damaged, or is not the one that is expected.
    """
    content = read_bytes(path)
    if expected is not None and hashlib.sha256(content).hexdigest() != expected:
        raise DataError(f"{path}: is damaged, or of another evaluation: its checksum does not match; {remedy}")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = dict(archive)
            if not all(isinstance(array, np.ndarray) for array in arrays.values()):
                raise ValueError("not an array")  # numpy hands out other members as bytes
            stored = arrays.pop(CHECKSUM, None)
            if stored is not None and str(stored) != checksum(arrays, {}):
                raise ValueError("the checksum does not match")
            return arrays
    except Exception as error:  # zipfile, zlib and numpy's header parser raise almost anything on damaged files
        raise DataError(f"{path}: is damaged; {remedy}") from error
