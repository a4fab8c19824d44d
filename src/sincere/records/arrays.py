"""Arrays of an evaluation on disk, one .npz each: metrics of every test image, and a map of some. No pickles."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from sincere.checks import printable
from sincere.errors import DataError
from sincere.records.npz import read_arrays, write_arrays

T = TypeVar("T")
PER_IMAGE, MAP = "per_image.npz", "map.npz"
REMEDY = "evaluate the run again"
LARGEST_PICTURE = 256  # side of a thumbnail in pixels
_VALUE = "value_"  # before the name of a metric


@dataclass(frozen=True, eq=False)
class PerImage:
    """Metrics of every test image, from which intervals and paired differences are computed.

    Attributes:
        ids: Which image of the source each is (n,).
        labels: Their classes (n,), or label sets (n, L).
        predictions: Class of the nearest training image (n,), or its label set (n, L).
        target_ids: Nearest training image of the same class (n,); None with label sets.
        noise_ids: Nearest training image of another class (n,); None with label sets.
        unknown_ids: Which test images of unknown classes (u,); empty without any.
        values: For each metric (n,), whose mean is its value, or (n, 2), whose difference of medians is. Metrics of
            unknown classes have a value for every known image, then for every unknown one (n + u,).
        texts: File name or text of each (n,); None without.
        unknown_texts: File name or text of each image of unknown classes (u,); None without.
    """

    ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    predictions: NDArray[np.int64]
    target_ids: NDArray[np.int64] | None
    noise_ids: NDArray[np.int64] | None
    unknown_ids: NDArray[np.int64]
    values: dict[str, NDArray[np.float64]]
    texts: NDArray[np.str_] | None = None
    unknown_texts: NDArray[np.str_] | None = None

    def write(self, folder: Path) -> str:
        """Write per_image.npz and return the SHA-256 of its bytes."""
        plain = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "values"}
        values = {_VALUE + name: array for name, array in self.values.items()}
        return write_arrays(
            folder / PER_IMAGE, {name: array for name, array in {**plain, **values}.items() if array is not None}
        )

    @classmethod
    def read(cls, folder: Path, expected: str | None = None) -> Self:
        """Read per_image.npz.

        Args:
            folder: Where it is.
            expected: SHA-256 of its bytes, as `write` returned it; not checked without.

        Raises:
            DataError: It is missing, damaged or of another evaluation, or a value is not finite.
        """
        path = folder / PER_IMAGE
        arrays = _read(path, expected)
        values = {name.removeprefix(_VALUE): arrays.pop(name) for name in list(arrays) if name.startswith(_VALUE)}
        has_label_sets = arrays.get("labels", np.zeros(0)).ndim == 2
        absent = {"target_ids": None, "noise_ids": None} if has_label_sets else {}
        record = _made(cls, path, {**absent, **arrays, "values": values})
        n = len(record.ids) if record.ids.ndim else 0
        _check(path, "ids", n > 0 and _is_count(record.ids, (n,)))
        for name in ("labels", "predictions"):
            _check(path, name, _is_count(getattr(record, name), (n, *record.labels.shape[1:])))
        for name in ("target_ids", "noise_ids"):
            if (ids := getattr(record, name)) is not None:
                _check(path, name, _is_count(ids, (n,)))
        _check(path, "unknown_ids", _is_count(record.unknown_ids, (record.unknown_ids.size,)))
        for name, shape in (("texts", (n,)), ("unknown_texts", record.unknown_ids.shape)):
            if (texts := getattr(record, name)) is not None:
                _check(path, name, texts.dtype.kind == "U" and texts.shape == shape)
        for name, array in values.items():
            shapes = ((n,), (n, 2), (n + len(record.unknown_ids),))
            _check(path, printable(name), array.dtype.kind in "fbiu" and array.shape in shapes)
            if not np.isfinite(array).all():
                raise DataError(f"{path}: {printable(name)} is not finite for every image; {REMEDY}")
        return record


@dataclass(frozen=True, eq=False)
class EmbeddingMap:
    """Some test images in the plane; the same images for every run on the same data.

    Attributes:
        ids: Which image of the source each is (m,).
        labels: Their classes (m,).
        predictions: Class of the nearest training image (m,).
        points: Where they are (m, 2).
        neighbours: The training images nearest by cosine similarity (m, k), the nearest first, as positions in the
            arrays below; the first decides the prediction.
        similarities: Cosine similarities to them (m, k).
        train_ids: Which image of the source each training image is (t,), those that are somebody's nearest first.
        train_labels: Their classes (t,).
        thumbnails: Pixels (m, h, w, c), uint8, c = 1 or 3; None where the samples are features.
        train_thumbnails: Pixels of the first u training images (u, h, w, c), where u may be smaller than t; None where
            the samples are features.
        method: "t-SNE" or "PCA".
        texts: A text or path for each (m,); None without.
        train_texts: A text or path for each training image (t,); None without.
    """

    ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    predictions: NDArray[np.int64]
    points: NDArray[np.float32]
    neighbours: NDArray[np.int64]
    similarities: NDArray[np.float32]
    train_ids: NDArray[np.int64]
    train_labels: NDArray[np.int64]
    thumbnails: NDArray[np.uint8] | None
    train_thumbnails: NDArray[np.uint8] | None
    method: str
    texts: NDArray[np.str_] | None = None
    train_texts: NDArray[np.str_] | None = None

    def write(self, folder: Path) -> str:
        """Write map.npz and return the SHA-256 of its bytes."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return write_arrays(
            folder / MAP, {name: np.asarray(value) for name, value in values.items() if value is not None}
        )

    @classmethod
    def read(cls, folder: Path, expected: str | None = None) -> Self:
        """Read map.npz.

        Args:
            folder: Where it is.
            expected: SHA-256 of its bytes, as `write` returned it; not checked without.

        Raises:
            DataError: It is missing, damaged or of another evaluation.
        """
        path = folder / MAP
        arrays = _read(path, expected)
        method = arrays.pop("method", np.array(""))
        _check(path, "method", method.ndim == 0 and method.dtype.kind == "U")
        absent = {"thumbnails": None, "train_thumbnails": None}
        record = _made(cls, path, {**absent, **arrays, "method": printable(str(method))})
        m, t = (len(ids) if ids.ndim else 0 for ids in (record.ids, record.train_ids))
        for name in ("ids", "labels", "predictions"):
            _check(path, name, _is_count(getattr(record, name), (m,)))
        for name in ("train_ids", "train_labels"):
            _check(path, name, _is_count(getattr(record, name), (t,)))
        k = record.neighbours.shape[-1] if record.neighbours.ndim == 2 else 0
        _check(path, "neighbours", _is_count(record.neighbours, (m, k)) and bool((record.neighbours < t).all()))
        for name, shape in (("points", (m, 2)), ("similarities", (m, k))):
            values = getattr(record, name)
            _check(path, name, values.dtype.kind == "f" and values.shape == shape and bool(np.isfinite(values).all()))
        if (pixels := record.thumbnails) is not None:
            _check(path, "thumbnails", is_pictures(pixels) and len(pixels) == m)
        if (pixels := record.train_thumbnails) is not None:
            _check(path, "train_thumbnails", is_pictures(pixels) and len(pixels) <= t)
        for name, n in (("texts", m), ("train_texts", t)):
            if (texts := getattr(record, name)) is not None:
                _check(path, name, texts.dtype.kind == "U" and texts.shape == (n,))
        return record


