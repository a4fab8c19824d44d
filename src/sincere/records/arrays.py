"""Arrays of an evaluation on disk, one .npz each: figures of every test image, and a map of some. No pickles."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from sincere.errors import DataError

T = TypeVar("T")
PER_IMAGE, MAP = "per_image.npz", "map.npz"
_VALUE = "value_"  # before the name of a metric


@dataclass(frozen=True, eq=False)
class PerImage:
    """Figures of every test image, from which intervals and paired differences are computed.

    Attributes:
        ids: Which image of the source each is (n,).
        labels: Their classes (n,).
        predictions: Class of the nearest training image (n,).
        target_ids: Training image of the same class that is nearest (n,).
        noise_ids: Of another class (n,).
        values: For each metric (n,), whose mean is the figure, or (n, 2), whose difference of medians is.
    """

    ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    predictions: NDArray[np.int64]
    target_ids: NDArray[np.int64]
    noise_ids: NDArray[np.int64]
    values: dict[str, NDArray[np.float64]]

    def write(self, folder: Path) -> None:
        """Write per_image.npz."""
        plain = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "values"}
        _write(folder / PER_IMAGE, {**plain, **{_VALUE + name: array for name, array in self.values.items()}})

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read per_image.npz.

        Raises:
            DataError: It is missing or damaged, or a figure is not finite.
        """
        arrays = _read(folder / PER_IMAGE)
        values = {name.removeprefix(_VALUE): arrays.pop(name) for name in list(arrays) if name.startswith(_VALUE)}
        for name, array in values.items():
            if not np.isfinite(array).all():
                raise DataError(f"{folder / PER_IMAGE}: {name} is not finite for every image; evaluate the run again")
        return _made(cls, folder / PER_IMAGE, {**arrays, "values": values})


@dataclass(frozen=True, eq=False)
class EmbeddingMap:
    """Some test images in the plane; the same images for every run on the same data.

    Attributes:
        ids: Which image of the source each is (m,).
        labels: Their classes (m,).
        predictions: Class of the nearest training image (m,).
        points: Where they are (m, 2).
        neighbours: Positions in this map of the images nearest by cosine similarity (m, k), the nearest first.
        thumbnails: Pixels (m, h, w, c), uint8, c = 1 or 3.
        method: "t-SNE" or "PCA".
    """

    ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    predictions: NDArray[np.int64]
    points: NDArray[np.float32]
    neighbours: NDArray[np.int64]
    thumbnails: NDArray[np.uint8]
    method: str

    def write(self, folder: Path) -> None:
        """Write map.npz."""
        _write(folder / MAP, {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)})

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read map.npz.

        Raises:
            DataError: It is missing or damaged.
        """
        arrays = _read(folder / MAP)
        return _made(cls, folder / MAP, {**arrays, "method": str(arrays.get("method", ""))})


def _write(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    aside = path.with_name(f".{path.name}.unfinished")
    with aside.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    aside.replace(path)


def _read(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return dict(archive)
    except FileNotFoundError as error:
        raise DataError(f"{path}: is missing; evaluate the run again") from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: is damaged; evaluate the run again") from error


def _made(cls: type[T], path: Path, content: dict[str, Any]) -> T:
    try:
        return cls(**content)
    except TypeError as error:
        raise DataError(f"{path}: is of another version; evaluate the run again") from error
