"""Files of embeddings with names, written batch by batch: .npz or .parquet. No torch."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sincere.errors import MissingPackageError, missing_package

COPY_BYTES = 1 << 24
Add = Callable[[list[str], NDArray[np.float32]], None]


@contextmanager
def npz_writer(path: Path, dim: int) -> Iterator[Add]:
    """Yield a function that takes names and embeddings (k, dim); the file holds arrays `embeddings` and `names`.

    Only the names stay in memory: embeddings go to a temporary file beside `path` until their number is known.
    """
    all_names = list[str]()
    with tempfile.TemporaryFile(dir=path.parent) as rows:

        def add(names: list[str], embeddings: NDArray[np.float32]) -> None:
            all_names.extend(names)
            rows.write(np.ascontiguousarray(embeddings, dtype="<f4").data)

        yield add
        rows.seek(0)
        header = {"descr": "<f4", "fortran_order": False, "shape": (len(all_names), dim)}
        with zipfile.ZipFile(path, "w") as archive:
            with archive.open("embeddings.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_2_0(member, header)
                shutil.copyfileobj(rows, member, COPY_BYTES)
            with archive.open("names.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.array(all_names, dtype=np.str_), allow_pickle=False)


@contextmanager
def parquet_writer(path: Path, dim: int) -> Iterator[Add]:
    """Yield a function that takes names and embeddings (k, dim); the file holds columns `path` and `embedding`.

    Raises:
        MissingPackageError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError as error:
        raise MissingPackageError(missing_package("embed: a .parquet file", error)) from error
    schema = pa.schema([("path", pa.string()), ("embedding", pa.list_(pa.float32(), dim))])
    with pq.ParquetWriter(path, schema) as file:

        def add(names: list[str], embeddings: NDArray[np.float32]) -> None:
            values = pa.FixedSizeListArray.from_arrays(pa.array(embeddings.ravel()), dim)
            file.write_table(pa.table({"path": pa.array(names), "embedding": values}, schema=schema))

        yield add


WRITERS = {".npz": npz_writer, ".parquet": parquet_writer}