def is_pictures(pixels: NDArray[Any]) -> bool:
    """Return whether an array holds small pictures (n, h, w, c), uint8, with 1 or 3 channels."""
    if pixels.dtype != np.uint8 or pixels.ndim != 4:
        return False
    return pixels.shape[-1] in (1, 3) and 0 < min(pixels.shape[1:3]) <= max(pixels.shape[1:3]) <= LARGEST_PICTURE


def _is_count(array: NDArray[Any], shape: tuple[int, ...]) -> bool:
    """Return whether an array has this shape and holds integers of at least 0."""
    return array.shape == shape and array.dtype.kind in "iu" and not (array < 0).any()


def _check(path: Path, name: str, right: bool) -> None:
    if not right:
        raise DataError(f"{path}: is damaged: {name} has a wrong shape, type or value; {REMEDY}")


def _read(path: Path, expected: str | None) -> dict[str, NDArray[Any]]:
    try:
        return read_arrays(path, remedy=REMEDY, expected=expected)
    except FileNotFoundError as error:
        raise DataError(f"{path}: is missing; {REMEDY}") from error


def _made(cls: type[T], path: Path, content: dict[str, Any]) -> T:
    try:
        return cls(**content)
    except TypeError as error:
        raise DataError(f"{path}: is of another version; {REMEDY}") from error
